# SPDX-License-Identifier: MPL-2.0
# Exports one ONNX file of every Ultralytics architecture we promise to run, from its yaml: no weights are downloaded.
#
#   python tests/zoo/export.py OUTDIR [NAME...]        all rows of ROWS that belong to the installed release, or those named
#
# The export itself is Ultralytics' own, untouched. Only the weights are ours: random ones give the same tiny score for every
# anchor, which would test nothing, so `awaken` gives a freshly built model useful activations first. A file that is already in
# OUTDIR is kept as long as the scripts and the packages that made it are unchanged (see `stamp`).
# Next to NAME.onnx lies NAME.json: what made it, how long it took, and the file's inputs and outputs.
import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path

import numpy as np

# Ultralytics would look for updates, install packages by itself and write to the home directory.
os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")

SEED = 20
OLD_RELEASE = "8.4.0"  # as in requirements-old.txt
DETAIL, SHIFT = 0.5, 2.0  # see `calm`
SCRIPTS = (Path(__file__), Path(__file__).with_name("pictures.py"))
PACKAGES = ("ultralytics", "torch", "onnx", "onnxslim", "onnxruntime")

# Labels that a careless reader of metadata_props["names"] (the repr of a Python dict) trips over.
AWKWARD = {0: "it's", 1: 'say "hi"', 2: "both ' and \"", 3: "a, b: c", 4: "{4: 'x'}", 5: "naïve ☃", 6: "back\\slash", 7: " "}


def row(yaml, labels=None, classes=None, asked=None, old=False, **arguments):
    """One export: the yaml, its arguments, and what differs from the defaults. Most are 320x320, which is four times quicker."""
    made = {"yaml": yaml, "labels": labels, "classes": classes, "asked": asked, "old": old}
    return {**made, "arguments": {"imgsz": 320, **arguments}}


# name -> how to make it. `asked="gpu-half"`: see `halve_as_on_a_gpu`. `old`: made by release 8.4.0, which run.sh installs
# next to the newest: there YOLOv10 and YOLO26 export their end-to-end heads by default, and RT-DETR a column for each class.
ROWS = {
    "yolov5nu": row("yolov5n.yaml"),
    "yolov8n": row("yolov8n.yaml", imgsz=640),
    "yolov9t": row("yolov9t.yaml"),
    "yolov10n": row("yolov10n.yaml"),
    "yolo11n": row("yolo11n.yaml", labels=AWKWARD),
    "yolo12n": row("yolo12n.yaml"),
    "yolo26n": row("yolo26n.yaml", imgsz=640),
    "rtdetr-l": row("rtdetr-l.yaml"),
    # nms=False asks for the heads that need no suppression, nms=True puts the suppression into the graph.
    "yolov10n-e2e": row("yolov10n.yaml", nms=False),
    "yolo26n-e2e": row("yolo26n.yaml", nms=False),
    "yolov8n-nms": row("yolov8n.yaml", nms=True),
    "yolo11n-nms": row("yolo11n.yaml", nms=True),
    "yolo11n-256x448": row("yolo11n.yaml", imgsz=[256, 448]),
    "yolo11n-dynamic": row("yolo11n.yaml", dynamic=True),
    "yolo11n-1class": row("yolo11n.yaml", classes=1),
    "yolov8n-half": row("yolov8n.yaml", half=True),
    "yolov8n-gpu-half": row("yolov8n.yaml", asked="gpu-half", half=True),
    "yolo26n-gpu-half": row("yolo26n.yaml", asked="gpu-half", half=True),
    "yolo26n-e2e-gpu-half": row("yolo26n.yaml", asked="gpu-half", half=True, nms=False),
    "old-yolov10n": row("yolov10n.yaml", old=True),
    "old-yolo11n": row("yolo11n.yaml", old=True),
    "old-yolo26n": row("yolo26n.yaml", old=True),
    "old-rtdetr-l": row("rtdetr-l.yaml", old=True),
    # Keypoints in addition to boxes.
    "yolov8n-pose": row("yolov8n-pose.yaml"),
    "yolo11n-pose": row("yolo11n-pose.yaml"),
    "yolo11n-pose-nms": row("yolo11n-pose.yaml", nms=True),
    "yolo11n-pose-256x448": row("yolo11n-pose.yaml", imgsz=[256, 448]),
    "yolo11n-pose-dynamic": row("yolo11n-pose.yaml", dynamic=True),
    "yolov8n-pose-half": row("yolov8n-pose.yaml", half=True),
    "yolo12n-pose": row("yolo12n-pose.yaml"),
    "yolo26n-pose": row("yolo26n-pose.yaml"),
    "yolo26n-pose-e2e": row("yolo26n-pose.yaml", nms=False),
    "yolo26n-pose-e2e-gpu-half": row("yolo26n-pose.yaml", asked="gpu-half", half=True, nms=False),
    # Rotated boxes.
    "yolov8n-obb": row("yolov8n-obb.yaml"),
    "yolo11n-obb": row("yolo11n-obb.yaml"),
    "yolo11n-obb-nms": row("yolo11n-obb.yaml", nms=True),
    "yolo11n-obb-256x448": row("yolo11n-obb.yaml", imgsz=[256, 448]),
    "yolo11n-obb-dynamic": row("yolo11n-obb.yaml", dynamic=True),
    "yolo11n-obb-half": row("yolo11n-obb.yaml", half=True),
    "yolo12n-obb": row("yolo12n-obb.yaml"),
    "yolo26n-obb": row("yolo26n-obb.yaml"),
    "yolo26n-obb-e2e": row("yolo26n-obb.yaml", nms=False),
    "yolo26n-obb-e2e-gpu-half": row("yolo26n-obb.yaml", asked="gpu-half", half=True, nms=False),
    # Masks in addition to boxes.
    "yolov8n-seg": row("yolov8n-seg.yaml"),
    "yolo11n-seg": row("yolo11n-seg.yaml"),
    "yolo11n-seg-nms": row("yolo11n-seg.yaml", nms=True),
    "yolo11n-seg-half": row("yolo11n-seg.yaml", half=True),
    "yolo11n-seg-256x448": row("yolo11n-seg.yaml", imgsz=[256, 448]),
    "yolo11n-seg-dynamic": row("yolo11n-seg.yaml", dynamic=True),
    "yolo12n-seg": row("yolo12n-seg.yaml"),
    "yolo26n-seg": row("yolo26n-seg.yaml"),
    "yolo26n-seg-e2e": row("yolo26n-seg.yaml", nms=False),
    "yolo26n-seg-e2e-gpu-half": row("yolo26n-seg.yaml", asked="gpu-half", half=True, nms=False),
    # Classes of the whole picture.
    "yolov8n-cls": row("yolov8n-cls.yaml"),
    "yolo11n-cls": row("yolo11n-cls.yaml"),
    "yolo11n-cls-dynamic": row("yolo11n-cls.yaml", dynamic=True),
    "yolo11n-cls-half": row("yolo11n-cls.yaml", half=True),
    "yolo11n-cls-gpu-half": row("yolo11n-cls.yaml", asked="gpu-half", half=True),
    "yolo12n-cls": row("yolo12n-cls.yaml"),
    "yolo26n-cls": row("yolo26n-cls.yaml"),
}


def stamp(name):
    """What a kept file must have been made with: the scripts, its row, and the packages."""
    return {
        "scripts": hashlib.sha256(b"".join(path.read_bytes() for path in SCRIPTS)).hexdigest(),
        "row": json.loads(json.dumps(ROWS[name])),
        "packages": {package: version(package) for package in PACKAGES},
    }


def batch(first, count=4, size=320):
    """A batch of pictures like those that compare.py shows the model, numbered from `first`."""
    import torch
    from pictures import picture, placement, tensor

    shapes = ((640, 360), (405, 720))
    made = []
    for seed in range(first, first + count):
        frame = shapes[seed % 2]
        made.append(tensor(picture(*frame, seed), (size, size), placement(frame, (size, size))))
    return torch.from_numpy(np.concatenate(made))


def calm(model, generator):
    """Makes the network answer smoothly to its input, as a trained one does.

    Purely random weights amplify the rounding of one pixel from layer to layer until the scores are different ones. Kernels that
    are blurs at heart average such noise out, and a normalisation that shifts the activations keeps them where SiLU is nearly
    straight.
    """
    import torch

    for layer in model.modules():
        if isinstance(layer, torch.nn.Conv2d) and layer.weight.shape[-1] > 1:
            fan = layer.weight[0].numel()
            blur = torch.randn(*layer.weight.shape[:2], 1, 1, generator=generator)
            detail = torch.randn(layer.weight.shape, generator=generator)
            layer.weight.copy_((blur + DETAIL * detail) / fan**0.5)
        elif isinstance(layer, torch.nn.BatchNorm2d):
            layer.weight.fill_(1.0)
            layer.bias.fill_(SHIFT)


def settle_batch_norm(model):
    """Sets every BatchNorm's running statistics from a few batches, so that activations neither die out nor explode."""
    import torch

    layers = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # plain average over the batches
        layer.train()
    for number in range(1, 5):
        model(batch(number * 4))
    for layer, momentum in zip(layers, kept):
        layer.momentum = momentum
        layer.eval()


def spread(model, layer, mean, std, generator):
    """Rescales `layer` so that its outputs over a picture spread by `std` around `mean`, a number or a list of one a channel."""
    import torch

    seen = []
    hook = layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output.detach()))
    torch.nn.init.normal_(layer.weight, std=0.05, generator=generator)
    torch.nn.init.zeros_(layer.bias)
    model(batch(4))
    hook.remove()
    output = seen[-1]
    scale = std / output.std()
    layer.weight.mul_(scale)
    layer.bias.copy_(torch.as_tensor(mean) - scale * output.mean())


def output_layers(head):
    """(layer, mean, std) of what each last layer of a detection head shall put out; scores are logits."""
    if type(head).__name__ == "RTDETRDecoder":
        yield head.enc_score_head, -3.0, 1.5
        yield head.enc_bbox_head.layers[-1], 0.0, 0.5
        for boxes in head.dec_bbox_head:
            yield boxes.layers[-1], 0.1, 0.3
        yield head.dec_score_head[-1], -4.0, 1.5  # the scores of the other decoder layers are for training
        return
    if type(head).__name__ == "Classify":
        yield head.linear, 0.0, 2.0
        return
    # A side is counted in strides: the expectation over 16 bins, the near ones favoured, or with a single bin the number itself.
    sides = ([-0.3 * bin for bin in range(head.reg_max)] * 4, 2.0) if head.reg_max > 1 else (3.0, 0.8)
    for boxes, scores in (("cv2", "cv3"), ("one2one_cv2", "one2one_cv3")):
        for sequence in getattr(head, boxes, None) or ():
            yield sequence[-1], *sides
        for sequence in getattr(head, scores, None) or ():
            yield sequence[-1], -5.0, 1.5
    # Angles, or coefficients of masks.
    if type(head).__name__.startswith(("OBB", "Segment")):
        for others in ("cv4", "one2one_cv4"):
            for sequence in getattr(head, others, None) or ():
                yield sequence[-1], 0.0, 1.0


def awaken(model):
    """Gives a freshly built model scores and boxes of many sizes, the same ones on every run."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        model.eval()
        calm(model, generator)
        settle_batch_norm(model)
        if model.task in ("detect", "segment", "pose", "obb", "classify"):
            for layer, mean, std in output_layers(model.model[-1]):
                spread(model, layer, mean, std, generator)


def build(name):
    """The Ultralytics model object of a row, with random but useful weights."""
    import torch
    from ultralytics import RTDETR, YOLO

    torch.manual_seed(SEED)
    wanted = ROWS[name]
    yolo = (RTDETR if wanted["yaml"].startswith("rtdetr") else YOLO)(wanted["yaml"])
    if wanted["classes"]:
        fewer = type(yolo.model)(wanted["yaml"], nc=wanted["classes"], verbose=False)
        fewer.args, fewer.task = yolo.model.args, yolo.task
        yolo.model = fewer
    if wanted["labels"]:
        yolo.model.names = {**yolo.model.names, **wanted["labels"]}
    awaken(yolo.model)
    return yolo


def halve_as_on_a_gpu(exporter):
    """Export callback: traces the model in half precision, as Ultralytics does where it finds a GPU.

    On a CPU half=True converts the finished file instead and keeps f32 inputs and outputs; a GPU's file has f16 ones.
    """
    import torch

    exporter.im, exporter.model = exporter.im.half(), exporter.model.half()
    exporter.device = torch.device("mps")  # any that is not "cpu": only asked whether the conversion is still to be done


def describe(path):
    """Inputs, outputs and metadata_props of an ONNX file as plain data."""
    import onnx

    model = onnx.load(path, load_external_data=False)

    def values(items):
        return [
            {
                "name": item.name,
                "dtype": onnx.TensorProto.DataType.Name(item.type.tensor_type.elem_type),
                "shape": [d.dim_param or d.dim_value for d in item.type.tensor_type.shape.dim],
            }
            for item in items
        ]

    return {
        "inputs": values(model.graph.input),
        "outputs": values(model.graph.output),
        "metadata": {entry.key: entry.value for entry in model.metadata_props},
        "opset": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "operators": sorted({node.op_type for node in model.graph.node}),
    }


def export(name, directory):
    """Makes DIRECTORY/NAME.onnx and its NAME.json; returns the seconds it took."""
    started = time.monotonic()
    yolo = build(name)
    if ROWS[name]["asked"] == "gpu-half":
        yolo.add_callback("on_export_start", halve_as_on_a_gpu)
    here = Path.cwd()
    with tempfile.TemporaryDirectory(dir=directory) as work:
        os.chdir(work)  # Ultralytics writes next to the yaml's name, that is into the current directory
        try:
            made = Path(yolo.export(format="onnx", device="cpu", **ROWS[name]["arguments"])).resolve()
        finally:
            os.chdir(here)
        os.replace(made, directory / f"{name}.onnx")
    seconds = round(time.monotonic() - started, 1)
    facts = {"stamp": stamp(name), "seconds": seconds, **describe(directory / f"{name}.onnx")}
    (directory / f"{name}.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False))
    return seconds


def fresh(name, directory):
    """Whether NAME is there already, made by the same script and packages."""
    try:
        kept = json.loads((directory / f"{name}.json").read_text())["stamp"]
    except (OSError, ValueError, KeyError):
        return False
    return kept == stamp(name) and (directory / f"{name}.onnx").exists()


def one_thread():
    """Of each process, since there is one for each processor. Tracing a model uses one in any case."""
    import torch

    torch.set_num_threads(1)


def made(name, directory):
    """One line of the log."""
    if fresh(name, directory):
        return f"{name}: kept"
    seconds = export(name, directory)
    return f"{name}: {seconds} s, {(directory / f'{name}.onnx').stat().st_size / 1e6:.1f} MB"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(ROWS)
    if unknown:
        sys.exit(f"export: no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    directory = asked.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["YOLO_CONFIG_DIR"] = str(directory)
    old = version("ultralytics") == OLD_RELEASE
    names = asked.names or [name for name in ROWS if ROWS[name]["old"] == old]
    # The models that take a minute first, so that no processor waits for them at the end.
    names.sort(key=lambda name: "rtdetr" not in name)
    processors = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processors, multiprocessing.get_context("spawn"), one_thread) as pool:
        for line in pool.map(made, names, [directory] * len(names)):
            print(f"export: {line}", flush=True)


if __name__ == "__main__":
    main()

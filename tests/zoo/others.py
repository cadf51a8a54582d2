# SPDX-License-Identifier: MPL-2.0
# Exports models of other families than Ultralytics' with their own packages, and compares our objects with what the packages' own
# post-processing makes of ONNX Runtime's outputs for the same pictures. No weights are downloaded: they are random. anchors.py has
# those whose boxes are still to be suppressed, maps.py those with maps.
#
#   python tests/zoo/others.py OUTDIR --detect PROGRAM [--only NAME...] [--timeout SECONDS]
#
# A model and its NAME.json are kept in OUTDIR as long as this script and the packages stay as they are. Ends with status 1 if any
# model fails.
import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Neither package may look for weights.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import numpy as np
import torch

import anchors
import maps
from boxes import CERTAIN, DOUBTFUL, FULL, SHAPES, Boxes, Result
from matching import COLUMNS, HEADINGS, match, match_fine_masks, show
from networks import SEED, SIZE, input_size, normalised, outputs_of, spread, to_onnx
from pictures import picture, placement, save, tensor
from program import ask, ours, suppression
from reference import choose_threshold

SCRIPTS = ("others.py", "absent.py", "anchors.py", "export.py", "maps.py", "networks.py", "pictures.py")  # what a file depends on
PACKAGES = ("torch", "onnxruntime")
CANDIDATES = (20, 80)  # how many objects the score threshold may leave


class RfDetr:
    """Of the package rfdetr: its export, and its PostProcess."""

    packages = ("rfdetr", "transformers")
    normalised = True

    def __init__(self, variant, classes=90):
        self.variant, self.classes = variant, classes

    def model(self):
        """With random weights."""
        import rfdetr

        model = getattr(rfdetr, self.variant)(pretrain_weights=None, device="cpu", num_classes=self.classes)
        network = model.model.model
        spread(network.class_embed, 2.0)
        with torch.no_grad():
            last = network.bbox_embed.layers[-1]
            last.weight.copy_(torch.randn(last.weight.shape) * 0.03)
        return model

    def export(self, path, **options):
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            os.replace(self.model().export(output_dir=work, verbose=False, **options), path)

    def objects(self, outputs, frame):
        from rfdetr.models.postprocess import PostProcess

        given = {"pred_boxes": outputs["dets"], "pred_logits": outputs["labels"], "pred_masks": outputs.get("masks")}
        if self.classes + 1 != 91:
            given["pred_logits"] = given["pred_logits"][..., :-1]  # the background's
        sizes = torch.tensor([frame[::-1]])
        queries = outputs["dets"].shape[1]
        return PostProcess(num_select=queries)({name: value for name, value in given.items() if value is not None}, sizes)[0]


class Transformers:
    """Of Hugging Face's transformers: the model's logits and boxes, or with the post-processing that the projects' own exporters add."""

    packages = ("transformers",)
    normalised = False

    def __init__(self, family, deploy=False):
        self.family, self.deploy = family, deploy

    def export(self, path):
        import transformers

        config = getattr(transformers, f"{self.family}Config")(num_labels=80)
        model = getattr(transformers, f"{self.family}ForObjectDetection")(config).eval()
        decoder = model.model.decoder
        # D-FINE adds to its logits how sure it is of the box.
        spread(decoder.class_embed[-1], 2.0, -9.0 if self.family == "DFine" else -3.0)
        with torch.no_grad():
            for boxes in decoder.bbox_embed:
                last = boxes.layers[-1]
                last.weight.copy_(torch.randn(last.weight.shape) * 0.03)
        names = ["labels", "boxes", "scores"] if self.deploy else ["logits", "pred_boxes"]
        inputs = {"images": torch.rand(1, 3, SIZE, SIZE)}
        if self.deploy:
            inputs["orig_target_sizes"] = torch.tensor([[SIZE, SIZE]])
        wrapped = (Deploy if self.deploy else Raw)(model)
        to_onnx(wrapped, tuple(inputs.values()), str(path), input_names=list(inputs), output_names=names, opset_version=17)

    def objects(self, outputs, frame):
        if self.deploy:
            scale = torch.tensor([frame[0] / SIZE, frame[1] / SIZE] * 2)
            return {"boxes": outputs["boxes"][0] * scale, "scores": outputs["scores"][0], "labels": outputs["labels"][0]}
        from transformers import RTDetrImageProcessor
        from types import SimpleNamespace

        given = SimpleNamespace(logits=outputs["logits"], pred_boxes=outputs["pred_boxes"])
        return RTDetrImageProcessor().post_process_object_detection(given, threshold=0.0, target_sizes=[frame[::-1]])[0]


class Raw(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        found = self.model(pixel_values=images)
        return found.logits, found.pred_boxes


class Deploy(Raw):
    """What RT-DETR's, D-FINE's and DEIM's export_onnx.py append: the best of all pairs of query and class, on a picture of that size."""

    def forward(self, images, orig_target_sizes):
        logits, boxes = super().forward(images)
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        corners = torch.cat([middle - half, middle + half], -1) * orig_target_sizes.repeat(1, 2).unsqueeze(1)
        scores, index = torch.topk(logits.sigmoid().flatten(1), logits.shape[1], dim=-1)
        labels = index % logits.shape[2]
        queries = (index // logits.shape[2]).unsqueeze(-1).repeat(1, 1, 4)
        return labels, corners.gather(1, queries), scores


ROWS = {
    "rf-detr-nano": RfDetr("RFDETRNano"),
    "rf-detr-nano-5": RfDetr("RFDETRNano", classes=5),
    "rf-detr-seg-nano": RfDetr("RFDETRSegNano"),
    "rt-detr-v2": Transformers("RTDetrV2"),
    "rt-detr-v2-deploy": Transformers("RTDetrV2", deploy=True),
    "d-fine": Transformers("DFine"),
    "d-fine-deploy": Transformers("DFine", deploy=True),
    "deim-v2": Transformers("Deimv2"),
    "yolox-nano": anchors.YoloX(),
    "yolox-nano-decoded": anchors.YoloX(decoded=True),
    "yolo-nas-s": anchors.YoloNas(),
    "pp-yoloe": anchors.PpYoloe(),
    "pp-yoloe-concat": anchors.PpYoloe(concat=True),
    "segformer": maps.Segformer(),
    "segformer-ids": maps.Segformer(ids=True),
    "depth-anything": maps.DepthAnything(),
}


def is_installed(name):
    """Not all packages are made for each version of Python."""
    try:
        return bool(stamp(name))
    except PackageNotFoundError as missing:
        print(f"zoo: {name} is left out: {missing}")
        return False


def stamp(name):
    """What a kept file must have been made with."""
    scripts = hashlib.sha256(b"".join(Path(__file__).with_name(script).read_bytes() for script in SCRIPTS)).hexdigest()
    return {"scripts": scripts, "packages": {package: version(package) for package in (*PACKAGES, *ROWS[name].packages)}}


def export(name, folder):
    """Makes FOLDER/NAME.onnx and its NAME.json, unless they are there already."""
    path, note = folder / f"{name}.onnx", folder / f"{name}.json"
    if path.exists() and note.exists() and json.loads(note.read_text()) == stamp(name):
        return path
    torch.manual_seed(SEED)
    ROWS[name].export(path)
    note.write_text(json.dumps(stamp(name)))
    return path


def values_of(row, path, image):
    """The input that the package has the picture in."""
    if hasattr(row, "map"):
        return maps.values_of(path, image)
    if hasattr(row, "suppress"):
        return anchors.values_of(row, path, image)
    size = input_size(path)
    values = tensor(image, size, placement((image.shape[1], image.shape[0]), size, stretched=True))
    return normalised(values) if row.normalised else values


def reference(row, outputs, frame, size):
    """What the package's own post-processing finds in the outputs: boxes on the frame."""
    with torch.no_grad():
        found = row.objects(outputs, frame)
    corners = np.clip(found["boxes"].numpy(), 0, np.tile(frame, 2))
    boxes = Boxes(corners, found["scores"].numpy(), found["labels"].numpy(), np.arange(len(corners)))
    if "masks" in found:
        grid = fine(size)
        with torch.no_grad():
            fine_masks = row.objects(outputs, grid)["masks"][:, 0].numpy()
        columns, rows = (((np.arange(frame[i]) + 0.5) * grid[i] / frame[i]).astype(int) for i in range(2))
        sampled = fine_masks[:, rows][:, :, columns]
        boxes.masks = np.stack([found["masks"][:, 0].numpy(), sampled], axis=1)
    return boxes


def fine(size):
    """The size of our masks for an input of that size: twice or four times a small one."""
    detail = next((detail for detail in (1, 2) if max(size) * detail >= 960), 4)
    return size[0] * detail, size[1] * detail


def judged(row, outputs, image, size, threshold=None):
    """The score threshold that leaves enough, unless there is one, and the boxes that may reach it, each with its standing."""
    boxes = reference(row, outputs, (image.shape[1], image.shape[0]), size)
    if threshold is None:
        threshold = choose_threshold(boxes.scores, *CANDIDATES)
    boxes = boxes.take(boxes.scores >= threshold - FULL.order)
    doubt = boxes.scores < threshold + FULL.order
    doubt |= (boxes.corners[:, 2:] - boxes.corners[:, :2]).min(axis=1) < 1  # slivers
    if boxes.masks is not None:
        doubt |= boxes.masks.sum(axis=(2, 3)).min(axis=1) < 4  # we drop objects with empty masks
    boxes.standing = [DOUBTFUL if open else CERTAIN for open in doubt]
    return threshold, boxes


def judge_of(row):
    return anchors.reference if hasattr(row, "suppress") else judged


def compare(name, path, program, frame, folder, timeout):
    row = ROWS[name]
    if hasattr(row, "map"):
        return maps.compare(name, row, path, program, frame, folder, timeout)
    result = Result(name, f"{frame[0]}x{frame[1]}", layout="own package's")
    image = picture(*frame)
    threshold, boxes = judge_of(row)(row, outputs_of(path, values_of(row, path, image)), image, input_size(path))
    result.candidates = len(boxes)
    result.certain, result.doubtful = boxes.standing.count(CERTAIN), boxes.standing.count(DOUBTFUL)
    png = save(image, folder)
    started = time.monotonic()
    done, frames = ask(program, path, png, folder, timeout, suppression(threshold))
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not frames:
        result.faults.append(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return result
    found = ours(frames[0])
    result.found = len(found)
    masks, boxes.masks = boxes.masks, None
    match(result, boxes, found, FULL)
    if masks is not None:
        match_fine_masks(result, boxes, (masks[:, 0], masks[:, 1]), found)
    if result.certain < 10:
        result.faults.append(f"only {result.certain} undoubted boxes: that tests nothing")
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(ROWS))
    parser.add_argument("--timeout", type=float, default=300)
    asked = parser.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    names = [name for name in asked.only if is_installed(name)]
    print(COLUMNS.format(*HEADINGS))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            path = export(name, asked.directory)
            results = [compare(name, path, asked.detect, frame, Path(folder), asked.timeout) for frame in SHAPES]
            for result in results:
                show(result)
            failed += any(result.faults for result in results)
    print(f"zoo: {len(names) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MPL-2.0
# Records what the exporters' models put out for our pictures, and what the packages make of it, for play.py.
#
#   python tests/zoo/record.py MODELS OTHERS [--only NAME...] [--all]
#
# MODELS holds what export.py made, OTHERS what others.py did. A model has one file in recorded/: its signature without the weights,
# and for each case the outputs, the means of the input and the packages' results, with the packages' versions. Recordings whose
# versions are those of the models are kept, unless --all is given.
#
# What is recorded is what matters: of the boxes those that reach the score threshold and the next ones below it, the others are 0,
# which reaches none. Numbers are rounded, to 16 significant bits or to whole steps. The packages' results are made after that, from the
# very numbers that are recorded.
import argparse
import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx

import clips
import graph
import recording
from boxes import CERTAIN, DOUBTFUL, ENOUGH, FULL, GONE, SHAPES, Result
from boxes import describe as describe_box
from export import describe

NEAR = 40  # boxes below the score threshold that are kept
STANDINGS = (CERTAIN, DOUBTFUL, GONE)
TOLERANCE = 0.004  # of the means of the input, in standard deviations of its values
HERE = Path(__file__).resolve().parent / recording.FOLDER


# ---------------------------------------------------------------- what is recorded of a file


def signature_of(path):
    """All that our program reads of an ONNX file, but for the weights."""
    facts, model = describe(path), onnx.load(path, load_external_data=False)
    for ends, named in ((model.graph.input, facts["inputs"]), (model.graph.output, facts["outputs"])):
        for value, tensor in zip(ends, named):
            dims = value.type.tensor_type.shape.dim
            tensor["shape"] = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "open" for dim in dims]
    return {
        **{key: facts[key] for key in ("inputs", "outputs", "metadata")},
        "opset": facts["opset"]["ai.onnx"],
        "ir_version": model.ir_version,
        "producer": [model.producer_name, model.producer_version],
        "operators": [name for name in facts["operators"] if name in ("Exp", "GridSample")],
        "activations": activations(model.graph),
    }


def activations(network):
    """The outputs that a softmax or a sigmoid makes."""
    makers = {name: node for node in network.node for name in node.output}
    found = {}
    for output in network.output:
        node = makers.get(output.name)
        while node and node.op_type in ("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            node = makers.get(node.input[0])
        if node and node.op_type in ("Softmax", "Sigmoid"):
            found[output.name] = node.op_type
    return found


# ---------------------------------------------------------------- what is recorded of outputs


def rounded(values):
    """To 16 significant bits, where there are more."""
    if values.dtype != np.float32:
        return values
    return ((np.ascontiguousarray(values).view(np.uint32) + 0x80) & np.uint32(0xFFFFFF00)).view(np.float32)


class Step:
    """Whole numbers of that many bits, of a step that is a power of two."""

    def __init__(self, bits):
        self.most, self.dtype = 2 ** (bits - 1) - 1, np.int8 if bits <= 8 else np.int16

    def __call__(self, values):
        step = 2.0 ** np.ceil(np.log2(max(np.abs(values).max(), 1e-6) / self.most))
        return (values / step).round().astype(self.dtype), float(step)


class Case:
    """One run of our program, and what it is compared with."""

    def __init__(self, frame, size, seed, kind, **about):
        self.about = {"frame": frame, "size": size, "seed": seed, "kind": kind, **about}
        self.arrays = {}

    def see(self, values, sides=None):
        """The input that the outputs are for."""
        values = np.asarray(values, np.float32)
        self.arrays["seen"] = graph.means(values).astype(np.float32)
        self.about["tolerance"] = round(TOLERANCE * float(values.std()), 6)
        self.about["sides"] = {name: np.asarray(side).tolist() for name, side in (sides or {}).items()}

    def put_out(self, outputs, dtypes, steps):
        """Takes the outputs, with their batch axis, and gives them as they are after rounding."""
        given, self.about["steps"] = {}, {}
        for name, values in outputs.items():
            dtype = graph.DTYPES[dtypes[name]][1]
            if name in steps:
                whole, step = steps[name](values)
                self.arrays[f"out {name}"], self.about["steps"][name] = whole, step
                given[name] = (whole * np.float32(step)).astype(dtype)
            else:
                given[name] = self.arrays[f"out {name}"] = rounded(values.astype(dtype))
        return given

    def expect(self, boxes, names):
        """The packages' boxes."""
        own = {"corners": np.float32, "scores": np.float32, "classes": np.int16, "points": np.float32, "quads": np.float32}
        for name, dtype in own.items():
            if getattr(boxes, name) is not None:
                self.arrays[name] = np.asarray(getattr(boxes, name), dtype)
        self.arrays["standing"] = np.array([STANDINGS.index(own) for own in boxes.standing], np.uint8)
        for name in names:
            self.arrays[name] = getattr(boxes, name)
        return self


def lowest(scores, threshold):
    """The score that some more boxes reach than the threshold."""
    ranked = np.sort(scores[scores < threshold])[::-1]
    return float(ranked[min(NEAR, len(ranked)) - 1]) if len(ranked) else threshold


def as_float(outputs):
    return [values[0].astype(np.float32) for values in outputs.values()]


# ---------------------------------------------------------------- Ultralytics


def thin(model, layout, raw, threshold):
    """The output with zeros where nothing matters: rows, and scores of classes."""
    count, lies = len(model.labels), layout.endswith("rows") or layout.startswith("rtdetr")
    table = raw.copy() if lies else raw.T.copy()
    scores = table[:, 4:5] if table.shape[1] < 4 + count or "rows" in layout else table[:, 4 : 4 + count]
    best = scores.max(axis=1)
    low = lowest(best, threshold)
    table[best < low] = 0
    scores[scores < low / 2] = 0
    return table if lies else table.T


def record_detector(model, signature, frame, size, properties):
    from pictures import picture
    from reference import PICTURES, infer, reading, values_of

    names = [tensor["name"] for tensor in signature["outputs"]]
    dtypes = {tensor["name"]: tensor["dtype"] for tensor in signature["outputs"]}
    for seed in PICTURES:
        image, result = picture(*frame, seed), Result(model.name, "")
        values = values_of(model, image, size)
        raw, *others = infer(model, values)
        threshold, _ = reading(result, model, [raw, *others], frame, size)
        case = Case(frame, size, seed, "boxes", threshold=threshold, infer=properties, layout=result.layout)
        case.see(values)
        thinned = [thin(model, result.layout, raw, threshold), *others]
        outputs = {name: values[None] for name, values in zip(names, thinned)}
        outputs = case.put_out(outputs, dtypes, {name: Step(8) for name in names[1:]})
        _, boxes = reading(result, model, as_float(outputs), frame, size, threshold)
        if result.layout in ("channels first", "pose columns", "mask columns"):
            result.faults += suppressed_otherwise(boxes, as_float(outputs)[0], threshold, len(model.labels))
        if result.certain >= ENOUGH:
            break
    if result.faults or result.certain < ENOUGH:
        raise ValueError(f"{model.name}: {result.certain} undoubted boxes; {result.faults}")
    return case.expect(boxes, [] if boxes.masks is None else ["masks", "open_pixels"])


def suppressed_otherwise(boxes, raw, threshold, classes):
    """Ultralytics' own suppression must keep what is certain, and nothing that is gone."""
    import torch
    from reference import IOU_THRESHOLD
    from ultralytics.utils.nms import non_max_suppression

    limits = {"nc": classes, "max_det": 300, "max_time_img": 600}
    _, kept = non_max_suppression(torch.from_numpy(raw)[None], threshold, IOU_THRESHOLD, return_idxs=True, **limits)
    kept = np.isin(boxes.anchors, kept[0].numpy())
    for index in np.nonzero(kept != (np.array(boxes.standing) == CERTAIN))[0]:
        if boxes.standing[index] != DOUBTFUL:
            yield f"Ultralytics {'keeps' if kept[index] else 'drops'} {describe_box(boxes, index)}"


def record_classifier(model, signature, frame):
    import ast

    from classes import transformed
    from pictures import picture
    from reference import infer

    *_, side = ast.literal_eval(model.facts["metadata"]["imgsz"])
    values = transformed(picture(*frame, 0), side, False)
    (output,) = signature["outputs"]
    case = Case(frame, (side, side), 0, "classes", layout="classify")
    case.see(values)
    case.put_out({output["name"]: infer(model, values)[0][None]}, {output["name"]: output["dtype"]}, {})
    return case


def record_model(folder, name):
    """All cases of one of Ultralytics' models."""
    import torch

    from reference import Model

    class Exact(Model):
        """Of a recording our program has the very numbers, also of half precision."""

        tolerance = FULL

    torch.set_num_threads(1)
    model = Exact(folder / f"{name}.onnx", json.loads((folder / f"{name}.json").read_text()))
    signature = signature_of(model.path)
    if model.task == "classify":
        cases = [record_classifier(model, signature, frame) for frame in SHAPES]
    else:
        wanted = [(frame, *one) for frame in SHAPES for one in model.input_sizes(frame)]
        cases = [record_detector(model, signature, *one) for one in wanted]
    return keep(name, signature, cases, model.facts["stamp"]["packages"], recording.command_of(name))


# ---------------------------------------------------------------- other packages


def thin_other(row, outputs, threshold):
    """The same of the other packages' outputs."""
    outputs = {name: values.copy() for name, values in outputs.items()}
    logits = outputs.get("logits", outputs.get("labels"))
    if hasattr(row, "suppress"):
        import torch

        best = row.best(*row.split({name: torch.from_numpy(values) for name, values in outputs.items()})).numpy()
        gone = best < lowest(best, threshold)
        for values in outputs.values():
            np.moveaxis(values, values.shape.index(len(gone)), 0)[gone] = 0
    elif logits.ndim == 3:
        scores = 1 / (1 + np.exp(-logits[0].astype(np.float64)))
        low = lowest(scores.ravel(), threshold)
        gone = scores.max(axis=1) < low
        logits[0][scores < low / 2] = -20
        for values in outputs.values():
            if values is not logits:
                values[0, gone] = 0
    return outputs


def record_other(row, path, signature, frame):
    import torch

    import others
    from networks import input_size, outputs_of
    from pictures import picture

    image, size = picture(*frame, 0), input_size(path)
    values = others.values_of(row, path, image)
    outputs = {name: value.numpy() for name, value in outputs_of(path, values).items()}
    dtypes = {tensor["name"]: tensor["dtype"] for tensor in signature["outputs"]}
    given = {"orig_target_sizes": [list(size)], "scale_factor": [[1.0, 1.0]]}
    sides = {tensor["name"]: given[tensor["name"]] for tensor in signature["inputs"] if len(tensor["shape"]) != 4}
    if hasattr(row, "map"):
        import maps

        case = Case(frame, size, 0, "map", preprocess=maps.PREPROCESS, nms=row.nms, classes=row.classes)
        case.see(values, sides)
        steps = {} if signature["outputs"][0]["dtype"] == "INT64" else {signature["outputs"][0]["name"]: Step(12)}
        outputs = case.put_out(outputs, dtypes, steps)
        wanted = row.map({name: torch.from_numpy(values) for name, values in outputs.items()}, size)
        case.arrays["wanted"] = wanted.astype(np.float32 if row.classes is None else np.int16)
        if row.classes is None:
            case.arrays["ramp"] = maps.ramp().astype(np.float32)
        return case
    judge = others.judge_of(row)
    tensors = lambda: {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in outputs.items()}
    threshold, _ = judge(row, tensors(), image, size)
    case = Case(frame, size, 0, "fine boxes" if "masks" in outputs else "boxes", threshold=threshold, layout="own package's")
    case.see(values, sides)
    outputs = case.put_out(thin_other(row, outputs, threshold), dtypes, {"masks": Step(8)} if "masks" in outputs else {})
    _, boxes = judge(row, tensors(), image, size, threshold)
    if boxes.standing.count(CERTAIN) < 10:
        raise ValueError(f"{path.stem}: too few undoubted boxes")
    if boxes.masks is not None:
        case.arrays["at_frame"], case.arrays["at_detail"] = boxes.masks[:, 0], boxes.masks[:, 1]
    return case.expect(boxes, [])


def record_package(folder, name):
    """All cases of a model of another package."""
    import torch

    import others

    torch.set_num_threads(1)
    path = others.export(name, folder)
    signature = signature_of(path)
    cases = [record_other(others.ROWS[name], path, signature, frame) for frame in SHAPES]
    return keep(name, signature, cases, others.stamp(name)["packages"], f"tests/zoo/others.py OTHERS --only {name}")


# ---------------------------------------------------------------- torchvision's transform


TRANSFORM = ("torchvision", "pillow")


def record_input():
    """The values that torchvision makes of the pictures."""
    from classes import INPUT, transformed
    from pictures import picture

    count = 3 * INPUT * INPUT
    signature = {
        "inputs": [{"name": "images", "dtype": "FLOAT", "shape": [1, 3, INPUT, INPUT]}],
        "outputs": [{"name": "output0", "dtype": "FLOAT", "shape": [1, count]}],
        "metadata": {"task": "classify", "names": str({i: str(i) for i in range(count)})},
        "opset": 17,
        "ir_version": 8,
        "producer": ["", ""],
    }
    cases = [Case(frame, (INPUT, INPUT), 0, "input", layout="input") for frame in SHAPES]
    for case, frame in zip(cases, SHAPES):
        case.arrays["wanted"] = transformed(picture(*frame, 0), INPUT, True).ravel().astype(np.float32)
    return keep("torchvision-transform", signature, cases, versions_of(*TRANSFORM), "v2.Compose([Resize(32), CenterCrop(32)])")


# ---------------------------------------------------------------- clips


PREDICT = ("ultralytics", "torch", "onnxruntime", "opencv-python-headless")  # what Ultralytics' predict depends on


def record_clip(task, clip, network):
    """What Ultralytics' predict finds in the first frames of a clip."""
    from video import predict

    video, file = clips.files_of(clip, network)
    objects = predict(file, task, [str(video)])[: clips.MOST if clip == "sample" else None]
    if task == "classify":
        objects = [frame[:1] for frame in objects]
    objects = json.loads(json.dumps(objects), parse_float=lambda text: round(float(text), 5))
    about = {"model": f"video-{task}", "task": task, "clip": clip, "network": network, "hash": clips.hash_of(clip, network)}
    path = HERE / f"video-{task}.rec"
    command = f"YOLO(MODEL).predict(CLIP); tests/zoo/record.py MODELS OTHERS --only video-{task}"
    recording.write(path, {**about, "command": command, "versions": versions_of(*PREDICT), "objects": objects}, {})
    return f"video-{task}: {len(objects)} frames, {path.stat().st_size / 1e3:.0f} kB"


def versions_of(*packages):
    return {package: version(package) for package in packages}


# ---------------------------------------------------------------- files


def keep(name, signature, cases, versions, made):
    """Writes the file, and the pictures that it is for; returns a line for the log."""
    import cv2

    from pictures import picture

    for case in cases:
        frame, seed = case.about["frame"], case.about["seed"]
        png = HERE / "{}x{}-{}.png".format(*frame, seed)
        if not png.exists():
            image = cv2.cvtColor(picture(*frame, seed), cv2.COLOR_RGB2BGR)
            cv2.imwrite(str(png), image, [cv2.IMWRITE_PNG_COMPRESSION, 9])
    command = f"{made.removesuffix(';')}; tests/zoo/record.py MODELS OTHERS --only {name}"
    about = {"model": name, "command": command, "versions": versions, "signature": signature, "cases": [case.about for case in cases]}
    arrays = {f"{number} {key}": values for number, case in enumerate(cases) for key, values in case.arrays.items()}
    path = HERE / f"{name}.rec"
    recording.write(path, about, arrays)
    return f"{name}: {len(cases)} cases, {path.stat().st_size / 1e3:.0f} kB"


def recorded_versions(name):
    try:
        about, _ = recording.read(HERE / f"{name}.rec")
    except FileNotFoundError:
        return None
    is_old = "clip" in about and about["hash"] != clips.hash_of(about["clip"], about["network"])
    return about["versions"] | ({"clip or network": "another"} if is_old else {})


def wanted(name, versions, all_of_them):
    """Whether a model is to be recorded, and says why."""
    there = recorded_versions(name)
    if there is not None and recording.is_of_another_row(name, recording.read(HERE / f"{name}.rec")[0]):
        print(f"record: {name} is recorded again: its row is another", flush=True)
        return True
    if there == versions and not all_of_them:
        return False
    if there is not None and there != versions:
        names = sorted(there.keys() | versions.keys())
        changed = (f"{name} {there.get(name)} -> {versions.get(name)}" for name in names if there.get(name) != versions.get(name))
        print(f"record: {name} is recorded again: {', '.join(changed)}", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, metavar="MODELS")
    parser.add_argument("others", type=Path, metavar="OTHERS")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    HERE.mkdir(exist_ok=True)
    asked.others.mkdir(parents=True, exist_ok=True)
    import others

    jobs = []
    for path in sorted(asked.models.glob("*.json")):
        jobs.append((path.stem, json.loads(path.read_text())["stamp"]["packages"], partial(record_model, asked.models, path.stem)))
    for name in filter(others.is_installed, others.ROWS):
        jobs.append((name, others.stamp(name)["packages"], partial(record_package, asked.others, name)))
    jobs.append(("torchvision-transform", versions_of(*TRANSFORM), record_input))
    jobs += [(f"video-{row[0]}", versions_of(*PREDICT), partial(record_clip, *row[:3])) for row in clips.TASKS]
    known = {name for name, *_ in jobs} | set(others.ROWS)
    for path in HERE.glob("*.rec"):
        if path.stem not in known:
            print(f"record: {path.name} is of no row any more")
            path.unlink()
    jobs = [job for name, versions, job in jobs if (not asked.only or name in asked.only) and wanted(name, versions, asked.all)]
    failed = 0
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), multiprocessing.get_context("spawn")) as pool:
        for made in [pool.submit(job) for job in jobs]:
            error = made.exception()
            failed += error is not None
            print(f"record: {made.result() if error is None else f'{type(error).__name__}: {error}'}", flush=True)
    print(f"record: {len(jobs) - failed} recorded, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

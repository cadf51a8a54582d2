# SPDX-License-Identifier: MPL-2.0
# Maps of Hugging Face's transformers: classes of pixels and depths, against its own post-processing.
#
# Imported by others.py; not run by itself. The pixels are read from the picture that our program draws: with mask-alpha=1 it
# shows nothing but the map.
import json
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from matplotlib import colormaps

from networks import SIZE, input_size, normalised, outputs_of, spread, to_onnx
from pictures import picture, save, tensor
from reference import Result

EQUAL = 0.995  # of the pixels
SHARE = 1e-3  # of all pixels that a class may have more or less
RANGE = 1e-4  # of the depths between minimum and maximum, by which either may be off
CLASSES = 19
PREPROCESS = "mean=0.485,0.456,0.406 std=0.229,0.224,0.225 resize=stretch"


class Segformer:
    """Logits at a quarter of the input's size, or class ids at its size."""

    packages = ("transformers",)
    nms = ""

    def __init__(self, ids=False):
        self.ids = ids

    def export(self, path):
        import transformers

        network = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=CLASSES)).eval()
        head = network.decode_head
        spread(head.classifier, 1.0, 0.0)
        with torch.no_grad():
            # What is in the picture decides, not what the channels have in common.
            head.classifier.weight -= head.classifier.weight.mean(dim=1, keepdim=True)
            head.classifier.bias.zero_()
        if self.ids:
            export(network, lambda found: self.classes(found.logits), path, SIZE, "classes")
        else:
            export(network, lambda found: found.logits, path, SIZE, "logits")

    def classes(self, logits):
        return torch.nn.functional.interpolate(logits, (SIZE, SIZE), mode="bilinear").argmax(1)

    def map(self, outputs, size):
        if self.ids:
            return outputs["classes"][0].numpy()
        from transformers import SegformerImageProcessor

        given = SimpleNamespace(logits=outputs["logits"])
        return SegformerImageProcessor().post_process_semantic_segmentation(given, target_sizes=[size[::-1]])[0].numpy()

    def judge(self, result, wanted, given, drawn):
        """Each class has its share, and a colour of its own in the picture."""
        shares = {region["class-id"]: region["share"] for region in given["regions"]}
        ids, counts = np.unique(wanted, return_counts=True)
        result.candidates, result.certain, result.found = CLASSES, int((counts > 0.01 * wanted.size).sum()), len(shares)
        apart = [abs(shares.get(id, 0.0) - (wanted == id).mean()) for id in range(CLASSES)]
        result.worst_score = float(max(apart))
        if result.worst_score > SHARE:
            result.faults.append(f"class {int(np.argmax(apart))} has not its share of the pixels")
        pixels, colours = at_frame(wanted, drawn), drawn @ np.array([1, 256, 65536])
        own = {id: np.bincount(np.unique(colours[pixels == id], return_inverse=True)[1]).argmax() for id in ids}
        own = {id: np.unique(colours[pixels == id])[at] for id, at in own.items()}
        if len(set(own.values())) < len(own):
            result.faults.append(f"classes share colours: {own}")
        result.worst_mask = float(np.mean([own[id] == colour for id, colour in zip(pixels.flat, colours.flat)]))


class DepthAnything:
    """A depth for each pixel of the input."""

    packages = ("transformers",)
    nms = "layout=depth"

    def export(self, path):
        import transformers

        stages = [f"stage{layer}" for layer in range(1, 5)]
        small = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 3, "out_features": stages, "image_size": 322}
        backbone = transformers.Dinov2Config(**small, apply_layernorm=True, reshape_hidden_states=False)
        neck = {"reassemble_hidden_size": 96, "neck_hidden_sizes": [12, 24, 48, 96]}
        config = transformers.DepthAnythingConfig(backbone_config=backbone, **neck)
        network = transformers.DepthAnythingForDepthEstimation(config).eval()
        for layer in [*network.neck.modules(), *network.head.modules()]:
            if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
                spread(layer, 0.5, 0.0)
        network.head.conv3.bias.data.fill_(1.0)  # depths below 0 are cut off
        export(network, lambda found: found.predicted_depth, path, 322, "predicted_depth")  # a multiple of 14

    def map(self, outputs, size):
        from transformers import DPTImageProcessor

        given = SimpleNamespace(predicted_depth=outputs["predicted_depth"])
        return DPTImageProcessor().post_process_depth_estimation(given, target_sizes=[size[::-1]])[0]["predicted_depth"].numpy()

    def judge(self, result, wanted, given, drawn):
        """The range, and the step of 256 that each pixel's colour is for, which may be one off."""
        low, high = float(wanted.min()), float(wanted.max())
        apart = max(abs(given["minimum"] - low), abs(given["maximum"] - high)) / (high - low)
        result.worst_score = apart
        if not apart <= RANGE:
            result.faults.append(f"depths from {given['minimum']} to {given['maximum']}, not {low} to {high}")
        steps = ((at_frame(wanted, drawn) - low) / (high - low) * 65535).round().astype(int) >> 8
        result.candidates, result.found = 256, len(np.unique(steps))
        result.certain = result.found
        anchors = colormaps["inferno"](np.linspace(0, 1, 10))[:, :3] * 255
        ramp = np.stack([np.interp(np.linspace(0, 9, 256), range(10), anchors[:, i]) for i in range(3)], 1)
        nearest = cv2.BFMatcher().match(drawn.reshape(-1, 3).astype(np.float32), ramp.astype(np.float32))
        off = np.abs(np.array([match.trainIdx for match in nearest]).reshape(steps.shape) - steps)
        result.worst_point = float(off.max())
        result.worst_mask = float((off <= 1).mean())


class Wrapped(torch.nn.Module):
    def __init__(self, network, output):
        super().__init__()
        self.network, self.output = network, output

    def forward(self, pixel_values):
        return self.output(self.network(pixel_values=pixel_values))


def export(network, output, path, size, name):
    names = {"input_names": ["pixel_values"], "output_names": [name]}
    to_onnx(Wrapped(network, output), (torch.rand(1, 3, size, size),), str(path), **names, opset_version=17)


def at_frame(values, drawn):
    """The pixel of the map that has the middle of each of the picture."""
    rows, columns = (((np.arange(many) + 0.5) * of / many).astype(int) for many, of in zip(drawn.shape, values.shape))
    return values[rows][:, columns]


def compare(name, row, path, program, frame, folder, timeout):
    """Runs both sides on one picture."""
    result = Result(name, f"{frame[0]}x{frame[1]}", layout="own package's")
    image, size = picture(*frame), input_size(path)
    wanted = row.map(outputs_of(path, normalised(tensor(image, size, (0, 0, *size)))), size)
    folder = Path(tempfile.mkdtemp(dir=folder))
    png, out, lines = save(image, folder), folder / "drawn", folder / "maps.jsonl"
    command = [program, "detect", str(png), "--model", str(path), "--json", str(lines), "--output", str(out)]
    command += ["--preprocess", PREPROCESS, "--nms", f"mask-alpha=1 {row.nms}"]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not lines.exists():
        result.faults.append(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return result
    (given,) = json.loads(lines.read_text())["maps"]
    if (given["map-width"], given["map-height"]) != size:
        result.faults.append(f"the map is {given['map-width']}x{given['map-height']}, not {size[0]}x{size[1]}")
    drawn = cv2.imread(str(next(out.rglob("*.png"))))[:, :, ::-1].astype(int)
    row.judge(result, wanted, given, drawn)
    if result.worst_mask < EQUAL:
        result.faults.append(f"only {result.worst_mask:.4f} of the pixels are as they should be")
    if result.certain < 5:
        result.faults.append(f"only {result.certain} values in the map: that tests nothing")
    return result

#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What a user might write with SAHI instead of slices of trtpreprocess: large frames in slices through the same network.

    sahi_chain.py MODEL.onnx [--frames FILE | --images FOLDER] [--width 3840] [--height 2160] [--truth JSON]
                  [--slice-size 640x640] [--slice-overlap 0.2] [--no-slice-frame] [--postprocess GREEDYNMM]
                  [--batches 1,8,0] [--count 8] [--seconds 4] [--repeats 3] [--device cuda]

Frames are those of a file, one dense NV12 frame after the other, or pictures of that size in a folder, or else noise, in
which a model finds nothing or too much. Each goes through get_sliced_prediction of the package sahi, alone, as its users
call it: slices of that size and overlap, the whole frame after them unless --no-slice-frame is given, and what several
slices have found is merged.

Whatever SAHI leaves to its user is done in its favour. Frames are made RGB in host memory before, where SAHI wants them;
only get_sliced_prediction is timed. Slices go to the GPU from pinned memory as bytes. There the letterbox, the network in
f16 and the decoding of its head are one CUDA graph for each number of slices, and one torchvision call suppresses boxes
of all of them. There is no maximum of boxes. Each batch size (0: all slices at once) is tried, with the merging on the
GPU that SAHI takes by itself there, and with that by numpy; the figure is that of the fastest way.

Prints one line of JSON: medians of the repeats. With --truth, the JSON of tests/data/render.py whose frame 0 is the first
frame of the file, it has recall and precision too. Needs PyTorch, torchvision, numpy, and sahi with what it needs.
"""

import argparse
import json
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as functional
from torchvision.ops import batched_nms

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_chain import IOU, SCORE, Letterbox, Network, captured

try:
    import sahi
    from sahi.models.base import DetectionModel
    from sahi.postprocess.backends import set_postprocess_backend
    from sahi.predict import get_sliced_prediction
    from sahi.prediction import ObjectPrediction
    from sahi.slicing import get_slice_bboxes
    from sahi.utils.compatibility import fix_full_shape_list, fix_shift_amount_list
except ImportError as error:
    raise SystemExit(f"The package sahi cannot be imported: {error}.") from error

# ---------------------------------------------------------------------------- the model, as SAHI wants it


class Batch:
    """So many pictures of one size through the network, with everything that has fixed sizes as one CUDA graph."""

    def __init__(self, network, device, count, height, width):
        side, is_cuda = network.side, device == "cuda"
        self.scale = min(side / width, side / height)
        self.size = (round(height * self.scale), round(width * self.scale))
        self.top, self.left = (side - self.size[0]) // 2, (side - self.size[1]) // 2
        self.network = network
        self.host = torch.empty((count, height, width, 3), dtype=torch.uint8, pin_memory=is_cuda)
        self.bytes = torch.zeros_like(self.host, device=device)
        pictures = torch.full((count, 3, side, side), 114 / 255, device=device, dtype=network.kind)
        self.pictures = pictures.to(memory_format=torch.channels_last)
        self.offset = torch.tensor([self.left, self.top] * 2, device=device)
        self.limits = torch.tensor([width, height] * 2, device=device)
        self.replay = captured(self.work, device)

    def work(self):
        """Corners of all rows in pixels of the slice, their scores and their classes."""
        rgb = self.bytes.permute(0, 3, 1, 2).float()
        if tuple(rgb.shape[2:]) != self.size:
            rgb = functional.interpolate(rgb, self.size, mode="bilinear", align_corners=False)
        self.pictures[:, :, self.top:self.top + self.size[0], self.left:self.left + self.size[1]].copy_(rgb / 255)
        rows = self.network(self.pictures).float()
        if rows.shape[1] < rows.shape[2]:  # columns, without objectness
            rows = rows.transpose(1, 2)
            scores, kinds = rows[..., 4:].max(2)
        else:
            scores, kinds = rows[..., 5:].max(2)
            scores = scores * rows[..., 4]
        self.kinds = rows.shape[2] - 4
        half = rows[..., 2:4] / 2
        corners = torch.cat([rows[..., :2] - half, rows[..., :2] + half], 2)
        corners = ((corners - self.offset) / self.scale).clamp(min=0).minimum(self.limits)
        return corners, scores, kinds

    def __call__(self, images):
        """Of each image its objects: left, top, right, bottom, score, class."""
        host = self.host.numpy()
        for place, image in zip(host, images):
            place[:] = image
        self.bytes.copy_(self.host, non_blocking=True)
        corners, scores, kinds = self.replay()
        image, row = (scores > SCORE).nonzero(as_tuple=True)
        corners, scores, kinds = corners[image, row], scores[image, row], kinds[image, row]
        kept = batched_nms(corners, scores, image * self.kinds + kinds, IOU)
        found = torch.cat([corners, scores[:, None], kinds[:, None], image[:, None]], 1)[kept].cpu().numpy()
        return [found[found[:, 6] == number, :6] for number in range(len(images))]


class Sliced(DetectionModel):
    """The network as a model of SAHI's."""

    def __init__(self, network, device):
        self.batches = {}
        super().__init__(model=network, device=device, confidence_threshold=SCORE)

    def set_device(self, device=None):
        # SAHI's own way changes CUDA_VISIBLE_DEVICES.
        self.device = device

    def set_model(self, model, **_kwargs):
        self.model = model

    def perform_batch_inference(self, images):
        key = (len(images), *images[0].shape[:2])
        if key not in self.batches:
            self.batches[key] = Batch(self.model, self.device, *key)
        self._original_predictions = self.batches[key](images)

    def perform_inference(self, image):
        self.perform_batch_inference([image])

    def _create_object_prediction_list_from_original_predictions(self, shift_amount_list=None, full_shape_list=None):
        shifts, shapes = fix_shift_amount_list(shift_amount_list), fix_full_shape_list(full_shape_list)
        self._object_prediction_list_per_image = [
            [ObjectPrediction(bbox=row[:4], score=row[4], category_id=int(row[5]), shift_amount=shift, full_shape=shape)
             for row in rows.tolist()]
            for rows, shift, shape in zip(self._original_predictions, shifts, shapes)]


# ---------------------------------------------------------------------------- frames


def frames_of(options):
    """Frames as RGB in host memory, each an array by itself."""
    height, width, count = options.height, options.width, options.count
    if options.frames:
        nv12 = np.fromfile(options.frames, np.uint8, count * height * width * 3 // 2)
        nv12 = nv12.reshape(-1, height * 3 // 2, width)
        if not len(nv12):
            raise SystemExit(f"{options.frames} is empty.")
        return [rgb_of(torch.from_numpy(frame), height, width) for frame in nv12]
    if options.images:
        from PIL import Image
        names = sorted(name for name in os.listdir(options.images) if name.lower().endswith((".png", ".jpg", ".jpeg")))
        made = [np.array(Image.open(os.path.join(options.images, name)).convert("RGB")) for name in names[:count]]
        if not made or any(frame.shape != (height, width, 3) for frame in made):
            raise SystemExit(f"{options.images} must have pictures of {width}x{height}, and no others.")
        return made
    generator = np.random.default_rng(1)
    return [generator.integers(0, 256, (height, width, 3), np.uint8) for _ in range(count)]


def rgb_of(nv12, height, width):
    """NV12 of BT.709, limited range, as the PyTorch chain reads it."""
    of = Letterbox(1, "cpu")
    chroma = nv12[height:].reshape(1, height // 2, width // 2, 2).permute(0, 3, 1, 2).float()
    chroma = functional.interpolate(chroma, scale_factor=2, mode="nearest")[0]
    yuv = torch.cat([nv12[None, :height].float(), chroma]) - of.offset
    rgb = (of.matrix @ yuv.flatten(1)).clamp(0, 255).round().to(torch.uint8)
    return np.ascontiguousarray(rgb.T.reshape(height, width, 3).numpy())


# ---------------------------------------------------------------------------- figures


def score(path, found):
    """Recall and precision of what was found in frames, by the rules of tests/data/score.py."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
    from score import match_pairs

    with open(path, encoding="utf-8") as file:
        truth = json.load(file)["frames"]
    right = wrong = missed = 0
    for objects, wanted in zip(found, truth):
        boxes = [dict(zip("xywh", each.bbox.to_xywh())) | {"class-id": each.category.id, "confidence": each.score.value}
                 for each in objects]
        pairs, false, free = match_pairs(boxes, wanted, 0.5)
        right, wrong, missed = right + len(pairs), wrong + len(false), missed + len(free)
    return {"recall": right / max(right + missed, 1), "precision": right / max(right + wrong, 1),
            "objects_there": right + missed}


def fps(step, frames, options):
    """The median of the repeats. All frames have their turn again and again."""
    figures = []
    for _ in range(options.repeats):
        done, begun = 0, time.perf_counter()
        while not done or time.perf_counter() < begun + options.seconds:
            step(frames[done % len(frames)])
            done += 1
        figures.append(done / (time.perf_counter() - begun))
    return float(np.median(figures))


def measure(options):
    torch.backends.cudnn.benchmark = True
    model = Sliced(Network(options.model, options.device), options.device)
    frames = frames_of(options)
    width, height = options.slice_size
    slices = len(get_slice_bboxes(
        image_height=options.height, image_width=options.width, slice_height=height, slice_width=width,
        overlap_height_ratio=options.slice_overlap, overlap_width_ratio=options.slice_overlap))

    def objects(frame, batch):
        return get_sliced_prediction(
            frame, model, slice_height=height, slice_width=width, overlap_height_ratio=options.slice_overlap,
            overlap_width_ratio=options.slice_overlap, perform_standard_pred=options.slice_frame,
            postprocess_type=options.postprocess, batch_size=batch, verbose=0).object_prediction_list

    ways, found = [], None
    for batch in sorted({min(batch or slices, slices) for batch in options.batches}):
        for backend in ("torchvision", "numpy") if options.device == "cuda" else ("numpy",):
            set_postprocess_backend(backend)
            if found is None:
                found = [objects(frame, batch) for frame in frames]
            objects(frames[0], batch)  # graphs are made at the first call
            count = len(objects(frames[0], batch))
            figure = fps(lambda frame, batch=batch: objects(frame, batch), frames, options)
            ways.append({"batch": batch, "merged_by": backend, "fps": figure, "objects_of_first": count})
    best = max(ways, key=lambda way: way["fps"])
    truth = score(options.truth, found) if options.truth else {}
    print(json.dumps({"row": "sahi", "model": options.model, "device": options.device, "torch": torch.__version__,
                      "sahi": sahi.__version__, "width": options.width, "height": options.height,
                      "slice_size": options.slice_size, "slice_overlap": options.slice_overlap, "slices": slices,
                      "pictures": slices + options.slice_frame, "postprocess": options.postprocess, "fps": best["fps"],
                      "batch": best["batch"], "merged_by": best["merged_by"], "ways": ways,
                      "of_a_clip": bool(options.frames or options.images), "frames": len(frames),
                      "objects_of_frames": [len(each) for each in found], **truth}))


def size(text):
    width, height = map(int, text.split("x"))
    return width, height


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--frames")
    parser.add_argument("--images")
    parser.add_argument("--width", type=int, default=3840)
    parser.add_argument("--height", type=int, default=2160)
    parser.add_argument("--truth")
    parser.add_argument("--slice-size", type=size, default=(640, 640))
    parser.add_argument("--slice-overlap", type=float, default=0.2)
    parser.add_argument("--slice-frame", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--postprocess", choices=("GREEDYNMM", "NMM", "NMS"), default="GREEDYNMM")
    parser.add_argument("--batches", type=lambda text: [int(each) for each in text.split(",")], default=[1, 8, 0])
    parser.add_argument("--count", type=int, default=8, help="frames at most")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    with torch.no_grad():
        measure(options)


if __name__ == "__main__":
    sys.exit(main())

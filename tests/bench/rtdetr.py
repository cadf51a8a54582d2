#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Makes a network of RT-DETR-R50's shape with random weights, as the package transformers exports it: ONNX, FP32, an open batch.

    rtdetr.py OUT.onnx [--frames FILE] [--width 1920] [--height 1080] [--side 640] [--objects 20]

`images` [N,3,side,side] -> `logits` [N,300,80], `pred_boxes` [N,300,4]. No weights are downloaded. --frames has dense NV12 frames, one after the
other; without them they are noise. Normalisations get the statistics of these pictures, as those of a trained network have them. The scores are moved
until so many objects of a picture pass a threshold of 0.25, as many as a trained model finds in a street: a tracker has as much to do.

Needs the packages torch, transformers, numpy and onnxruntime, and for --frames opencv-python-headless. Takes about a minute and 3 GB of memory.
"""

import argparse
import math
import os
import sys
from pathlib import Path

# Nobody may look for weights.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "zoo"))
from networks import SEED, spread, to_onnx  # noqa: E402  it is in that folder

PICTURES, CLASSES, THRESHOLD = 4, 80, 0.25
OUTPUTS = ("logits", "pred_boxes")


def pictures(options):
    """RGB in 0..1, stretched to the input, as the package's processor does it."""
    side, width, height = options.side, options.width, options.height
    if not options.frames:
        coarse = torch.rand(PICTURES, 3, side // 16, side // 16)
        return torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    import cv2

    frames = np.fromfile(options.frames, np.uint8).reshape(-1, height * 3 // 2, width)
    chosen = frames[:: math.ceil(len(frames) / PICTURES)]
    made = [cv2.resize(cv2.cvtColor(frame, cv2.COLOR_YUV2RGB_NV12), (side, side), interpolation=cv2.INTER_AREA) for frame in chosen]
    return torch.from_numpy(np.stack(made).transpose(0, 3, 1, 2).astype(np.float32) / 255)


def settle(network, given):
    """Gives every normalisation of channels the statistics of the pictures: those of a fresh network say nothing."""

    def take(layer, inputs):
        layer.running_mean.copy_(inputs[0].mean((0, 2, 3)))
        layer.running_var.copy_(inputs[0].var((0, 2, 3)))

    hooks = [layer.register_forward_pre_hook(take) for layer in network.modules() if hasattr(layer, "running_mean")]
    network(pixel_values=given)
    for hook in hooks:
        hook.remove()


def network_of(options, given):
    """The defaults of the package are RT-DETR-R50's: a backbone of 50 layers, a layer of attention at the coarsest scale, six of the decoder."""
    backbone = transformers.RTDetrResNetConfig(out_features=["stage2", "stage3", "stage4"])
    network = transformers.RTDetrForObjectDetection(transformers.RTDetrConfig(num_labels=CLASSES, backbone_config=backbone)).eval()
    decoder = network.model.decoder
    with torch.no_grad():
        settle(network, given)
        spread(network.model.enc_score_head, 3.0, 0.0)
        for boxes in decoder.bbox_embed:
            last = boxes.layers[-1]
            last.weight.copy_(torch.randn(last.weight.shape) * 0.1)
        # Without a bias of their own, classes are told apart by what a query has seen.
        scores = decoder.class_embed[-1]
        spread(scores, 3.0, 0.0)
        scores.bias.zero_()
        least = network(pixel_values=given).logits.flatten(1).topk(options.objects).values[:, -1]
        scores.bias.fill_(math.log(THRESHOLD / (1 - THRESHOLD)) - least.mean().item())
        found = (network(pixel_values=given).logits.sigmoid() > THRESHOLD).sum((1, 2))
    return network, found.tolist()


class Outputs(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        found = self.network(pixel_values=images)
        return tuple(getattr(found, name) for name in OUTPUTS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--frames")
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--side", type=int, default=640)
    parser.add_argument("--objects", type=int, default=20)
    options = parser.parse_args()
    if options.side % 32:
        sys.exit("The side must be a multiple of 32.")

    torch.manual_seed(SEED)
    network, found = network_of(options, pictures(options))
    part = options.out.with_suffix(".part")
    axes = {name: {0: "batch"} for name in ("images", *OUTPUTS)}
    to_onnx(Outputs(network).eval(), (torch.rand(2, 3, options.side, options.side),), str(part), input_names=["images"],
            output_names=list(OUTPUTS), dynamic_axes=axes, opset_version=17)
    part.replace(options.out)
    parameters = sum(each.numel() for each in network.parameters())
    print(f"{options.out}: {parameters / 1e6:.1f} million parameters, objects of each picture: {found}, transformers {transformers.__version__}")


if __name__ == "__main__":
    main()

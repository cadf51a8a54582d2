# SPDX-License-Identifier: MPL-2.0
# Exports networks whose batch is open, for engines of batches: tests/gpu/run.sh verifies those that TensorRT makes of them.
#
#   python tests/zoo/batches.py OUTDIR [NAME...]        all rows of ROWS, or those named
#
# The architectures are those of their packages, and no weights are downloaded: random ones are spread so that the results depend on the
# picture, as in export.py and others.py. A file is kept as long as it is there. Each is run by ONNX Runtime, once with a batch
# of three pictures and once with each by itself, because tracing may have kept the size of the batch that it saw.
import argparse
import os
import sys
from pathlib import Path

import numpy as np
import torch

import export as ultralytics
import maps
from networks import SEED, session_of, spread, to_onnx
from others import RfDetr

SIZE = 320
TASKS = ("", "-seg", "-pose", "-obb", "-cls")


def yolo(family, suffix):
    name = f"{family}{suffix}"
    ultralytics.ROWS[name] = ultralytics.row(f"{name}.yaml", dynamic=True)
    return lambda path: ultralytics.export(name, path.parent)


def traced(network, output, names, size=SIZE):
    """Of a network of transformers: what `output` takes of its result."""

    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, images):
            return output(self.network(pixel_values=images))

    def make(path):
        axes = {name: {0: "batch"} for name in ["images", *names]}
        to_onnx(Outputs().eval(), (torch.rand(2, 3, size, size),), str(path), input_names=["images"], output_names=names,
                dynamic_axes=axes, opset_version=17)

    return make


def settle(network, size=SIZE):
    """Gives every BatchNorm the statistics of a few pictures: those of these networks are frozen at what says nothing."""

    def take(layer, given):
        layer.running_mean.copy_(given[0].mean((0, 2, 3)))
        layer.running_var.copy_(given[0].var((0, 2, 3)))

    hooks = [layer.register_forward_pre_hook(take) for layer in network.modules() if hasattr(layer, "running_mean")]
    with torch.no_grad():
        network(pixel_values=ultralytics.batch(0, 4, size))
    for hook in hooks:
        hook.remove()


def detr(family, **settings):
    def make(path):
        import transformers

        config = getattr(transformers, f"{family}Config")(num_labels=80, **settings)
        network = getattr(transformers, f"{family}ForObjectDetection")(config).eval()
        settle(network)
        decoder = network.model.decoder
        spread(network.model.enc_score_head, 3.0)
        spread(decoder.class_embed[-1], 3.0, -9.0 if family == "DFine" else -4.0)
        with torch.no_grad():
            for boxes in decoder.bbox_embed:
                last = boxes.layers[-1]
                last.weight.copy_(torch.randn(last.weight.shape) * 0.1)
        traced(network, lambda found: (found.logits, found.pred_boxes), ["logits", "pred_boxes"])(path)

    return make


def rt_detr(family):
    """With a backbone of 18 layers: the shape of RT-DETR-R18."""

    def make(path):
        from transformers import RTDetrResNetConfig

        backbone = RTDetrResNetConfig(
            depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", out_features=["stage2", "stage3", "stage4"])
        detr(family, backbone_config=backbone, encoder_in_channels=[128, 256, 512], decoder_layers=3)(path)

    return make


def segformer(path):
    traced(maps.Segformer().network(), lambda found: found.logits, ["logits"])(path)


def depth_anything(path):
    import transformers

    stages = [f"stage{layer}" for layer in range(1, 13, 3)]
    backbone = transformers.Dinov2Config(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, out_features=stages, image_size=322, apply_layernorm=True,
        reshape_hidden_states=False)
    config = transformers.DepthAnythingConfig(backbone_config=backbone, reassemble_hidden_size=384, neck_hidden_sizes=[48, 96, 192, 384])
    network = transformers.DepthAnythingForDepthEstimation(config).eval()
    for layer in [*network.neck.modules(), *network.head.modules()]:
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)):
            spread(layer, 0.5, 0.0)
    network.head.conv3.bias.data.fill_(1.0)  # depths below 0 are cut off
    traced(network, lambda found: found.predicted_depth, ["predicted_depth"], 322)(path)


ROWS = {
    "segformer": segformer,
    "depth-anything": depth_anything,
    "rt-detr": rt_detr("RTDetr"),
    "rt-detr-v2": rt_detr("RTDetrV2"),
    "d-fine": detr("DFine"),
    "deim-v2": detr("Deimv2"),
    "rf-detr": lambda path: RfDetr("RFDETRNano").export(path, dynamic_batch=True),
    **{f"{family}{suffix}": yolo(family, suffix) for family in ("yolov8n", "yolo11n", "yolo26n") for suffix in TASKS},
}


def checked(path):
    """How much outputs differ between two pictures, and between a picture in a batch and the same by itself."""
    session = session_of(path)
    given = session.get_inputs()[0]
    side = given.shape[2] if isinstance(given.shape[2], int) else SIZE
    pictures = ultralytics.batch(8, 3, side).numpy()
    together = session.run(None, {given.name: pictures})
    alone = [session.run(None, {given.name: picture[None]}) for picture in pictures]
    words = []
    for at, (output, values) in enumerate(zip(session.get_outputs(), together)):
        own = max(np.abs(values[picture] - one[at][0]).max() for picture, one in enumerate(alone)) / np.abs(values).max()
        others = np.abs(values[0] - values[1]).mean() / values.std()
        words.append(f"{output.name} {list(values.shape)}: alone {own:.1e}, other pictures {others:.2f}")
    return "; ".join(words)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(ROWS)
    if unknown:
        sys.exit(f"batches: no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    directory = asked.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["YOLO_CONFIG_DIR"] = str(directory)
    for name in asked.names or ROWS:
        path = directory / f"{name}.onnx"
        if not path.exists():
            torch.manual_seed(SEED)
            ROWS[name](path)
        print(f"batches: {name}, {path.stat().st_size / 1e6:.0f} MB; {checked(path)}", flush=True)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MPL-2.0
# Maps of Hugging Face's transformers: classes of pixels and depths, against its own post-processing.
#
# Imported by others.py; not run by itself. The pixels are read from the picture that our program draws: with mask-alpha=1 it
# shows nothing but the map.
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from matplotlib import colormaps

from boxes import Result
from mapped import ask_for_map, match_map
from networks import SIZE, input_size, normalised, outputs_of, spread, to_onnx
from pictures import picture, save, tensor

CLASSES = 19
PREPROCESS = "mean=0.485,0.456,0.406 std=0.229,0.224,0.225 resize=stretch"


class Segformer:
    """Logits at a quarter of the input's size, or class ids at its size."""

    packages = ("transformers",)
    nms = ""
    classes = CLASSES

    def __init__(self, ids=False):
        self.ids = ids

    def network(self):
        """With random weights."""
        import transformers

        network = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=CLASSES)).eval()
        head = network.decode_head
        spread(head.classifier, 1.0, 0.0)
        with torch.no_grad():
            # What is in the picture decides, not what the channels have in common.
            head.classifier.weight -= head.classifier.weight.mean(dim=1, keepdim=True)
            head.classifier.bias.zero_()
        return network

    def export(self, path):
        network = self.network()
        if self.ids:
            export(network, lambda found: self.ids_of(found.logits), path, SIZE, "classes")
        else:
            export(network, lambda found: found.logits, path, SIZE, "logits")

    def ids_of(self, logits):
        return torch.nn.functional.interpolate(logits, (SIZE, SIZE), mode="bilinear").argmax(1)

    def map(self, outputs, size):
        if self.ids:
            return outputs["classes"][0].numpy()
        from transformers import SegformerImageProcessor

        given = SimpleNamespace(logits=outputs["logits"])
        return SegformerImageProcessor().post_process_semantic_segmentation(given, target_sizes=[size[::-1]])[0].numpy()


class DepthAnything:
    """A depth for each pixel of the input."""

    packages = ("transformers",)
    nms = "layout=depth"
    classes = None

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


class Wrapped(torch.nn.Module):
    def __init__(self, network, output):
        super().__init__()
        self.network, self.output = network, output

    def forward(self, pixel_values):
        return self.output(self.network(pixel_values=pixel_values))


def export(network, output, path, size, name):
    names = {"input_names": ["pixel_values"], "output_names": [name]}
    to_onnx(Wrapped(network, output), (torch.rand(1, 3, size, size),), str(path), **names, opset_version=17)


def values_of(path, image):
    """The input that the package has the picture in."""
    size = input_size(path)
    return normalised(tensor(image, size, (0, 0, *size)))


def ramp():
    """The colours of 256 steps."""
    anchors = colormaps["inferno"](np.linspace(0, 1, 10))[:, :3] * 255
    return np.stack([np.interp(np.linspace(0, 9, 256), range(10), anchors[:, i]) for i in range(3)], 1)


def compare(name, row, path, program, frame, folder, timeout):
    """Runs both sides on one picture."""
    result = Result(name, f"{frame[0]}x{frame[1]}", layout="own package's")
    image, size = picture(*frame), input_size(path)
    wanted = row.map(outputs_of(path, values_of(path, image)), size)
    folder = Path(tempfile.mkdtemp(dir=folder))
    given = ask_for_map(result, program, path, save(image, folder), folder, timeout, PREPROCESS, row.nms)
    match_map(result, wanted, size, given, row.classes, ramp())
    return result

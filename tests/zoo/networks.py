# SPDX-License-Identifier: MPL-2.0
# What the rows of others.py have in common: random networks, and ONNX Runtime's outputs.
#
# Imported by others.py, anchors.py and maps.py; not run by itself.
import functools

import numpy as np
import onnxruntime
import torch

SEED = 20
SIZE = 320
MEAN, STD = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)

# The packages were written for this exporter, and their operators are those that their users' files have.
to_onnx = functools.partial(torch.onnx.export, dynamo=False)


def spread(layer, std, mean=-3.0):
    """Gives the logits of a fresh network another spread: as it is they are all alike, and nothing could be told apart."""
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape) * std / layer.weight.shape[1] ** 0.5)
        if layer.bias is not None:
            layer.bias.copy_(torch.randn(layer.bias.shape) * std + mean)


def normalised(values):
    """A picture in 0..1 as networks trained on ImageNet want it."""
    return (values - MEAN[:, None, None]) / STD[:, None, None]


@functools.lru_cache(1)
def session_of(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def input_size(path):
    """Width and height."""
    picture = next(given for given in session_of(path).get_inputs() if len(given.shape) == 4)
    return tuple(picture.shape[:1:-1])


def outputs_of(path, values):
    """ONNX Runtime's outputs by their names. Boxes are wanted in pixels of the input."""
    session = session_of(path)
    others = {"orig_target_sizes": np.array([input_size(path)], np.int64), "scale_factor": np.ones((1, 2), np.float32)}
    given = {one.name: others.get(one.name, values) for one in session.get_inputs()}
    return {output.name: torch.from_numpy(value) for output, value in zip(session.get_outputs(), session.run(None, given))}

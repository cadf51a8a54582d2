# SPDX-License-Identifier: MPL-2.0
# Compares what our program says of a picture as a whole with ONNX Runtime's answer for what torchvision makes of the picture, and
# the pixels of that input themselves.
#
# Imported by compare.py; not run by itself.
import ast

import numpy as np
import onnx
from onnx import TensorProto, helper

from boxes import Result
from matching import match_classes, match_input
from pictures import picture, save
from program import AS_THEY_ARE, answer
from reference import infer

INPUT = 32  # side of the input whose values are compared


def transformed(image, side, of_bytes):
    """torchvision's Resize and CenterCrop of an RGB picture as a batch in 0..1: of a PIL image, or of numbers, which are not rounded."""
    import torch
    from PIL import Image
    from torchvision.transforms import v2

    way = v2.Compose([v2.Resize(side, antialias=True), v2.CenterCrop(side)])
    if of_bytes:
        return np.asarray(way(Image.fromarray(image)), np.float32).transpose(2, 0, 1)[None] / 255
    return way(torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255).numpy()


def compare(model, program, frame, folder, timeout):
    """Probabilities of all classes of a picture. Of nearly equal classes either may be the best."""
    result = Result(model.name, f"{frame[0]}x{frame[1]}", layout=model.task)
    image = picture(*frame, 0)
    *_, side = ast.literal_eval(model.facts["metadata"]["imgsz"])
    dtype = np.float16 if model.facts["inputs"][0]["dtype"] == "FLOAT16" else np.float32
    wanted, *_ = infer(model, transformed(image, side, False).astype(dtype))
    found = answer(result, program, model.path, save(image, folder), folder, timeout, len(wanted))
    match_classes(result, wanted, model.labels, found, model.tolerance)
    return result


def echo(path):
    """Writes a model whose classes are the values of its input."""
    count = 3 * INPUT * INPUT
    node = helper.make_node("Reshape", ["images", "shape"], ["output0"])
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [1, count])
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("images", [1, 3, INPUT, INPUT]), ("output0", [1, count]))
    ]
    graph = helper.make_graph([node], "echo", ends[:1], ends[1:], [shape])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"task": "classify", "names": str({i: str(i) for i in range(count)})})
    onnx.save(model, path)


def compare_input(program, frame, folder, timeout):
    """The values of a classifier's input, which a model puts out again, against those that torchvision makes of the picture."""
    result = Result("torchvision's transform", f"{frame[0]}x{frame[1]} in {INPUT}x{INPUT}", layout="input")
    image = picture(*frame, 0)
    path = folder / "echo.onnx"
    echo(path)
    wanted = transformed(image, INPUT, True).ravel()
    match_input(result, wanted, answer(result, program, path, save(image, folder), folder, timeout, len(wanted), AS_THEY_ARE))
    return result

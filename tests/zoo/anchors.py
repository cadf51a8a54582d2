# SPDX-License-Identifier: MPL-2.0
# YOLOX, YOLO-NAS and PP-YOLOE by their own exporters. Their boxes are of anchors and still overlap: each package's own
# suppression says which stay.
#
# Imported by others.py; not run by itself.
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from absent import absent
from export import DETAIL, SHIFT, batch, calm
from networks import SEED, SIZE, input_size, to_onnx
from pictures import placement, tensor
from boxes import CERTAIN, DOUBTFUL, FULL, IOU_THRESHOLD, Boxes
from reference import choose_threshold, pardon_slivers, to_frame

CANDIDATES = (100, 300)  # how many the score threshold may leave before the suppression
TURNS = 30  # of the suppression
SIDES = [-0.3 * bin for bin in range(17)] * 4, 2.0  # logits: a side is the expectation over the bins, in cells


class YoloX:
    """Of the package yolox: its tools/export_onnx.py, its decoding and its postprocess. One box has one class: the best."""

    packages = ("yolox",)
    classes = 80

    def __init__(self, decoded=False):
        self.decoded = decoded

    def export(self, path):
        with absent("thop", "pycocotools", "tabulate"):
            from loguru import logger
            from yolox.exp import get_exp
            from yolox.tools import export_onnx

            logger.remove()
            logger.add(sys.stderr, level="ERROR")
            settings = get_exp(None, "yolox-nano")
            settings.test_size = SIZE, SIZE
            network = settings.get_model()
            head = network.head
            sides = ([0.5, 0.5, 1.0, 1.0], 0.6)  # in cells, the logarithms of width and height
            boxes, objects = ({layer: sides for layer in head.reg_preds}, {layer: (0.0, 1.5) for layer in head.obj_preds})
            awaken(network, boxes | objects | scores_of(head.cls_preds))
            with tempfile.TemporaryDirectory(dir=path.parent) as work:
                weights, made = Path(work, "weights.pth"), Path(work, "made.onnx")
                torch.save(settings.model.state_dict(), weights)
                line = ["export_onnx", "-n", "yolox-nano", "-c", str(weights), "--output-name", str(made)]
                line += ["--decode_in_inference"] if self.decoded else []
                with (
                    mock.patch("sys.argv", line),
                    mock.patch.object(export_onnx, "get_exp", lambda *_: settings),
                    mock.patch.object(torch.onnx, "_export", to_onnx, create=True),
                ):
                    export_onnx.main()
                os.replace(made, path)

    def values(self, image, size):
        ratio = min(size[0] / image.shape[1], size[1] / image.shape[0])
        place = 0, 0, int(image.shape[1] * ratio), int(image.shape[0] * ratio)
        return np.ascontiguousarray(tensor(image, size, place)[:, ::-1] * np.float32(255)), place

    def split(self, outputs):
        output = outputs["output"].clone()
        if not self.decoded:
            with absent("thop", "pycocotools", "tabulate"):
                from yolox.models import YOLOXHead
            head = YOLOXHead(self.classes, width=0.25)
            head.hw = [(SIZE // stride, SIZE // stride) for stride in head.strides]
            output = head.decode_outputs(output, dtype=output.type())
        return output[0, :, :5], output[0, :, 5:]

    def best(self, boxes, scores):
        return boxes[:, 4] * scores.amax(dim=1)

    def suppress(self, boxes, scores, threshold, overlap):
        with absent("thop", "pycocotools", "tabulate"):
            from yolox.utils import postprocess

        found = postprocess(torch.cat([boxes, scores], 1)[None], self.classes, threshold, overlap)[0]
        return torch.cat([found[:, :4], found[:, 4:5] * found[:, 5:6], found[:, 6:]], 1)


class Anchors:
    """Two outputs or one, of corners and of scores."""

    stretched = False

    def values(self, image, size):
        place = placement((image.shape[1], image.shape[0]), size, self.stretched)
        return tensor(image, size, place), place

    def best(self, boxes, scores):
        return scores.amax(dim=1)


class YoloNas(Anchors):
    """Of the package super_gradients: its export, and its post-processing with one class for a box."""

    packages = ("super_gradients",)
    # Experiment loggers, clouds, readers of data sets, metrics of trainings, and what only prints.
    unused = (
        *("albumentations", "boto3", "botocore", "coverage", "data_gradients", "einops", "imagesize", "jsonschema"),
        *("onnx_graphsurgeon", "pycocotools", "rapidfuzz", "sphinx", "stringcase", "termcolor", "torch.utils.tensorboard"),
        *("torchmetrics", "treelib"),
    )

    def __init__(self):
        self.logs = tempfile.TemporaryDirectory()

    @contextlib.contextmanager
    def imported(self):
        # It writes logs, by default into the home directory.
        os.environ.update(SUPER_GRADIENTS_LOG_DIR=self.logs.name, CONSOLE_LOG_LEVEL="ERROR")
        os.environ.update(UPLOAD_LOGS="FALSE", CRASH_HANDLER="FALSE")
        with absent(*self.unused), contextlib.redirect_stdout(io.StringIO()):
            yield

    def export(self, path):
        with self.imported():
            from super_gradients.training import models

            network = models.get("yolo_nas_s", num_classes=80)
            heads = network.heads.head1, network.heads.head2, network.heads.head3
            awaken(network, {head.reg_pred: SIDES for head in heads} | scores_of(head.cls_pred for head in heads))
            with mock.patch.object(torch.onnx, "export", to_onnx):
                network.export(str(path), preprocessing=False, postprocessing=False, input_image_shape=(SIZE, SIZE))

    def split(self, outputs):
        boxes, scores = outputs.values()
        return boxes[0], scores[0]

    def suppress(self, boxes, scores, threshold, overlap):
        with self.imported():
            from super_gradients.training.models.detection_models.pp_yolo_e import PPYoloEPostPredictionCallback

        limits = {"nms_top_k": len(boxes), "max_predictions": 300, "multi_label_per_box": False}
        callback = PPYoloEPostPredictionCallback(score_threshold=threshold, nms_threshold=overlap, **limits)
        return callback((boxes[None], scores[None]))[0]


class PpYoloe(Anchors):
    """Of the package paddledet: what its tools/export_model.py does, then paddle2onnx; and its MultiClassNMS, which is given the
    best class of each box only."""

    packages = ("paddledet", "paddlepaddle", "paddle2onnx")
    stretched = True
    # Readers of data sets, tracking, metrics, a client for downloads.
    unused = (
        *("httpx", "lap", "motmetrics", "numba", "pandas", "pycocotools", "shapely", "six", "sklearn", "terminaltables"),
        *("typeguard", "visualdl"),
    )

    def __init__(self, concat=False):
        self.concat = concat

    def export(self, path):
        with absent(*self.unused):
            import paddle
            import paddle2onnx
            import ppdet.modeling  # registers the parts below
            from ppdet.core.workspace import create, merge_config

            paddle.seed(SEED)
            merge_config(self.settings())
            network = create("PPYOLOE")
            self.awaken(network)
            for layer in network.sublayers():
                if hasattr(layer, "convert_to_deploy"):
                    layer.convert_to_deploy()
            shapes = {"image": [1, 3, SIZE, SIZE], "im_shape": [1, 2], "scale_factor": [1, 2]}
            inputs = {name: paddle.static.InputSpec(shape, name=name) for name, shape in shapes.items()}
            used = {name: inputs[name] for name in (("image",) if self.concat else ("image", "scale_factor"))}
            with tempfile.TemporaryDirectory(dir=path.parent) as work:
                traced = paddle.jit.to_static(network, input_spec=[inputs], full_graph=True)
                paddle.jit.save(traced, f"{work}/model", input_spec=[used])
                paddle2onnx.export(f"{work}/model.json", f"{work}/model.pdiparams", str(path), opset_version=13)

    def awaken(self, network):
        """The same as the function of that name. With a momentum of 0, the statistics are those of the last batch."""
        import paddle

        pictures = {"image": paddle.to_tensor(batch(4).numpy()), "im_shape": None, "scale_factor": paddle.ones([4, 2])}
        network.eval()
        for layer in network.sublayers():
            if isinstance(layer, paddle.nn.Conv2D) and layer.weight.shape[-1] > 1:
                shape = layer.weight.shape
                blurred = paddle.randn([*shape[:2], 1, 1]) + DETAIL * paddle.randn(shape)
                layer.weight.set_value(blurred / float(np.prod(shape[1:])) ** 0.5)
            elif isinstance(layer, paddle.nn.BatchNorm2D):
                layer.weight.set_value(paddle.ones_like(layer.weight))
                layer.bias.set_value(paddle.full_like(layer.bias, SHIFT))
                layer._momentum = 0.0
                layer.train()
        head, seen = network.yolo_head, {}
        layers = {layer: SIDES for layer in head.pred_reg} | scores_of(head.pred_cls)
        keep = lambda layer, _, output: seen.update({layer: output})
        hooks = [layer.register_forward_post_hook(keep) for layer in layers]
        with paddle.no_grad():
            for layer in layers:
                layer.weight.set_value(paddle.randn(layer.weight.shape) * 0.05)
                layer.bias.set_value(paddle.zeros_like(layer.bias))
            network(pictures)
            for layer, (mean, std) in layers.items():
                scale = std / seen[layer].std()
                layer.weight.set_value(layer.weight * scale)
                layer.bias.set_value(paddle.to_tensor(mean) - scale * seen[layer].mean() + paddle.zeros_like(layer.bias))
        for hook in hooks:
            hook.remove()
        network.eval()

    def settings(self):
        """PP-YOLOE+'s, with half the width of its smallest."""
        return {
            **{"norm_type": "bn", "num_classes": 80, "width_mult": 0.25, "depth_mult": 0.33, "trt": False},
            **{"exclude_nms": True, "exclude_post_process": self.concat},
            "PPYOLOE": {"backbone": "CSPResNet", "neck": "CustomCSPPAN", "yolo_head": "PPYOLOEHead", "post_process": None},
            "CSPResNet": {"return_idx": [1, 2, 3], "use_large_stem": True, "use_alpha": True},
            "CustomCSPPAN": {"out_channels": [768, 384, 192], "stage_num": 1, "block_num": 3, "act": "swish", "spp": True},
            "PPYOLOEHead": {"fpn_strides": [32, 16, 8], "eval_size": [SIZE, SIZE], "nms": None},
        }

    def split(self, outputs):
        if self.concat:
            (output,) = outputs.values()
            return output[0, :, :4], output[0, :, 4:]
        boxes, scores = outputs.values()
        return boxes[0], scores[0].T

    def suppress(self, boxes, scores, threshold, overlap):
        with absent(*self.unused):
            import paddle
            from ppdet.modeling.layers import MultiClassNMS

        best = scores * (scores == scores.amax(dim=1, keepdim=True))
        nms = MultiClassNMS(score_threshold=threshold, nms_threshold=overlap, nms_top_k=-1, keep_top_k=300)
        found = nms(*(paddle.to_tensor(value.numpy()) for value in (boxes[None], best.T[None].contiguous())))[0]
        found = torch.from_numpy(found.numpy())
        return torch.cat([found[:, 2:], found[:, 1:2], found[:, :1]], 1)


def scores_of(layers):
    return {layer: (-5.0, 1.5) for layer in layers}


def awaken(network, layers):
    """Activations that do not die out (see export.py), and layers whose outputs have that mean and spread, all in one run."""
    random, seen = torch.Generator().manual_seed(SEED), {}
    with torch.no_grad():
        network.eval()
        calm(network, random)
        for layer in network.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 1.0  # the statistics are those of the last batch
                layer.train()
        for layer in layers:
            torch.nn.init.normal_(layer.weight, std=0.05, generator=random)
            torch.nn.init.zeros_(layer.bias)
        keep = lambda layer, _, output: seen.update({layer: output})
        hooks = [layer.register_forward_hook(keep) for layer in layers]
        network(batch(4))
        for layer, (mean, std) in layers.items():
            scale = std / seen[layer].std()
            layer.weight.mul_(scale)
            layer.bias.copy_(torch.as_tensor(mean) - scale * seen[layer].mean())
        for hook in hooks:
            hook.remove()
        network.eval()


def values_of(row, path, image):
    """The input that the package has the picture in."""
    return row.values(image, input_size(path))[0]


def reference(row, outputs, image, size, threshold=None):
    """The score threshold that leaves enough, unless there is one, and the boxes of the frame that the package keeps.

    It is asked again and again, with scores and the IoU threshold as far off as two runtimes may be: what it does not keep each
    time may be in our answer, the rest must be.
    """
    _, place = row.values(image, size)
    random = torch.Generator().manual_seed(SEED)
    found, turns = {}, Counter()
    with torch.no_grad():
        boxes, scores = row.split(outputs)
        if threshold is None:
            threshold = choose_threshold(row.best(boxes, scores).numpy(), *CANDIDATES)
        for turn in range(TURNS):
            off = (torch.rand(scores.shape, generator=random) * 2 - 1) * FULL.order * (turn > 0)
            edge = (0, FULL.edge, -FULL.edge)[turn % 3]
            for *corners, score, label in row.suppress(boxes, scores + off, threshold, IOU_THRESHOLD + edge).tolist():
                found.setdefault((label, *corners), score)
                turns[label, *corners] += 1
    keys = list(found)
    table = np.array(keys).reshape(-1, 5)
    corners = to_frame(table[:, 1:], place, (image.shape[1], image.shape[0]))
    kept = Boxes(corners, np.array(list(found.values())), table[:, 0].astype(int), np.arange(len(keys)))
    kept.standing = [CERTAIN if turns[key] == TURNS else DOUBTFUL for key in keys]
    pardon_slivers(kept)
    return threshold, kept

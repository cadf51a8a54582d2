# SPDX-License-Identifier: MPL-2.0
# Exports YOLO-World and YOLOE by Ultralytics with the vectors of their words as an input, as docs/tasks/anything.md says, and compares our
# objects with those in ONNX Runtime's outputs for the same pictures and words. No weights are downloaded: networks are made from their
# yaml, and their weights and the vectors are random. Each model is asked for two lists of words.
#
#   python tests/zoo/prompts.py OUTDIR --detect PROGRAM [--only NAME...] [--timeout SECONDS]
#
# A model is kept in OUTDIR as long as the scripts and the packages stay as they are. Ends with status 1 if any model fails.
import argparse
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from boxes import SHAPES
from compare import compare
from export import PACKAGES, SEED, batch, calm, settle_batch_norm, spread
from matching import COLUMNS, HEADINGS, show
from networks import SIZE, to_onnx
from reference import Model

WORDS = ("red car", "dog", "person with a hat", "traffic light", "crack in a wall")
NUMBERS = 512  # of a vector
LOGITS = -4.0, 1.5  # mean and spread of the scores
SCRIPTS = ("prompts.py", "export.py", "networks.py", "pictures.py")


@dataclass
class Prompted:
    """A network of ultralytics.nn.tasks, what it calls its vectors, and its outputs."""

    yaml: str
    network: str
    argument: str
    outputs: tuple = ("output0",)
    task: str = "detect"


ROWS = {
    "yolov8n-worldv2": Prompted("yolov8n-worldv2.yaml", "WorldModel", "txt_feats"),
    "yoloe-11n": Prompted("yoloe-11n.yaml", "YOLOEModel", "tpe"),
    "yoloe-11n-seg": Prompted("yoloe-11n-seg.yaml", "YOLOESegModel", "tpe", ("output0", "output1"), "segment"),
}


def vectors(seed):
    """As a text model makes them, in [words, numbers]."""
    made = np.random.default_rng(seed).normal(size=(len(WORDS), NUMBERS))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def awaken(network, words):
    """Boxes of many sizes, and scores that depend on the picture and on the words. See the function of that name in export.py."""
    generator, head = torch.Generator().manual_seed(SEED), network.model[-1]
    with torch.no_grad():
        network.eval()
        calm(network, generator)
        for contrast in head.cv4:
            contrast.norm.bias.zero_()  # no word scores higher than another everywhere
        # Until the export these are the words of the network itself.
        network.txt_feats, head.nc = words, words.shape[1]
        if hasattr(head, "get_tpe"):
            network.pe = head.get_tpe(words)
        settle_batch_norm(network)
        for sequence in head.cv2:
            spread(network, sequence[-1], [-0.3 * bin for bin in range(head.reg_max)] * 4, 2.0, generator)
        for sequence in getattr(head, "cv5", ()):
            spread(network, sequence[-1], 0.0, 1.0, generator)
        for contrast in head.cv4:
            spread_scores(network, contrast, *LOGITS)


def spread_scores(network, contrast, mean, std):
    """The same of the layer that compares features with words: it has a factor and a bias."""
    seen = []
    hook = contrast.register_forward_hook(lambda _module, _inputs, output: seen.append(output.detach()))
    network(batch(4))
    hook.remove()
    scale = std / seen[-1].std()
    contrast.bias.copy_(mean - scale * (seen[-1].mean() - contrast.bias))
    contrast.logit_scale.add_(scale.log())


class WithWords(torch.nn.Module):
    """As in docs/tasks/anything.md."""

    def __init__(self, network, argument):
        super().__init__()
        self.network, self.argument = network, argument

    def forward(self, images, words):
        return self.network.predict(images, **{self.argument: words})


def stamp():
    scripts = hashlib.sha256(b"".join(Path(__file__).with_name(script).read_bytes() for script in SCRIPTS)).hexdigest()
    return {"scripts": scripts, "packages": {package: version(package) for package in PACKAGES}}


def export(name, folder):
    """Makes FOLDER/NAME.onnx and its NAME.json, unless they are there already."""
    path, note = folder / f"{name}.onnx", folder / f"{name}.json"
    if path.exists() and note.exists() and json.loads(note.read_text()) == stamp():
        return path
    from ultralytics.nn import tasks

    row = ROWS[name]
    torch.manual_seed(SEED)
    network = getattr(tasks, row.network)(row.yaml, nc=len(WORDS), verbose=False)
    words = torch.from_numpy(vectors(0))[None]
    awaken(network, words)
    head = network.model[-1]
    head.nc, head.export, head.format = words.shape[1], True, "onnx"
    names = {"input_names": ["images", row.argument], "output_names": list(row.outputs)}
    to_onnx(WithWords(network, row.argument).eval(), (torch.zeros(1, 3, SIZE, SIZE), words), str(path), opset_version=17, **names)
    note.write_text(json.dumps(stamp()))
    return path


def results_of(name, path, asked, folder):
    row = ROWS[name]
    facts = {
        "inputs": [{"dtype": "FLOAT", "shape": [1, 3, SIZE, SIZE]}],
        "metadata": {"task": row.task, "names": repr(dict(enumerate(WORDS)))},
        "stamp": {"row": {"yaml": row.yaml, "arguments": {}}},
    }
    (folder / "words.txt").write_text("\n".join(WORDS) + "\n")
    for seed, frame in zip((0, 1), SHAPES):
        given = vectors(seed)
        np.save(folder / "words.npy", given)
        model = Model(path, facts, others={row.argument: given[None]})
        properties = f"input-values={row.argument}={folder / 'words.npy'}"
        yield compare(model, asked.detect, frame, (SIZE, SIZE), properties, folder, asked.timeout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--detect", required=True, metavar="PROGRAM")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--timeout", type=float, default=300)
    asked = parser.parse_args()
    directory = asked.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    os.environ["YOLO_CONFIG_DIR"] = str(directory)
    print(COLUMNS.format(*HEADINGS))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.only:
            results = list(results_of(name, export(name, directory), asked, Path(folder)))
            for result in results:
                show(result)
            failed += any(result.faults for result in results)
    print(f"zoo: {len(asked.only) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

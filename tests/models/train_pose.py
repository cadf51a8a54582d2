#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the pose network on synthetic figures and writes it as ONNX, as Ultralytics' pose
# exports are: output0 [1,56,2100], one class, 17 keypoints.
#
# Train (a GPU, 16 cores and the minutes given; needs PyTorch, numpy and onnx):
#   python3 tests/models/train_pose.py train --minutes 7 --out tests/models
# Write the model of some weights that a training saved (same needs, no GPU):
#   python3 tests/models/train_pose.py export --from figures-pose.npz --out tests/models
# AP50 by OKS on scenes it never saw (needs numpy and onnxruntime):
#   python3 tests/models/train_pose.py evaluate tests/models/figures-pose.onnx
#
# Scenes have fixed seeds, [1, n] in training and [2, n] in the evaluation, as in train.py.
# How many fit into the time depends on the machine, and so do the weights.

import argparse
import math
import multiprocessing
import os
import sys
import time

# One thread a process: the scenes are rendered by many processes at a time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data"))
import detect
import score
import score_pose
from figures import COUNT, LABEL, MAX_FIGURES, FIELDS, SIDE, training_sample
from train import CHUNK, EVALUATION, TRAINING, Average, evaluation_samples, optimiser_of, render_chunk, show

NAME = "figures-pose"
STEPS = 50  # between two looks for fresh scenes


# ------------------------------------------------------------------- measure

def truth_of(rows):
    """Rows of training_sample -> objects as score_pose.py reads them."""
    return [{"class_id": 0, "label": LABEL, "ignore": bool(r[1]), "x": r[2] - r[4] / 2, "y": r[3] - r[5] / 2,
             "w": r[4], "h": r[5], "keypoints": r[6:].reshape(COUNT, 3).tolist()}
            for r in rows.astype(float) if r[0] > 0]


def detections_of(found):
    """Rows of detect.postprocess -> detections as score_pose.py reads them."""
    entries = detect.entries_of(found, found[:, :4], found[:, 6:].reshape(len(found), COUNT, 3), (LABEL,))
    return [score.scale_of(entry, 1, 1) for entry in entries]


def measure(results, targets):
    return score_pose.measure([(detections_of(f), truth_of(t)) for f, t in zip(results, targets)])


def evaluate(options):
    """The figures of an ONNX model, with onnxruntime."""
    images, targets = evaluation_samples(options.scenes, training_sample)
    model = detect.Model(options.model)
    results = [detect.postprocess(model(image), 0.01) for image in images]
    print(f"{len(images)} unseen scenes:", show(measure(results, targets)))


def figures_of(network, grid, images, targets, device):
    """measure() of a PyTorch network."""
    import torch
    from pose import decode
    results = []
    with torch.no_grad():
        for start in range(0, len(images), 64):
            x = torch.from_numpy(images[start:start + 64]).to(device).permute(0, 3, 1, 2).float() / 255
            for rows in decode(network(x), grid).cpu().numpy():
                results.append(detect.from_poses(rows, 0.01))
    return measure(results, targets)


# --------------------------------------------------------------------- files

def save(network, folder):
    """Weights, and the model if the onnx package is there."""
    import copy
    import onnx
    network = copy.deepcopy(network).cpu().eval()
    stem = os.path.join(folder, NAME)
    np.savez(stem + ".npz", **{k: v.numpy() for k, v in network.state_dict().items()})
    onnx.save(network.to_onnx(), stem + ".onnx")


def export(options):
    import torch
    from pose import PoseNetwork
    network = PoseNetwork()
    network.load_state_dict({k: torch.from_numpy(v) for k, v in np.load(options.source).items()})
    save(network, options.out)


# --------------------------------------------------------------------- train

class Store:
    """Scenes on the device; rendered by other processes while the training goes on."""

    def __init__(self, pool, chunks, device):
        import torch
        self.images = torch.empty(chunks * CHUNK, SIDE, SIDE, 3, dtype=torch.uint8, device=device)
        self.targets = torch.empty(chunks * CHUNK, MAX_FIGURES, FIELDS, device=device)
        jobs = ((training_sample, TRAINING, n, CHUNK) for n in range(chunks))
        self.source, self.filled, self.room = pool.imap_unordered(render_chunk, jobs), 0, chunks * CHUNK

    def fill(self, least=0):
        """Takes the chunks that are ready; waits until there are `least` scenes."""
        import torch
        while self.filled < self.room:
            try:
                images, targets = self.source.next(None if self.filled < least else 0)
            except multiprocessing.TimeoutError:
                return
            own = slice(self.filled, self.filled + CHUNK)
            self.images[own] = torch.from_numpy(images).to(self.images.device)
            self.targets[own] = torch.from_numpy(targets).to(self.images.device)
            self.filled += CHUNK

    def batch(self, count):
        """Some scenes, with their colour channels in another order: what is lighter stays so."""
        import torch
        pick = torch.randint(0, self.filled, (count,), device=self.images.device)
        images = self.images[pick].permute(0, 3, 1, 2).float() / 255
        images = images[:, torch.randperm(3)]
        return images.contiguous(memory_format=torch.channels_last), self.targets[pick]


def rate_at(progress):
    """Share of the learning rate: a short rise, then half a cosine down to 1 %."""
    if progress < 0.05:
        return max(progress / 0.05, 0.02)
    return 0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, (progress - 0.05) / 0.95))) / 2


class Keeper:
    """Saves the averaged network when it is better than before, at some moments of the training."""

    def __init__(self, folder, check, grid, device):
        self.folder, self.check, self.grid, self.device = folder, check, grid, device
        self.best, self.samples = -1.0, None

    def look(self, network, scenes=None):
        """Measures on so many unseen scenes, all at the end."""
        if self.samples is None:
            parts = self.check.get()
            self.samples = [np.concatenate([p[i] for p in parts]) for i in range(2)]
        images, targets = (s[:scenes] for s in self.samples)
        result = figures_of(network, self.grid, images, targets, self.device)
        better = result["AP50"] + result["mean OKS"] >= self.best
        if better:
            self.best = result["AP50"] + result["mean OKS"]
            save(network, self.folder)
        print(f"{len(images)} unseen scenes: {show(result)}{', saved' if better else ''}", flush=True)


def train(options):
    started = time.time()  # importing PyTorch takes its part of the minutes
    import torch
    from pose import Grid, PoseNetwork, pose_loss
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    os.makedirs(options.out, exist_ok=True)
    # The processes must exist before CUDA starts in this one.
    pool = multiprocessing.Pool(options.workers)
    jobs = [(training_sample, EVALUATION, n, CHUNK) for n in range(options.check)]
    check = pool.map_async(render_chunk, jobs, 1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = PoseNetwork().to(device).to(memory_format=torch.channels_last)
    average, grid = Average(network, 0.9995), Grid(device)
    optimiser = optimiser_of(network, options.rate)
    store, keeper = Store(pool, options.scenes // CHUNK, device), Keeper(options.out, check, grid, device)
    store.fill(min(store.room, 16 * CHUNK))
    begun, limit = time.time(), 60 * options.minutes - options.reserve
    looks, step = [0.3, 0.6, 0.8, 0.92], 0
    while (progress := (time.time() - begun) / (limit - (begun - started))) < 1:
        store.fill()
        sums = torch.zeros(5, device=device)
        for _ in range(STEPS):
            for group in optimiser.param_groups:
                group["lr"] = options.rate * rate_at(progress)
            images, targets = store.batch(options.batch)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                raw = network(images)
            losses = pose_loss(raw, targets, grid)
            optimiser.zero_grad(set_to_none=True)
            losses[0].backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimiser.step()
            average.update(network)
            sums += torch.stack(losses).detach()
            step += 1
        mean = [round(v, 4) for v in (sums / STEPS).tolist()]
        if not all(map(math.isfinite, mean)):
            raise SystemExit(f"the loss is {mean} after {step} steps")
        print(f"step {step}, {time.time() - started:.0f} s: {store.filled} scenes, loss {mean}", flush=True)
        if looks and progress >= looks[0]:
            del looks[0]
            keeper.look(average.network, 256)
    keeper.best = -1.0  # of fewer scenes; the last weights are those to keep
    keeper.look(average.network)
    pool.terminate()
    print(f"{step} steps of {options.batch}, {time.time() - started:.0f} s in all")


def main():
    parser = argparse.ArgumentParser(description="Trains, exports and evaluates the pose network.")
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("train")
    sub.add_argument("--out", required=True)
    sub.add_argument("--minutes", type=float, default=7, help="when to be done, all included")
    sub.add_argument("--reserve", type=float, default=25, help="seconds of that for the last evaluation")
    sub.add_argument("--batch", type=int, default=128)
    sub.add_argument("--rate", type=float, default=4e-3)
    sub.add_argument("--workers", type=int, default=14)
    sub.add_argument("--scenes", type=int, default=96000, help="maximum to render, 317 kB each on the GPU")
    sub.add_argument("--check", type=int, default=16, help="chunks of 64 unseen scenes")
    sub.set_defaults(run=train)
    sub = commands.add_parser("export")
    sub.add_argument("--from", dest="source", required=True)
    sub.add_argument("--out", required=True)
    sub.set_defaults(run=export)
    sub = commands.add_parser("evaluate")
    sub.add_argument("model")
    sub.add_argument("--scenes", type=int, default=256)
    sub.set_defaults(run=evaluate)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

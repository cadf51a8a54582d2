#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
# Trains the test detector on synthetic scenes and writes the four ONNX models.
#
# Train (a GPU, 16 cores and about 10 minutes; needs PyTorch, numpy and onnx), then write
# shapes.onnx and the models made from it:
#   python3 tests/models/train.py train --out tests/models
# Only remake the three others from shapes.onnx (needs numpy and onnx):
#   python3 tests/models/train.py export --from tests/models/shapes.onnx
# Write one of them for inputs of another size (needs numpy and onnx):
#   python3 tests/models/train.py resize --from tests/models/shapes-f16.onnx --side 640 --out shapes-640-f16.onnx
# Compare the four with each other and time them (needs numpy, onnx and onnxruntime):
#   python3 tests/models/train.py check tests/models
# AP50 and AP50-95 of a model on scenes it never saw (same needs):
#   python3 tests/models/train.py evaluate tests/models/shapes.onnx
#
# All seeds are fixed: training scenes use SeedSequence entries [1, n], the scenes of the
# evaluation [2, n].  Results still differ in the last digits from run to run, since the
# GPU adds in no fixed order.

import argparse
import multiprocessing
import os
import time

# Before numpy is imported, which this says something to.
from training import CHUNK, EVALUATION, TRAINING, Average, evaluation_samples, optimiser_of, render_chunk, show

import numpy as np

import detect
import onnx_graph
from scenes import NET, training_sample

# ------------------------------------------------------------------- measure

def match(found, targets, threshold):
    """Marks each detection (best first): 1 = hit, 0 = false, -1 = on an ignored object.

    The rules are those of ../data/score.py.
    """
    corners = np.concatenate([targets[:, 3:5] - targets[:, 5:7] / 2,
                              targets[:, 3:5] + targets[:, 5:7] / 2], 1)
    ignored, taken = targets[:, 1] > 0, np.zeros(len(targets), bool)
    marks, ious = np.zeros(len(found), int), []
    for i, row in enumerate(found):
        if not len(targets):
            break
        iou = detect.iou_with(row[:4], corners)
        free = np.where(~ignored & ~taken & (targets[:, 2] == row[5]), iou, 0)
        best = int(free.argmax())
        if free[best] >= threshold:
            taken[best], marks[i] = True, 1
            ious.append(free[best])
        else:
            low, high = np.maximum(corners[:, :2], row[:2]), np.minimum(corners[:, 2:], row[2:4])
            share = np.clip(high - low, 0, None).prod(1) / max((row[2:4] - row[:2]).prod(), 1e-9)
            marks[i] = -1 if (ignored & (share >= 0.5)).any() else 0
    return marks, ious


def average_precision(marks, scores, objects):
    """Area under the precision envelope over recall."""
    order = np.argsort(-scores[marks >= 0], kind="stable")
    hits = np.cumsum(marks[marks >= 0][order])
    if not hits.size:
        return 0.0
    precision = hits / np.arange(1, hits.size + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    recall = np.concatenate([[0], hits / objects])
    return float((np.diff(recall) * envelope).sum())


def summarise(results, targets):
    """AP50, AP50-95 (mean over both classes) and the figures at score 0.25."""
    thresholds = np.arange(0.5, 0.96, 0.05)
    found = np.concatenate(results)
    truth = np.concatenate(targets)
    truth = truth[(truth[:, 0] > 0) & (truth[:, 1] == 0)]
    table = np.zeros((2, len(thresholds)))
    for column, threshold in enumerate(thresholds):
        pairs = [match(f, t[t[:, 0] > 0], threshold) for f, t in zip(results, targets)]
        marks = np.concatenate([p[0] for p in pairs])
        for c in range(2):
            own = found[:, 5] == c
            table[c, column] = average_precision(
                marks[own], found[own, 4], (truth[:, 2] == c).sum())
    sure = [f[f[:, 4] >= 0.25] for f in results]
    pairs = [match(f, t[t[:, 0] > 0], 0.5) for f, t in zip(sure, targets)]
    marks = np.concatenate([p[0] for p in pairs])
    hits = (marks == 1).sum()
    ious = np.concatenate([p[1] for p in pairs])
    return {"AP50": table[:, 0].mean(), "AP50-95": table.mean(),
            "precision": hits / max((marks >= 0).sum(), 1), "recall": hits / len(truth),
            "mean IoU": ious.mean() if len(ious) else 0.0}


def evaluate(options):
    """The figures of an ONNX model, with onnxruntime."""
    images, targets = evaluation_samples(options.scenes, training_sample)
    model = detect.Model(options.model)
    results = [detect.postprocess(model(image), 0.01) for image in images]
    print(show(summarise(results, targets)))


# --------------------------------------------------------------------- train

def augment(images, targets):
    """Mirrors, turns and recolours a batch on the GPU; all keep discs and boxes intact."""
    import torch
    images = images.permute(0, 3, 1, 2).float() / 255
    targets = targets.clone()
    if torch.rand(()) < 0.5:
        images = images.flip(3)
        targets[..., 3] = NET - targets[..., 3]
    if torch.rand(()) < 0.5:
        images = images.flip(2)
        targets[..., 4] = NET - targets[..., 4]
    if torch.rand(()) < 0.5:
        images = images.transpose(2, 3)
        targets = targets[..., [0, 1, 2, 4, 3, 6, 5]]
    images = images[:, torch.randperm(3)]
    return images.contiguous(memory_format=torch.channels_last), targets


def figures_of(network, grid, images, targets):
    """summarise() of a PyTorch network, run on the GPU."""
    import torch
    from network import decode, flatten
    results = []
    with torch.no_grad():
        for start in range(0, len(images), 64):
            x = torch.from_numpy(images[start:start + 64]).cuda().permute(0, 3, 1, 2).float() / 255
            for rows in decode(flatten(network(x)), grid).cpu().numpy():
                results.append(detect.from_rows(rows, 0.01))
    return summarise(results, targets)


def run_epochs(options, network, average, grid, pool):
    """Each round adds fresh scenes to those on the GPU and trains on a mix of them all."""
    import torch
    from network import detection_loss, flatten
    optimiser = optimiser_of(network, options.rate)
    steps = options.rounds * options.steps
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, options.rate, total_steps=steps, pct_start=0.06, final_div_factor=100)
    chunks = options.rounds * options.fresh
    source = pool.imap(render_chunk, ((training_sample, TRAINING, n, CHUNK) for n in range(chunks)))
    images = torch.empty(chunks * CHUNK, NET, NET, 3, dtype=torch.uint8, device="cuda")
    targets, filled, started = None, 0, time.time()
    for number in range(options.rounds):
        waiting, fresh = time.time(), []
        for _ in range(options.fresh):
            pixels, rows = next(source)
            images[filled:filled + CHUNK] = torch.from_numpy(pixels).cuda()
            fresh.append(torch.from_numpy(rows).cuda())
            filled += CHUNK
        waiting = time.time() - waiting
        targets = torch.cat(fresh if targets is None else [targets, *fresh])
        sums = torch.zeros(4, device="cuda")
        for _ in range(options.steps):
            pick = torch.randint(0, filled, (options.batch,), device="cuda")
            x, wanted = augment(images[pick], targets[pick])
            with torch.autocast("cuda", torch.bfloat16):
                maps = network(x)
            losses = detection_loss(flatten(maps), wanted, grid)
            optimiser.zero_grad(set_to_none=True)
            losses[0].backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimiser.step()
            schedule.step()
            average.update(network)
            sums += torch.stack(losses).detach()
        mean = [round(v, 4) for v in (sums / options.steps).tolist()]
        print(f"round {number + 1}/{options.rounds}: {filled} scenes, loss {mean}, "
              f"{time.time() - started:.0f} s, waited {waiting:.1f} s", flush=True)
        if number % 6 == 5:
            save(average.network, options.out)  # something to keep should the run be cut


def save(network, folder):
    import copy
    import onnx
    path = os.path.join(folder, "shapes.onnx")
    onnx.save(copy.deepcopy(network).cpu().to_onnx(), path)
    return path


def train(options):
    import onnx
    import torch
    from network import Detector, Grid
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    # The processes must exist before CUDA starts in this one.
    pool = multiprocessing.Pool(options.workers)
    jobs = [(training_sample, EVALUATION, n, CHUNK) for n in range(options.check)]
    check = pool.map_async(render_chunk, jobs, 1)
    network = Detector().cuda().to(memory_format=torch.channels_last)
    average, grid = Average(network, 0.9995), Grid("cuda")
    run_epochs(options, network, average, grid, pool)
    parts = check.get()
    pool.terminate()
    images, targets = (np.concatenate([p[i] for p in parts]) for i in range(2))
    print("unseen scenes:", show(figures_of(average.network, grid, images, targets)), flush=True)
    path = save(average.network, options.out)
    onnx_graph.export_variants(path)
    print(path, "parameters and MACs:", onnx_graph.count_work(onnx.load(path)))


# --------------------------------------------------------------------- check

def check_models(options):
    """All four must find the same objects as shapes.onnx.

    In half precision a near tie in the NMS may end the other way: 2 % may differ there.
    """
    images, _ = evaluation_samples(options.scenes, training_sample)
    name = lambda suffix: os.path.join(options.folder, f"shapes{suffix}.onnx")
    reference = detect.Model(name(""))
    wanted = [reference(image) for image in images]
    for suffix, tolerance in (("", 0), ("-f16", 3.0), ("-v8", 1e-3), ("-e2e", 1e-3)):
        model, worst, strays, total = detect.Model(name(suffix)), 0.0, 0, 0
        started = time.time()
        outputs = [model(image) for image in images]
        spent = (time.time() - started) / len(images) * 1000
        for output, rows in zip(outputs, wanted):
            a, b = detect.postprocess(output, 0.05), detect.postprocess(rows, 0.05)
            strays += abs(len(a) - len(b))
            total += len(b)
            for row in a:
                distance = np.abs(b[:, :4] - row[:4]).max(1) + 1e3 * (b[:, 5] != row[5])
                near = distance.min() if len(b) else 1e3
                strays += near > tolerance
                worst = max(worst, near if near <= tolerance else 0)
        fine = strays <= (0.02 * total if suffix == "-f16" else 0)
        print(f"shapes{suffix}.onnx: output {outputs[0].shape} {outputs[0].dtype}, "
              f"{total} objects, largest difference {worst:.4f} px, {strays} strays, "
              f"{spent:.1f} ms a frame, {'ok' if fine else 'DIFFERS'}")
        if not fine:
            raise SystemExit(1)


def main():
    parser = argparse.ArgumentParser(description="Trains, exports and checks the test detector.")
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("train")
    sub.add_argument("--out", required=True)
    sub.add_argument("--rounds", type=int, default=46)
    sub.add_argument("--fresh", type=int, default=14, help="chunks of 64 new scenes a round")
    sub.add_argument("--steps", type=int, default=200, help="steps a round")
    sub.add_argument("--batch", type=int, default=128)
    sub.add_argument("--rate", type=float, default=4e-3)
    sub.add_argument("--workers", type=int, default=14)
    sub.add_argument("--check", type=int, default=16, help="chunks of unseen scenes")
    sub.set_defaults(run=train)
    sub = commands.add_parser("export")
    sub.add_argument("--from", dest="source", required=True)
    sub.set_defaults(run=lambda options: print(onnx_graph.export_variants(options.source)))
    sub = commands.add_parser("resize")
    sub.add_argument("--from", dest="source", required=True)
    sub.add_argument("--side", type=int, required=True)
    sub.add_argument("--names", nargs="+")
    sub.add_argument("--out", required=True)
    sub.set_defaults(run=lambda options: onnx_graph.resize(options.source, options.side, options.out, options.names))
    sub = commands.add_parser("check")
    sub.add_argument("folder")
    sub.add_argument("--scenes", type=int, default=32)
    sub.set_defaults(run=check_models)
    sub = commands.add_parser("evaluate")
    sub.add_argument("model")
    sub.add_argument("--scenes", type=int, default=256)
    sub.set_defaults(run=evaluate)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

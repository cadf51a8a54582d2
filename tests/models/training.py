# SPDX-License-Identifier: MPL-2.0
# What the training programs share: rendering by many processes, the average of the weights, the
# optimiser, and a training that lasts as long as it is told.  Not run by itself; train.py and
# train_*.py use it.
#
# Scenes have fixed seeds, [1, n] in training and [2, n] in the evaluation.  How many fit into
# the time depends on the machine, and so do the weights.

import argparse
import copy
import math
import multiprocessing
import os
import time

# One thread a process: the scenes are rendered by many processes at a time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

TRAINING, EVALUATION = 1, 2
CHUNK = 64
STEPS = 50  # between two looks for fresh scenes


# ---------------------------------------------------------------------- data

def render_chunk(job):
    """Samples of one chunk, say uint8 images [n,512,512,3] and targets [n,16,7]; `sample` makes one from a seed."""
    sample, purpose, number, count = job
    samples = [sample([purpose, number * CHUNK + i]) for i in range(count)]
    return tuple(np.stack(part) for part in zip(*samples))


def evaluation_jobs(count, sample):
    return [(sample, EVALUATION, n, min(CHUNK, count - n * CHUNK)) for n in range(-(-count // CHUNK))]


def joined(chunks):
    return tuple(np.concatenate(part) for part in zip(*chunks))


def evaluation_samples(count, sample):
    with multiprocessing.Pool() as pool:
        return joined(pool.map(render_chunk, evaluation_jobs(count, sample), chunksize=1))


class Store:
    """Scenes on the device; when it is full, fresh ones take the place of the oldest."""

    def __init__(self, room, device):
        self.room, self.device, self.filled, self.parts = room // CHUNK * CHUNK, device, 0, None

    def add(self, chunk):
        """A chunk of images and targets, as tensors."""
        import torch
        if self.parts is None:
            self.parts = [torch.empty(self.room, *part.shape[1:], dtype=part.dtype, device=self.device) for part in chunk]
        at = self.filled % self.room
        for part, fresh in zip(self.parts, chunk):
            part[at:at + CHUNK] = fresh.to(self.device)
        self.filled += CHUNK

    def batch(self, count):
        """Some scenes, with their colour channels in another order: what is lighter stays so."""
        import torch
        pick = torch.randint(0, min(self.filled, self.room), (count,), device=self.device)
        images, *targets = (part[pick] for part in self.parts)
        images = images.permute(0, 3, 1, 2).float() / 255
        return images[:, torch.randperm(3)].contiguous(memory_format=torch.channels_last), targets


class RenderedElsewhere:
    """Scenes that other processes render while the training goes on: each seed once."""

    def __init__(self, pool, sample, room):
        self.source = pool.imap_unordered(render_chunk, ((sample, TRAINING, n, CHUNK) for n in range(room // CHUNK)))

    def fill(self, store, least=0):
        """Takes the chunks that are ready; waits until there are `least` scenes."""
        import torch
        while store.filled < store.room:
            try:
                chunk = self.source.next(None if store.filled < least else 0)
            except multiprocessing.TimeoutError:
                return
            store.add([torch.from_numpy(part) for part in chunk])


class RenderedHere:
    """Scenes that the device renders itself between the steps; each is used a few times."""

    USES, AT_ONCE = 4, 4 * CHUNK

    def __init__(self, scenes, used):
        self.scenes, self.count = scenes, used // self.USES

    def fill(self, store, least=0):
        wanted = max(least, store.filled + self.count)
        while store.filled < wanted:
            parts = self.scenes.render(self.AT_ONCE)
            for at in range(0, self.AT_ONCE, CHUNK):
                store.add([part[at:at + CHUNK] for part in parts])


# --------------------------------------------------------------------- steps

class Average:
    """Exponential moving average of a network's weights: smoother than the last step."""

    def __init__(self, network, decay):
        self.network, self.decay, self.steps = copy.deepcopy(network).eval(), decay, 0

    def update(self, network):
        import torch
        self.steps += 1
        decay = self.decay * (1 - math.exp(-self.steps / 500))
        with torch.no_grad():
            own, new = self.network.state_dict(), network.state_dict()
            floats = [k for k in own if own[k].dtype.is_floating_point]
            torch._foreach_mul_([own[k] for k in floats], decay)
            torch._foreach_add_([own[k] for k in floats], [new[k] for k in floats], alpha=1 - decay)


def optimiser_of(network, rate, device):
    import torch
    decayed = [p for p in network.parameters() if p.ndim > 1]
    plain = [p for p in network.parameters() if p.ndim <= 1]
    fused = {"fused": True} if device == "cuda" else {}  # older versions have it for GPUs alone, or not at all
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02},
                              {"params": plain, "weight_decay": 0.0}], lr=rate, **fused)


def rate_at(progress):
    """Share of the learning rate: a short rise, then half a cosine down to 1 %."""
    if progress < 0.05:
        return max(progress / 0.05, 0.02)
    return 0.01 + 0.99 * (1 + math.cos(math.pi * min(1.0, (progress - 0.05) / 0.95))) / 2


def show(figures):
    return ", ".join(f"{name} {value:.4f}" for name, value in figures.items())


# --------------------------------------------------------------------- tasks

class Task:
    """What is trained: a file's name, how a scene is made, the network, its loss and its figures."""

    name, merit = "", ("AP50",)  # the figures whose sum says which weights are the better ones

    @staticmethod
    def sample(seed):
        """Image and targets of the scene of a seed; a function that other processes can import."""
        raise NotImplementedError

    def network(self):
        raise NotImplementedError

    def start(self, device):
        """Makes what losses and results need on the device."""

    def scenes(self, device):
        """A renderer of scenes on the device, if there is one."""
        return None

    def vary(self, images, targets):
        """Other scenes made of those of a batch."""
        return images, targets

    def losses(self, raw, targets):
        """The loss to be minimised, and its parts, of what the network puts out."""
        raise NotImplementedError

    def results(self, raw):
        """What the network puts out for some images as numpy arrays, as an ONNX file of it would: a list of outputs for each image."""
        raise NotImplementedError

    def measure(self, outputs, targets):
        """The figures of all outputs, each of one image; targets as the samples have them."""
        raise NotImplementedError


def figures_of(task, network, images, targets, device):
    """task.measure() of a PyTorch network."""
    import torch
    outputs = []
    with torch.no_grad():
        for start in range(0, len(images), CHUNK):
            x = torch.from_numpy(images[start:start + CHUNK]).to(device).permute(0, 3, 1, 2).float() / 255
            outputs += task.results(network(x))
    return task.measure(outputs, targets)


def evaluate(task, options):
    """The figures of an ONNX model, with onnxruntime."""
    import detect
    images, *targets = evaluation_samples(options.scenes, task.sample)
    model = detect.Model(options.model)
    outputs = [model.outputs(image) for image in images]
    print(f"{len(images)} unseen scenes:", show(task.measure(outputs, targets)))


def save(task, network, folder):
    """Weights, and the model if the onnx package is there."""
    network = copy.deepcopy(network).cpu().eval()
    stem = os.path.join(folder, task.name)
    np.savez(stem + ".npz", **{k: v.numpy() for k, v in network.state_dict().items()})
    try:
        import onnx
    except ImportError:
        print(f"no onnx package: run `export --from {stem}.npz` where it is", flush=True)
    else:
        onnx.save(network.to_onnx(), stem + ".onnx")


def weights_of(path):
    import torch
    return {k: torch.from_numpy(v) for k, v in np.load(path).items()}


def begin_with(network, path):
    """Takes what fits of the weights of a network, which may be of another task."""
    own = network.state_dict()
    fitting = {k: v for k, v in weights_of(path).items() if k in own and own[k].shape == v.shape}
    network.load_state_dict(fitting, strict=False)
    print(f"{len(fitting)} of {len(own)} weights are from {path}", flush=True)


def export(task, options):
    network = task.network()
    network.load_state_dict(weights_of(options.source))
    save(task, network, options.out)


class Keeper:
    """Saves the averaged network when it is better than before, at some moments of the training."""

    def __init__(self, task, folder, check, device):
        self.task, self.folder, self.check, self.device = task, folder, check, device
        self.best, self.samples = -1.0, None

    def look(self, network, scenes=None):
        """Measures on so many unseen scenes, all at the end."""
        if self.samples is None:
            self.samples = joined(self.check.get())
        images, *targets = (s[:scenes] for s in self.samples)
        figures = figures_of(self.task, network, images, targets, self.device)
        merit = sum(figures[name] for name in self.task.merit)
        better = merit >= self.best
        if better:
            self.best = merit
            save(self.task, network, self.folder)
        print(f"{len(images)} unseen scenes: {show(figures)}{', saved' if better else ''}", flush=True)


def train(task, options):
    started = time.time()  # importing PyTorch takes its part of the seconds
    import torch
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    os.makedirs(options.out, exist_ok=True)
    # The processes must exist before CUDA starts in this one.
    pool = multiprocessing.Pool(options.workers)
    check = pool.map_async(render_chunk, evaluation_jobs(options.check, task.sample), 1)
    device = options.device
    task.start(device)
    network = task.network()
    if options.start:
        begin_with(network, options.start)
    network = network.to(device).to(memory_format=torch.channels_last)
    average = Average(network, 0.9995)
    optimiser = optimiser_of(network, options.rate, device)
    store, keeper = Store(options.scenes, device), Keeper(task, options.out, check, device)
    scenes = task.scenes(device)
    source = RenderedHere(scenes, options.steps * options.batch) if scenes else RenderedElsewhere(pool, task.sample, store.room)
    source.fill(store, min(store.room, options.first))
    begun = time.time()
    room = max(options.seconds - options.reserve - (begun - started), 1.0)
    looks, step = [0.3, 0.6, 0.8, 0.92], 0
    while (progress := (time.time() - begun) / room) < 1:
        source.fill(store)
        sums = 0
        for _ in range(options.steps):
            for group in optimiser.param_groups:
                group["lr"] = options.rate * rate_at(progress)
            images, targets = task.vary(*store.batch(options.batch))
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                raw = network(images)
            losses = task.losses(raw, targets)
            optimiser.zero_grad(set_to_none=True)
            losses[0].backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
            optimiser.step()
            average.update(network)
            sums += torch.stack(losses).detach()
            step += 1
        mean = [round(v, 4) for v in (sums / options.steps).tolist()]
        if not all(map(math.isfinite, mean)):
            raise SystemExit(f"the loss is {mean} after {step} steps")
        print(f"step {step}, {time.time() - started:.0f} s: {store.filled} scenes, loss {mean}", flush=True)
        if looks and progress >= looks[0]:
            del looks[0]
            keeper.look(average.network, options.look)
    keeper.best = -1.0  # of fewer scenes; the last weights are those to keep
    keeper.look(average.network)
    pool.terminate()
    print(f"{step} steps of {options.batch}, {time.time() - started:.0f} s in all")


def main(task, description, batch=128, scenes=96000):
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    sub = commands.add_parser("train")
    sub.add_argument("--out", required=True)
    sub.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    sub.add_argument("--seconds", type=float, default=400, help="when to be done, all included")
    sub.add_argument("--reserve", type=float, default=25, help="seconds of that for the last evaluation")
    sub.add_argument("--start", help="weights of an earlier training to begin with, of any task")
    sub.add_argument("--batch", type=int, default=batch)
    sub.add_argument("--steps", type=int, default=STEPS, help="between two looks for fresh scenes")
    sub.add_argument("--rate", type=float, default=4e-3)
    sub.add_argument("--workers", type=int, default=14)
    sub.add_argument("--first", type=int, default=16 * CHUNK, help="scenes to wait for before the training begins")
    sub.add_argument("--scenes", type=int, default=scenes, help="to keep on the device")
    sub.add_argument("--check", type=int, default=16 * CHUNK, help="unseen scenes")
    sub.add_argument("--look", type=int, default=128, help="of these at some moments of the training")
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
    options.run(task, options)

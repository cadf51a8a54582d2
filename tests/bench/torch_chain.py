#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What a user might write with PyTorch instead: the same network on frames that already are in GPU memory.

    torch_chain.py chain MODEL.onnx [--frames FILE] [--streams 16] [--batch 1] [--staged] [--seconds 4] [--repeats 3]
                         [--device cuda]
    torch_chain.py preprocess [--side 640] [--repeats 3]

chain: NV12 frames of 1080p -> RGB by tensor operations -> letterbox by F.interpolate -> the network in f16, captured as a CUDA
graph -> threshold and torchvision's batched_nms -> boxes on the host. With --batch, so many frames of different streams go
together. With --staged, frames are copied to the host, made RGB and resized there (by OpenCV, if that can be imported), and
what the network wants is copied back. Frames are not decoded. They are those of a file, one dense NV12 frame after the other,
or else noise, in which a model finds nothing or too much.

preprocess: the same letterbox alone, one frame and 32, as it is written and as a CUDA graph, and by CV-CUDA if that can be
imported; times on the GPU by events.

Both print one line of JSON for each figure: medians of the repeats. Nothing but PyTorch, torchvision and numpy is needed.
"""

import argparse
import json
import resource
import struct
import sys
import time

import numpy as np
import torch
import torch.nn.functional as functional

WIDTH, HEIGHT = 1920, 1080
SCORE, IOU, MAX_DETECTIONS = 0.25, 0.45, 300

# ---------------------------------------------------------------------------- ONNX files, without the onnx package


def varint(data, at):
    """The number that begins there, and where the next thing begins."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """The fields of a protobuf message: number -> values, as numbers or bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            length, at = ({1: 8, 5: 4}[kind], at) if kind in (1, 5) else varint(data, at)
            value, at = data[at:at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def numbers(values):
    """Repeated integers, each by itself or all in one field."""
    plain = []
    for value in values:
        if isinstance(value, int):
            plain.append(signed(value))
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            plain.append(signed(number))
    return plain


def array(tensor):
    tensor = fields(tensor)
    kinds = {1: np.float32, 7: np.int64, 10: np.float16}
    kind = kinds[tensor[2][0]]
    return tensor[8][0].decode(), np.frombuffer(tensor[9][0], kind).reshape(numbers(tensor.get(1, [])))


def attribute(data):
    data = fields(data)
    kind = data[20][0]
    if kind == 1:
        value = struct.unpack("<f", data[2][0])[0]
    elif kind == 2:
        value = signed(data[3][0])
    elif kind == 3:
        value = data[4][0].decode()
    elif kind == 7:
        value = numbers(data[8])
    else:
        raise SystemExit(f"There is no attribute of kind {kind} here yet.")
    return data[1][0].decode(), value


def side_of(value):
    """The height of an input's picture."""
    shape = fields(fields(fields(fields(value)[2][0])[1][0])[2][0])
    return fields(shape[1][2])[1][0]


# ---------------------------------------------------------------------------- the network


class Network:
    """Runs the graph of an ONNX file with PyTorch's own operators, for one picture or a batch."""

    def __init__(self, path, device):
        with open(path, "rb") as file:
            graph = fields(fields(file.read())[7][0])

        def text(field):
            return [name.decode() for name in field]

        self.nodes = []
        for node in map(fields, graph[1]):
            self.nodes.append((node[4][0].decode(), text(node.get(1, [])), text(node[2]), dict(map(attribute, node.get(5, [])))))
        self.input, self.output = fields(graph[11][0])[1][0].decode(), fields(graph[12][0])[1][0].decode()
        self.side = side_of(graph[11][0])
        self.kind = torch.float16 if device == "cuda" else torch.float32
        self.numbers, self.weights = {}, {}
        for name, values in map(array, graph[5]):
            self.numbers[name] = values.tolist()  # shapes and lengths are read by the host only
            weight = torch.from_numpy(values.copy()).to(device)
            weight = weight.to(self.kind) if weight.is_floating_point() else weight
            # Convolutions in f16 are fastest with channels last.
            self.weights[name] = weight.to(memory_format=torch.channels_last) if weight.dim() == 4 else weight

    def __call__(self, x):
        values = {**self.weights, self.input: x}
        for kind, inputs, outputs, plain in self.nodes:
            get = [values.get(name) for name in inputs]
            number = [self.numbers.get(name) for name in inputs]
            match kind:
                case "Conv":
                    made = functional.conv2d(*get, stride=plain.get("strides", 1), padding=plain.get("pads", [0])[0],
                                             groups=plain.get("group", 1))
                case "Relu":
                    made = torch.relu(get[0])
                case "Sigmoid":
                    made = torch.sigmoid(get[0])
                case "Add":
                    made = get[0] + get[1]
                case "Sub":
                    made = get[0] - get[1]
                case "Mul":
                    made = get[0] * get[1]
                case "MatMul":
                    made = get[0] @ get[1]
                case "Concat":
                    made = torch.cat(get, plain["axis"])
                case "Split":
                    made = torch.split(get[0], number[1], plain["axis"])
                case "Reshape":
                    made = get[0].reshape(len(x), *number[1][1:])
                case "Transpose":
                    made = get[0].permute(plain["perm"])
                case "Softmax":
                    made = torch.softmax(get[0], plain["axis"])
                case "MaxPool":
                    made = functional.max_pool2d(get[0], plain["kernel_shape"][0], plain["strides"], plain["pads"][0])
                case "Resize":
                    made = functional.interpolate(get[0], scale_factor=2, mode="nearest")
                case other:
                    raise SystemExit(f"There is no {other} here yet.")
            made = made if isinstance(made, (tuple, list)) else [made]
            values.update(zip(outputs, made))
        return values[self.output]


def captured(work, device):
    """`work` as a CUDA graph, and what it returns each time; on the CPU it is just done."""
    if device != "cuda":
        return work
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = work()

    def replay():
        graph.replay()
        return made

    return replay


# ---------------------------------------------------------------------------- before and behind it


class Letterbox:
    """NV12 frames of 1080p -> pictures in the middle of a square, 0 to 1."""

    def __init__(self, side, device):
        scale = min(side / WIDTH, side / HEIGHT)
        self.size = (round(HEIGHT * scale), round(WIDTH * scale))
        self.top, self.left = (side - self.size[0]) // 2, (side - self.size[1]) // 2
        self.matrix = torch.tensor([[1.164, 0.0, 1.793], [1.164, -0.213, -0.533], [1.164, 2.112, 0.0]], device=device)
        self.offset = torch.tensor([16.0, 128.0, 128.0], device=device)[:, None, None]

    def __call__(self, luma, chroma, pictures):
        """[N,H,W] and [N,H/2,W/2,2] of u8 into [N,3,side,side]."""
        chroma = functional.interpolate(chroma.permute(0, 3, 1, 2).float(), scale_factor=2, mode="nearest")
        yuv = torch.cat([luma[:, None].float(), chroma], 1) - self.offset
        rgb = (self.matrix @ yuv.flatten(2)).reshape(-1, 3, HEIGHT, WIDTH).clamp(0, 255)
        small = functional.interpolate(rgb, self.size, mode="bilinear", align_corners=False) / 255
        self.middle(pictures).copy_(small)

    def middle(self, pictures):
        return pictures[:, :, self.top:self.top + self.size[0], self.left:self.left + self.size[1]]


class OnTheHost:
    """The same by way of the host."""

    def __init__(self, letterbox, pictures):
        self.letterbox = letterbox
        try:
            import cv2
            self.cv2, self.by = cv2, f"OpenCV {cv2.__version__}"
        except ImportError:
            self.cv2, self.by = None, "PyTorch on the CPU"
            self.cpu, self.pictures = Letterbox(pictures.shape[-1], "cpu"), pictures.float().cpu()

    def __call__(self, luma, chroma, pictures):
        luma, chroma = luma.cpu(), chroma.cpu()
        if self.cv2 is None:
            self.cpu(luma, chroma, self.pictures)
            pictures.copy_(self.pictures)
            return
        height, width = self.letterbox.size
        small = []
        for y, uv in zip(luma.numpy(), chroma.numpy()):
            nv12 = np.concatenate([y, uv.reshape(HEIGHT // 2, WIDTH)])
            small.append(self.cv2.resize(self.cv2.cvtColor(nv12, self.cv2.COLOR_YUV2RGB_NV12), (width, height)))
        made = torch.from_numpy(np.stack(small)).to(pictures.device).permute(0, 3, 1, 2)
        self.letterbox.middle(pictures).copy_(made / 255)


def boxes(rows):
    """Of one picture's head, on the host."""
    from torchvision.ops import batched_nms

    rows = rows.float()
    if rows.shape[0] < rows.shape[1]:  # columns, without objectness
        rows = rows.T
        scores, kinds = rows[:, 4:].max(1)
    else:
        scores, kinds = rows[:, 5:].max(1)
        scores = scores * rows[:, 4]
    keep = scores > SCORE
    rows, scores, kinds = rows[keep], scores[keep], kinds[keep]
    half = rows[:, 2:4] / 2
    corners = torch.cat([rows[:, :2] - half, rows[:, :2] + half], 1)
    kept = batched_nms(corners, scores, kinds, IOU)[:MAX_DETECTIONS]
    return torch.cat([corners[kept], scores[kept, None], kinds[kept, None]], 1).cpu()


def frames_of(path, count, device):
    """So many frames, as luma and chroma: those of the file again and again."""
    frames = np.fromfile(path, np.uint8).reshape(-1, HEIGHT * 3 // 2, WIDTH)
    frames = torch.from_numpy(frames[np.arange(count) % len(frames)]).to(device)
    return frames[:, :HEIGHT].contiguous(), frames[:, HEIGHT:].reshape(count, HEIGHT // 2, WIDTH // 2, 2).contiguous()


def noise(count, device):
    """So many frames of their own."""
    generator = np.random.default_rng(1)
    luma = generator.integers(16, 236, (count, HEIGHT, WIDTH), np.uint8)
    chroma = generator.integers(16, 240, (count, HEIGHT // 2, WIDTH // 2, 2), np.uint8)
    return torch.from_numpy(luma).to(device), torch.from_numpy(chroma).to(device)


# ---------------------------------------------------------------------------- commands


def chain(options):
    torch.backends.cudnn.benchmark = True
    network = Network(options.model, options.device)
    letterbox = Letterbox(network.side, options.device)
    batch = min(options.batch, options.streams)
    shape = (batch, 3, network.side, network.side)
    pictures = torch.full(shape, 114 / 255, device=options.device, dtype=network.kind)
    pictures = pictures.to(memory_format=torch.channels_last)
    prepare = OnTheHost(letterbox, pictures) if options.staged else letterbox
    infer = captured(lambda: network(pictures), options.device)
    streams = options.streams, options.device
    luma, chroma = frames_of(options.frames, *streams) if options.frames else noise(*streams)

    def step(start):
        prepare(luma[start:start + batch], chroma[start:start + batch], pictures)
        return [boxes(rows) for rows in infer()]

    starts = range(0, options.streams - batch + 1, batch)
    found = sum(len(each) for each in step(0))
    figures = []
    for _ in range(options.repeats):
        times, before, begun = [], resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        while time.perf_counter() < begun + options.seconds:
            for start in starts:
                at = time.perf_counter()
                step(start)
                times.append(time.perf_counter() - at)
        seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        frames = len(times) * batch
        figures.append([frames / seconds, cpu / frames * 1e3, *np.quantile(times, [0.5, 0.99]) * 1e3])
    fps, cpu, p50, p99 = np.median(figures, 0)
    print(json.dumps({"row": "torch", "model": options.model, "device": options.device, "torch": torch.__version__,
                      "streams": options.streams, "batch": batch, "staged": options.staged and prepare.by, "fps": fps, "of_a_clip": bool(options.frames),
                      "cpu_s_per_1000": cpu, "p50_ms": p50, "p99_ms": p99, "boxes_a_frame": found / batch}))


def microseconds(work, repeats):
    """What a call takes on the GPU: the median of many."""
    times = []
    for _ in range(50 * repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return float(np.median(times))


def by_cvcuda(luma, chroma, letterbox, pictures):
    """The usual calls of CV-CUDA for the same."""
    import cvcuda

    nv12 = torch.cat([luma, chroma.reshape(len(luma), HEIGHT // 2, WIDTH)], 1)[..., None].contiguous()
    source = cvcuda.as_tensor(nv12, "NHWC")
    height, width = letterbox.size
    side = pictures.shape[-1]

    def work():
        rgb = cvcuda.cvtcolor(source, cvcuda.ColorConversion.YUV2RGB_NV12)
        small = cvcuda.resize(rgb, (len(luma), height, width, 3), cvcuda.Interp.LINEAR)
        whole = cvcuda.copymakeborder(small, border_mode=cvcuda.Border.CONSTANT, border_value=[114.0] * 3, top=letterbox.top,
                                      left=letterbox.left, bottom=side - height - letterbox.top,
                                      right=side - width - letterbox.left)
        return cvcuda.reformat(cvcuda.convertto(whole, np.float16, scale=1 / 255), "NCHW")

    work()
    return work


def preprocess(options):
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU.")
    for count in (1, 32):
        letterbox = Letterbox(options.side, "cuda")
        luma, chroma = noise(count, "cuda")
        pictures = torch.full((count, 3, options.side, options.side), 114 / 255, device="cuda", dtype=torch.float16)

        def plain(letterbox=letterbox, luma=luma, chroma=chroma, pictures=pictures):
            letterbox(luma, chroma, pictures)

        ways = {"torch": lambda plain=plain: plain, "torch, as a graph": lambda plain=plain: captured(plain, "cuda"),
                "cvcuda": lambda frames=(luma, chroma, letterbox, pictures): by_cvcuda(*frames)}
        for name, make in ways.items():
            try:
                line = {"us": microseconds(make(), options.repeats)}
            except Exception as error:  # a library that was never run here may raise anything
                line = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
            print(json.dumps({"row": "preprocess", "way": name, "frames": count, "side": options.side, **line}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("chain")
    command.add_argument("model")
    command.add_argument("--frames")
    command.add_argument("--streams", type=int, default=16)
    command.add_argument("--batch", type=int, default=1)
    command.add_argument("--staged", action="store_true")
    command.add_argument("--seconds", type=float, default=4)
    command.add_argument("--device", default="cuda")
    command.set_defaults(do=chain)
    command = commands.add_parser("preprocess")
    command.add_argument("--side", type=int, default=640)
    command.set_defaults(do=preprocess)
    for command in commands.choices.values():
        command.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with torch.no_grad():
        options.do(options)


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""What a user might write with PyTorch instead: the same network on frames that already are in GPU memory.

    torch_chain.py pack MODEL.onnx OUT.npz       where the onnx package is
    torch_chain.py run OUT.npz [--streams 16] [--seconds 4] [--device cuda]

NV12 frames of 1080p -> RGB by tensor operations -> letterbox by F.interpolate -> the network in f16, recorded as a CUDA graph ->
threshold and torchvision's batched_nms -> boxes on the host. Frames are not decoded, which is in its favour. Prints one line of
JSON: frames a second, CPU seconds for 1,000 frames, and for how long a frame was under way, in ms.
"""

import argparse
import json
import resource
import time

import numpy as np

WIDTH, HEIGHT = 1920, 1080
SCORE, IOU, MOST = 0.25, 0.45, 300


def pack(options):
    import onnx
    from onnx import helper, numpy_helper

    graph = onnx.load(options.model).graph
    arrays = {weight.name: numpy_helper.to_array(weight) for weight in graph.initializer}
    nodes = []
    for node in graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}
        nodes.append({"op": node.op_type, "in": list(node.input), "out": list(node.output), "with": plain})
    side = graph.input[0].type.tensor_type.shape.dim[2].dim_value
    text = json.dumps({"nodes": nodes, "side": side, "input": graph.input[0].name, "output": graph.output[0].name})
    np.savez(options.out, graph=np.frombuffer(text.encode(), np.uint8), **{f"w_{name}": a for name, a in arrays.items()})


class Network:
    """Runs the graph with PyTorch's own operators."""

    def __init__(self, path, device, torch):
        self.torch, self.functional = torch, torch.nn.functional
        packed = np.load(path)
        graph = json.loads(packed["graph"].tobytes())
        self.nodes, self.side = graph["nodes"], graph["side"]
        self.input, self.output = graph["input"], graph["output"]
        self.kind = torch.float16 if device == "cuda" else torch.float32
        self.numbers, self.weights = {}, {}
        for name in packed.files:
            if name.startswith("w_"):
                array = packed[name]
                # Shapes and lengths are read by the host only.
                self.numbers[name[2:]] = array.tolist()
                weight = torch.from_numpy(array.copy()).to(device)
                self.weights[name[2:]] = weight.to(self.kind) if weight.is_floating_point() else weight

    def __call__(self, x):
        torch, functional = self.torch, self.functional
        values = {**self.weights, self.input: x}
        for node in self.nodes:
            get = [values.get(name) for name in node["in"]]
            number = [self.numbers.get(name) for name in node["in"]]
            plain = node["with"]
            match node["op"]:
                case "Conv":
                    made = functional.conv2d(*get, stride=plain.get("strides", 1), padding=plain.get("pads", [0])[0])
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
                case "Concat":
                    made = torch.cat(get, plain["axis"])
                case "Split":
                    made = torch.split(get[0], number[1], plain["axis"])
                case "Reshape":
                    made = get[0].reshape(number[1])
                case "Transpose":
                    made = get[0].permute(plain["perm"])
                case "Softmax":
                    made = torch.softmax(get[0], plain["axis"])
                case "MaxPool":
                    size = plain["kernel_shape"][0]
                    made = functional.max_pool2d(get[0], size, plain["strides"], plain["pads"][0])
                case "Resize":
                    made = functional.interpolate(get[0], scale_factor=2, mode="nearest")
                case other:
                    raise SystemExit(f"There is no {other} here yet.")
            made = made if isinstance(made, (tuple, list)) else [made]
            values.update(zip(node["out"], made))
        return values[self.output]


class Chain:
    def __init__(self, network, device, torch):
        from torchvision.ops import batched_nms

        self.network, self.torch, self.device, self.nms = network, torch, device, batched_nms
        side = network.side
        self.scale = min(side / WIDTH, side / HEIGHT)
        self.size = (round(HEIGHT * self.scale), round(WIDTH * self.scale))
        self.matrix = torch.tensor([[1.164, 0.0, 1.793], [1.164, -0.213, -0.533], [1.164, 2.112, 0.0]], device=device)
        self.offset = torch.tensor([16.0, 128.0, 128.0], device=device)
        self.picture = torch.full((1, 3, side, side), 114 / 255, device=device, dtype=network.kind)
        self.rows = self.graph = None
        if device == "cuda":
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream), torch.no_grad():
                for _ in range(3):
                    network(self.picture)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.no_grad(), torch.cuda.graph(self.graph):
                self.rows = network(self.picture)

    def letterbox(self, luma, chroma):
        torch, functional = self.torch, self.torch.nn.functional
        chroma = functional.interpolate(chroma.permute(2, 0, 1)[None].float(), scale_factor=2, mode="nearest")[0]
        yuv = torch.cat([luma[None].float(), chroma]) - self.offset[:, None, None]
        rgb = (self.matrix @ yuv.reshape(3, -1)).reshape(1, 3, HEIGHT, WIDTH).clamp(0, 255)
        small = functional.interpolate(rgb, self.size, mode="bilinear", align_corners=False) / 255
        top, left = (self.network.side - self.size[0]) // 2, (self.network.side - self.size[1]) // 2
        self.picture[:, :, top:top + self.size[0], left:left + self.size[1]] = small

    def boxes(self, rows):
        torch = self.torch
        rows = rows[0].float()
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
        kept = self.nms(corners, scores, kinds, IOU)[:MOST]
        return torch.cat([corners[kept], scores[kept, None], kinds[kept, None]], 1).cpu()

    def __call__(self, luma, chroma):
        with self.torch.no_grad():
            self.letterbox(luma, chroma)
            if self.graph is None:
                return self.boxes(self.network(self.picture))
            self.graph.replay()
            return self.boxes(self.rows)


def run(options):
    import torch

    network = Network(options.packed, options.device, torch)
    chain = Chain(network, options.device, torch)
    generator = np.random.default_rng(1)
    frames = []
    for _ in range(options.streams):
        luma = torch.from_numpy(generator.integers(16, 236, (HEIGHT, WIDTH), np.uint8)).to(options.device)
        chroma = torch.from_numpy(generator.integers(16, 240, (HEIGHT // 2, WIDTH // 2, 2), np.uint8)).to(options.device)
        frames.append((luma, chroma))
    for frame in frames[:3]:
        chain(*frame)
    times, before, begun = [], resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    while time.perf_counter() < begun + options.seconds:
        for frame in frames:
            at = time.perf_counter()
            chain(*frame)
            times.append(time.perf_counter() - at)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    print(json.dumps({"row": "torch", "streams": options.streams, "fps": len(times) / seconds,
                      "cpu_s_per_1000": cpu / len(times) * 1e3, "p50_ms": p50, "p99_ms": p99}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("pack")
    command.add_argument("model")
    command.add_argument("out")
    command.set_defaults(do=pack)
    command = commands.add_parser("run")
    command.add_argument("packed")
    command.add_argument("--streams", type=int, default=16)
    command.add_argument("--seconds", type=float, default=4)
    command.add_argument("--device", default="cuda")
    command.set_defaults(do=run)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MPL-2.0
"""A model of Triton's Python backend: ONNX Runtime runs the file that its configuration names, one row of a batch after the other."""
import json
import os
import pathlib
import sys
import threading

import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        # Triton starts Python without the packages of the environment that it was started in.
        sys.path.append(config["parameters"]["packages"]["string_value"])
        import numpy
        import onnxruntime

        self.concatenate = numpy.concatenate
        self.names = [output["name"] for output in config["output"]]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        file = config["parameters"]["file"]["string_value"]
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        # As a server that has too much to do: from that request on it answers only once there is this file.
        self.answers = int(os.environ["HOLD_FROM"]) if "HOLD_FROM" in os.environ else None
        self.gate = pathlib.Path(os.environ.get("GATE", ""))

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        if self.answers is not None:
            self.answers -= 1
            while self.answers < 0 and not self.gate.exists():
                threading.Event().wait(0.05)
        batch = triton.get_input_tensor_by_name(request, self.input).as_numpy()
        rows = [self.session.run(self.names, {self.input: batch[row:row + 1]}) for row in range(len(batch))]
        outputs = [self.concatenate(parts) for parts in zip(*rows)]
        return triton.InferenceResponse([triton.Tensor(*output) for output in zip(self.names, outputs)])

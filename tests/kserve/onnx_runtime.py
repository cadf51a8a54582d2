# SPDX-License-Identifier: MPL-2.0
"""A model of MLServer: ONNX Runtime runs the file that its settings name, one row of a batch after the other."""
import numpy
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class OnnxModel(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        file = self.settings.parameters.uri
        self.session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self.names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload):
        [tensor] = payload.inputs
        batch = NumpyCodec.decode_input(tensor)
        rows = [self.session.run(self.names, {tensor.name: batch[row:row + 1]}) for row in range(len(batch))]
        outputs = [numpy.concatenate(parts) for parts in zip(*rows)]
        named = [NumpyCodec.encode_output(name, output) for name, output in zip(self.names, outputs)]
        return InferenceResponse(model_name=self.name, id=payload.id, outputs=named)

# SPDX-License-Identifier: MPL-2.0
"""The loops that users write in Python: `loops.py NAME CLIP MODEL THREADS`, with a name of LOOPS. They print a line for each frame."""

import ast
import functools
import os
import sys

SCORE, IOU, LIMIT = 0.25, 0.45, 300  # the defaults of trtnms


def ultralytics(clip, model, threads):
    os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")
    import onnxruntime

    class Session(onnxruntime.InferenceSession):
        """With so many threads. Left to itself, ONNX Runtime pins one to each core of the machine, also beyond those of taskset."""

        def __init__(self, path, sess_options=None, **others):
            sess_options = sess_options or onnxruntime.SessionOptions()
            sess_options.intra_op_num_threads = threads
            super().__init__(path, sess_options, **others)

    onnxruntime.InferenceSession = Session
    predict(clip, model)


def ultralytics_openvino(clip, model, threads, **precision):
    """Its export for OpenVINO, a folder."""
    os.environ.update(YOLO_OFFLINE="true", YOLO_AUTOINSTALL="false", YOLO_VERBOSE="false")
    import openvino

    compile_model = openvino.Core.compile_model

    def compile_with_threads(core, network, device_name=None, config=None, **others):
        return compile_model(core, network, device_name, {**(config or {}), "INFERENCE_NUM_THREADS": threads, **precision}, **others)

    openvino.Core.compile_model = compile_with_threads
    predict(clip, model)


def predict(clip, model):
    from ultralytics import YOLO

    for result in YOLO(model, task="detect").predict(clip, stream=True, conf=SCORE, iou=IOU, max_det=LIMIT, verbose=False):
        print("frame", len(result.boxes), flush=True)


def opencv(clip, model, threads):
    """VideoCapture, a letterbox, ONNX Runtime, and NMSBoxes, as in the tutorials, with NumPy for all that is a loop over anchors."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    wanted = session.get_inputs()[0]
    names = ast.literal_eval(session.get_modelmeta().custom_metadata_map["names"])
    each_frame(clip, threads, wanted.shape[2:], names, lambda tensor: session.run(None, {wanted.name: tensor})[0])


def opencv_dnn(clip, model, threads):
    """The same with OpenCV's own networks."""
    import cv2
    import onnx

    file = onnx.load(model)
    height, width = (dim.dim_value for dim in file.graph.input[0].type.tensor_type.shape.dim[2:])
    names = ast.literal_eval(next(entry.value for entry in file.metadata_props if entry.key == "names"))
    network = cv2.dnn.readNetFromONNX(model)

    def run(tensor):
        network.setInput(tensor)
        return network.forward()

    each_frame(clip, threads, (height, width), names, run)


def each_frame(clip, threads, size, names, run):
    import cv2
    import numpy as np

    cv2.setNumThreads(threads)
    height, width = size
    video = cv2.VideoCapture(clip)
    while True:
        read, frame = video.read()
        if not read:
            break
        rows, columns = frame.shape[:2]
        scale = min(width / columns, height / rows)
        inner = round(columns * scale), round(rows * scale)
        left, top = (width - inner[0]) // 2, (height - inner[1]) // 2
        resized = cv2.resize(frame, inner, interpolation=cv2.INTER_LINEAR)
        right, bottom = width - inner[0] - left, height - inner[1] - top
        padded = cv2.copyMakeBorder(resized, top, bottom, left, right, cv2.BORDER_CONSTANT, value=(114, 114, 114))
        tensor = np.ascontiguousarray(padded[:, :, ::-1].transpose(2, 0, 1)[None]).astype(np.float32) / 255
        output = run(tensor)[0].T
        scores = output[:, 4:].max(1)
        passed = scores > SCORE
        found, scores = output[passed], scores[passed]
        classes = found[:, 4:].argmax(1)
        boxes = np.stack((found[:, 0] - found[:, 2] / 2, found[:, 1] - found[:, 3] / 2, found[:, 2], found[:, 3]), 1)
        kept = cv2.dnn.NMSBoxesBatched(boxes, scores, classes, SCORE, IOU)[:LIMIT]
        objects = [
            (names[int(classes[row])], float(scores[row]), (boxes[row] - [left, top, 0, 0]) / scale) for row in kept
        ]
        print("frame", len(objects), flush=True)


LOOPS = {
    "ultralytics": ultralytics, "ultralytics-openvino": ultralytics_openvino,
    "ultralytics-openvino-fp32": functools.partial(ultralytics_openvino, INFERENCE_PRECISION_HINT="f32"),
    "opencv": opencv, "opencv-dnn": opencv_dnn,
}

if __name__ == "__main__":
    LOOPS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))

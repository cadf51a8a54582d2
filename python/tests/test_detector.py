# SPDX-License-Identifier: MPL-2.0
"""One image, in any form in which Python has images."""

import copy
import ctypes.util
import gc
import os
import pathlib
import subprocess
import sys
import threading

import networks
import numpy
import pytest
from conftest import OnGpu, model
from PIL import Image

import gsttrt
from gsttrt import _device, _images


def same(one: gsttrt.Result, other: gsttrt.Result) -> bool:
    return one.json() == other.json() and len(one) > 0


def test_a_detector_tells_what_it_is(detector):
    assert detector.backend == "rten"
    assert detector.names == {0: "disc", 1: "box"}
    assert detector.input_shape == (1, 3, 512, 512)
    assert repr(detector).endswith("shapes.onnx: rten, input 1x3x512x512, 2 classes>")
    with gsttrt.Detector(model("shapes"), backend="auto") as automatic:
        assert automatic.backend in ("rten", "onnxruntime", "openvino", "tensorrt")
        assert automatic.backend == "tensorrt" or automatic.reason


def test_arrays_have_the_promised_shapes_and_types(detector, image):
    result = detector(image)
    count = len(result)
    assert count > 3
    arrays = {"xyxy": ((count, 4), "float32"), "confidence": ((count,), "float32"), "class_id": ((count,), "int64")}
    for name, (shape, dtype) in arrays.items():
        array = getattr(result, name)
        assert (array.shape, array.dtype) == (shape, dtype), name
    assert (result.masks, result.keypoints, result.angle, result.corners, result.probs, result.map) == (None,) * 6
    assert (result.track_id, result.time, result.keypoint_names) == (None, None, None)
    assert (result.width, result.height) == (640, 360)
    assert result.names == [detector.names[each] for each in result.class_id]
    assert (numpy.diff(result.confidence) <= 0).all()
    for index, fields in enumerate(result.json()):
        left, top, right, bottom = result.xyxy[index]
        box = [left, top, right - left, bottom - top]
        assert numpy.allclose(box, [fields[name] for name in "xywh"], atol=1e-4)
        assert result.confidence[index] == numpy.float32(fields["confidence"])
    assert repr(result) == f"<Result 640x360: {result.names.count('disc')} disc, {result.names.count('box')} box>"
    with pytest.raises(ValueError, match="gives no masks"):
        result.mask(0)
    with pytest.raises(IndexError, match="no object -99"):
        result.mask(-99)


def test_nothing_found_is_empty_arrays(detector):
    result = detector(numpy.zeros((100, 200, 3), numpy.uint8))
    assert (len(result), result.xyxy.shape, result.confidence.shape, result.names) == (0, (0, 4), (0,), [])
    assert repr(result) == "<Result 200x100: nothing>"
    masks = gsttrt.Detector(model("shapes-seg"), backend="rten")(numpy.zeros((100, 200, 3), numpy.uint8))
    assert masks.masks.shape == (0, 100, 200)


def test_layouts_of_memory_do_not_matter(detector, image):
    wanted = detector(image)
    assert same(detector(image[..., ::-1], color="rgb"), wanted)
    assert same(detector(numpy.ascontiguousarray(image[..., ::-1]), color="rgb"), wanted)
    assert same(detector(numpy.asfortranarray(image)), wanted)
    alpha = numpy.full((*image.shape[:2], 1), 7, numpy.uint8)
    assert same(detector(numpy.concatenate([image, alpha], axis=2)), wanted)
    wide = numpy.zeros((360, 700, 3), numpy.uint8)
    wide[:, 30:670] = image
    assert same(detector(wide[:, 30:670]), wanted)
    # A view whose last row ends with the memory.
    assert same(detector(wide[-200:, 60:]), detector(wide[-200:, 60:].copy()))
    assert same(detector(image[::-1]), detector(image[::-1].copy()))
    image.flags.writeable = False
    assert same(detector(image), wanted)
    image.flags.writeable = True


def test_gray_is_all_channels_alike(detector, image):
    gray = image.mean(axis=2).astype(numpy.uint8)
    wanted = detector(numpy.repeat(gray[..., None], 3, axis=2))
    assert same(detector(gray), wanted) and same(detector(gray[..., None]), wanted)


def test_several_images_give_several_results(detector, image):
    small = image[:180, :320]
    for batch in ([image, small], (image, small)):
        one, other = detector(batch)
        assert same(one, detector(image)) and same(other, detector(small))
    stacked = numpy.stack([image, image[::-1]])
    assert same(detector(list(stacked))[1], detector(image[::-1]))
    assert detector([]) == []
    with pytest.raises(gsttrt.InputError, match=r"detector\(list\(images\)\)"):
        detector(stacked)


def test_files_and_pictures_of_pillow(detector, image, tmp_path):
    wanted, picture = detector(image), Image.fromarray(image[..., ::-1])
    picture.save(tmp_path / "a.png")
    for given in (tmp_path / "a.png", str(tmp_path / "a.png"), picture):
        assert same(detector(given), wanted)
    # Lying in the file, with the note to turn it.
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "lying.png", exif=exif)
    assert same(detector(tmp_path / "lying.png"), wanted)
    with Image.open(tmp_path / "lying.png") as lying:
        assert same(detector(lying), wanted)


def test_options_are_those_of_the_elements(image):
    options = {"score_threshold": 0.5, "classes": ["box"], "max_detections": 2, "class_thresholds": {"box": 0.6}, "class_agnostic": True}
    result = gsttrt.Detector(model("shapes"), backend="rten", iou_threshold=numpy.float32(0.5), **options)(image)
    assert result.names == ["box", "box"]
    with pytest.raises(gsttrt.SettingsError, match=r"no option colour\. .*score_threshold"):
        gsttrt.Detector(model("shapes"), colour=1)
    with pytest.raises(ValueError, match="score_threshold"):
        gsttrt.Detector(model("shapes"), score_threshold=60)
    with pytest.raises(gsttrt.SettingsError, match="zero byte"):
        gsttrt.Detector(model("shapes"), classes="a\0b")


@pytest.mark.parametrize(
    "option, meant",
    [
        ({"conf": 0.5}, "score_threshold"),
        ({"iou": 0.5}, "iou_threshold"),
        ({"imgsz": 640}, "input_size"),
        ({"device": "cuda"}, "backend or cuda_device_id"),
        ({"score_thresold": 0.4}, "score_threshold"),
        ({"max_detection": 4}, "max_detections"),
        ({"nms_threshold": 0.4}, "iou_threshold"),
        ({"stream": True}, r"detector\.batch\(images\), which gives one result after the other"),
    ],
)
def test_near_names_of_options_are_said(option, meant):
    [name] = option
    with pytest.raises(gsttrt.SettingsError, match=f"^There is no option {name}. Did you mean {meant}\\? The options are ") as error:
        gsttrt.Detector(model("shapes"), **option)
    assert "score-threshold" not in str(error.value) and "class_agnostic" in str(error.value)


def test_options_of_an_image_are_options_of_the_detector(detector, image):
    with pytest.raises(gsttrt.SettingsError, match=r"takes no option conf\. Did you mean score_threshold\? .*Detector\(model"):
        detector(image, conf=0.5)
    with pytest.raises(gsttrt.SettingsError, match=r"takes no option score_threshold\. Options are given to Detector"):
        detector(image, score_threshold=0.5)


def test_input_values_are_paths():
    from gsttrt._library import texts

    given = texts({"input_values": {"a=b": "x,y\\z.npy", "c": pathlib.Path("w.npy")}})
    assert given[0] == rb"input-values=a\=b=x\,y\\z.npy,c=w.npy"
    assert texts({"input_values": "a=w.npy,b=v.npy"})[0] == b"input-values=a=w.npy,b=v.npy"
    for wrong, named in [({"txt_feats": numpy.ones(3)}, "type ndarray for txt_feats, and no path"), (numpy.ones(3), "is of type ndarray")]:
        with pytest.raises(gsttrt.SettingsError, match=f"{named}. Write arrays to files by numpy.save"):
            gsttrt.Detector(model("shapes"), backend="rten", input_values=wrong)


def test_no_class_is_not_all_classes(image):
    for none in ([], (), numpy.array([], int)):
        with pytest.raises(gsttrt.SettingsError, match="classes is empty.*Leave it out for all"):
            gsttrt.Detector(model("shapes"), backend="rten", classes=none)
    for one in (1, "1", "box", [1], numpy.array([1]), ["box"]):
        found = gsttrt.Detector(model("shapes"), backend="rten", classes=one, class_agnostic=numpy.bool_(True))(image)
        assert set(found.names) == {"box"}


def test_what_does_not_fit_the_model_is_an_error_at_once(tmp_path):
    with pytest.raises(gsttrt.SettingsError, match="person"):
        gsttrt.Detector(model("shapes"), backend="rten", classes=["person"])
    with pytest.raises(gsttrt.SettingsError, match="layout"):
        gsttrt.Detector(model("shapes"), backend="rten", layout="ssd")
    with pytest.raises(gsttrt.LibraryError, match="with ort_library or ORT_DYLIB_PATH"):
        gsttrt.Detector(model("shapes"), backend="onnxruntime", ort_library="/nowhere.so")
    for wrong in (7, None, b"a\0"):
        with pytest.raises(gsttrt.Error):
            gsttrt.Detector(wrong)


def test_the_input_size_may_be_one_number():
    with pytest.raises(gsttrt.Error, match="320x320"):
        gsttrt.Detector(model("shapes"), backend="rten", input_size=320)
    for wrong in (3.5, (320.5, 320), (float("inf"), 320), (1, 2, 3), "axb", [None, 3]):
        with pytest.raises(gsttrt.Error, match="input_size"):
            gsttrt.Detector(model("shapes"), backend="rten", input_size=wrong)


def test_a_session_gives_the_outputs_as_they_are():
    with gsttrt.Session(model("shapes"), backend="rten") as session:
        assert session.backend == "rten" and session.input == ("images", "float32", (1, 3, 512, 512))
        assert [each.name for each in session.outputs] == ["output0"]
        outputs = session(numpy.zeros(session.input.shape, session.input.dtype))
        assert outputs["output0"].shape == session.outputs[0].shape == (1, 16128, 7) and outputs["output0"].any()
        with pytest.raises(gsttrt.InputError, match=r"shape \(2,\) and the type float64.*\(1, 3, 512, 512\) float32"):
            session(numpy.zeros(2))
    with pytest.raises(gsttrt.InputError, match="closed already"):
        session(numpy.zeros(session.input.shape, session.input.dtype))
    with pytest.raises(gsttrt.SettingsError, match="backend or cuda_device_id"):
        gsttrt.Session(model("shapes"), device=0)


FORKED = """
import os, sys, numpy, gsttrt

path, image = sys.argv[1], numpy.full((64, 64, 3), 128, numpy.uint8)
detector = gsttrt.Detector(path, backend="rten") if sys.argv[2] == "before" else None
if len(sys.argv) > 3:
    try:
        gsttrt.Detector(sys.argv[3], backend="rten")
    except gsttrt.Error as error:
        print("failed:", error)
result = detector and detector(image)
if os.fork() == 0:
    if detector is None:
        try:
            print(gsttrt.Detector(path, backend="rten")(image))
        except gsttrt.LibraryError as error:
            print("refused:", error)
    else:
        for use in (lambda: detector(image), lambda: gsttrt.Detector(path, backend="rten"), lambda: gsttrt.Session(path)):
            try:
                use()
            except gsttrt.LibraryError as error:
                print("refused:", error)
        print(result, len(result.json()))
        detector.close()
    sys.exit(0)
status = os.wait()[1]
print(status, gsttrt.Detector(path, backend="rten")(image) if detector is None else detector(image))
"""


def test_a_forked_process_is_refused_and_does_not_hang(tmp_path):
    def run(*when: str) -> list:
        command = [sys.executable, "-c", FORKED, model("shapes"), *when]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        assert ran.stderr == "", ran.stderr
        return ran.stdout.splitlines()

    *refused, result, parent = run("before")
    assert len(refused) == 3 and all("was forked" in line and 'set_start_method("spawn")' in line for line in refused), refused
    assert (result, parent) == ("<Result 64x64: nothing> 0", "0 <Result 64x64: nothing>")
    assert run("after") == ["<Result 64x64: nothing>", "0 <Result 64x64: nothing>"]
    # A model that cannot be loaded leaves threads all the same, unless it was not even begun.
    (tmp_path / "never.onnx").write_bytes(networks.never_runs())
    failed, refused, parent = run("after", str(tmp_path / "never.onnx"))
    assert failed.startswith("failed: ") and "was forked" in refused and parent == "0 <Result 64x64: nothing>"
    assert run("after", str(tmp_path / "none.onnx"))[1:] == ["<Result 64x64: nothing>", "0 <Result 64x64: nothing>"]


def test_models_and_trackers_cannot_be_copied(detector, capfd):
    for each in (detector, gsttrt.Tracker()):
        with pytest.raises(TypeError, match="Make one in each process"):
            copy.deepcopy(each)
    gc.collect()
    assert capfd.readouterr().err == "", "no traceback of an object that was half made"


def test_labels_of_a_file(tmp_path, image):
    (tmp_path / "labels.txt").write_text("Scheibe\nKästchen\n", encoding="utf-8")
    detector = gsttrt.Detector(model("shapes"), backend="rten", label_file=tmp_path / "labels.txt")
    assert detector.names == {0: "Scheibe", 1: "Kästchen"}
    assert set(detector(image).names) == {"Scheibe", "Kästchen"}
    with pytest.raises(gsttrt.NotFoundError, match="no label file"):
        gsttrt.Detector(model("shapes"), label_file=tmp_path / "none.txt")


def test_images_of_sixteen_bits_are_not_white(detector, image, tmp_path):
    gray = image.mean(axis=2).astype(numpy.uint8)
    deep = gray.astype(numpy.uint16) << 8
    Image.fromarray(deep).save(tmp_path / "deep.png")
    Image.fromarray(deep).save(tmp_path / "deep.tiff")
    for given in (tmp_path / "deep.png", tmp_path / "deep.tiff", Image.fromarray(deep)):
        assert same(detector(given), detector(gray)), given
    Image.fromarray(gray / numpy.float32(255)).save(tmp_path / "shares.tiff")
    for given in (tmp_path / "shares.tiff", Image.fromarray(gray.astype(numpy.int32))):
        with pytest.raises(gsttrt.InputError, match="numbers without a range.*scaled to 0..255"):
            detector(given)


def test_the_path_of_a_model_has_any_bytes(tmp_path, image):
    path = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    path.write_bytes(pathlib.Path(model("shapes")).read_bytes())
    with gsttrt.Detector(path, backend="rten") as detector:
        assert len(detector(image)) > 0


def test_wrong_models_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no model file"):
        gsttrt.Detector(tmp_path / "none.onnx")
    with pytest.raises(gsttrt.NotFoundError, match="zero byte"):
        gsttrt.Detector("a\0.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"hello")
    with pytest.raises(gsttrt.ModelError, match="bad.onnx"):
        gsttrt.Detector(tmp_path / "bad.onnx")


@pytest.mark.parametrize(
    "image, text",
    [
        (numpy.zeros((8, 8, 3), numpy.float32), r"float32.*\(255 \* image\)\.astype\(numpy\.uint8\) where they are 0\.\.1"),
        (numpy.zeros((8, 8, 3), numpy.uint16), r"uint16.*\(image >> 8\)\.astype"),
        (numpy.zeros((8, 8, 3), ">u2"), r"uint16.*\(image >> 8\)\.astype"),
        (numpy.zeros((8, 8, 3), bool), r"bool.*255 \* image\.astype"),
        (numpy.zeros((8, 8, 3), numpy.int64), r"int64.*astype"),
        (numpy.zeros((3, 8, 9), numpy.uint8), r"\(3, 8, 9\).*channels come first.*transpose"),
        (numpy.zeros((8, 8, 2), numpy.uint8), r"\(8, 8, 2\) is no image"),
        (numpy.zeros(8, numpy.uint8), r"\(8,\) is no image"),
        (numpy.zeros((), numpy.uint8), r"\(\) is no image"),
        (numpy.zeros((1, 1, 8, 8, 3), numpy.uint8), "is no image"),
        (numpy.zeros((0, 8, 3), numpy.uint8), "8x0"),
        (numpy.zeros((8, 0, 3), numpy.uint8), "0x8"),
        (7, "type int is no image"),
        (None, "type NoneType is no image"),
        (b"bytes", "type bytes is no image"),
        (bytearray(b"bytes"), "type bytearray is no image"),
        (memoryview(b"bytes"), "type memoryview is no image"),
    ],
)
def test_wrong_images_are_errors_and_break_nothing(detector, image, text):
    with pytest.raises(gsttrt.InputError, match=text):
        detector(image)
    assert len(detector(numpy.zeros((8, 8, 3), numpy.uint8))) == 0


def test_wrong_files_are_errors(detector, tmp_path):
    with pytest.raises(gsttrt.NotFoundError, match="There is no image"):
        detector(tmp_path / "none.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"hello")
    with pytest.raises(gsttrt.ReadError, match=r"bad\.jpg"):
        detector(tmp_path / "bad.jpg")
    for color in ("hsv", ["bgr"], None):
        with pytest.raises(gsttrt.InputError, match="color is "):
            detector(numpy.zeros((8, 8, 3), numpy.uint8), color=color)
    for several in (tmp_path, "street.mp4", "photos/*.jpg", "rtsp://camera/stream"):
        with pytest.raises(gsttrt.InputError, match=r"one image is needed\. Use gsttrt\.detect\("):
            detector(several)


def test_without_pillow_a_path_is_refused(detector, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(gsttrt.LibraryError, match="pip install pillow"):
        detector("a.jpg")


def test_threads_share_a_detector(detector, image):
    wanted, found = detector(image).json(), []

    def work():
        found.extend(detector(image).json() == wanted for _ in range(3))
        try:
            detector(numpy.zeros((0, 8, 3), numpy.uint8))
        except gsttrt.InputError as error:
            found.append("8x0" in str(error))  # of this thread

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 16


def test_a_closed_detector_is_an_error_and_its_results_stay(image):
    detector = gsttrt.Detector(model("shapes"), backend="rten")
    result = detector(image)
    detector.close()
    detector.close()
    for use in (lambda: detector(image), lambda: detector([image])):
        with pytest.raises(gsttrt.InputError, match="^This model is closed already. Load it again.$"):
            use()
    assert len(result.names) == len(result) > 0


def test_arrays_on_the_gpu_need_a_model_there(detector):
    with pytest.raises(gsttrt.LibraryError, match="GPU|CUDA"):
        detector(OnGpu((8, 8, 3)))
    with pytest.raises(gsttrt.InputError, match="do not lie side by side"):
        detector(OnGpu((8, 8, 3), strides=(24, 6, 1)))
    with pytest.raises(gsttrt.InputError, match="float32"):
        detector(OnGpu((8, 8, 3), typestr="<f4"))
    with pytest.raises(gsttrt.InputError, match=r"bool.*255 \* image\.astype"):
        detector(OnGpu((8, 8, 3), typestr="|b1"))


def test_the_description_of_arrays_on_the_gpu_is_read():
    array = OnGpu((4, 5, 3), stream=7)
    found = _device.view(array)
    assert found[:5] == (array.memory.ctypes.data, (4, 5, 3), (15, 3, 1), "uint8", 7)
    assert _device.view(OnGpu((4, 5, 3), strides=(32, 3, 1))).strides == (32, 3, 1)
    assert _device.view(OnGpu((4, 5))).stream == _device.LEGACY_STREAM


def test_strides_of_one_row_or_column_on_the_gpu_say_nothing():
    # PyTorch gives 1 for them.
    for shape, strides, stride in [((4, 1, 3), (32, 1, 1), 32), ((1, 5, 3), (1, 3, 1), 15), ((4, 5, 1), (5, 1, 20), 5), ((1, 5), (1, 1), 5)]:
        found = _images.of_gpu(_device.view(OnGpu(shape, strides=strides)), "bgr")
        assert (found.height, found.width, found.stride) == (*shape[:2], stride)
    for strides in ((2, 3, 1), (-15, 3, 1), (0, 3, 1), (15, 4, 1)):
        with pytest.raises(gsttrt.InputError, match="do not lie side by side"):
            _images.of_gpu(_device.view(OnGpu((4, 5, 3), strides=strides)), "bgr")


class ByDlpack:
    """A tensor that says it is in GPU memory; its capsule is NumPy's."""

    def __init__(self, array):
        self.array, self.stream = array, None

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self.array.__dlpack__()


def test_tensors_are_read_by_dlpack(detector, image):
    wide = numpy.zeros((4, 8, 3), numpy.uint8)
    tensor = ByDlpack(wide[:, 2:7])
    found = _device.view(tensor)
    assert found[:5] == (wide.ctypes.data + 6, (4, 5, 3), (24, 3, 1), "uint8", _device.LEGACY_STREAM)
    assert tensor.stream == _device.LEGACY_STREAM
    assert _device.view(ByDlpack(numpy.zeros((2, 2), numpy.float32))).dtype == "float32"
    # In the host's memory it is an array as any other.
    tensor = ByDlpack(image)
    tensor.__class__ = type("OnHost", (ByDlpack,), {"__dlpack_device__": lambda self: (1, 0), "__dlpack__": lambda self, **_: image.__dlpack__()})
    assert same(detector(tensor), detector(image))


@pytest.mark.parametrize("error", [BufferError, RuntimeError, TypeError, ValueError])
@pytest.mark.parametrize("kind", [1, 2, None])
def test_tensors_that_are_not_given_are_errors(detector, error, kind):
    class Refused:
        def __dlpack_device__(self):
            if kind is None:
                raise error("there is no such device")
            return kind, 0

        def __dlpack__(self, **_):
            raise error("it has gradients")

    with pytest.raises(gsttrt.InputError, match=r"type Refused, cannot be read by DLPack: (it has gradients|there is no such device)\. Give "):
        detector(Refused())
    with pytest.raises(gsttrt.InputError, match=r"^images\[1\]: The array, of type Refused"):
        detector([numpy.zeros((8, 8, 3), numpy.uint8), Refused()])


@pytest.mark.parametrize("error", [RuntimeError, TypeError, ValueError])
def test_what_does_not_become_an_array_is_an_error(detector, image, error):
    class OnDevice:
        def __array__(self, *_, **__):
            raise error("copy it to the host first")

    with gsttrt.Session(model("shapes"), backend="rten") as session, pytest.raises(gsttrt.InputError, match="type OnDevice .*host first"):
        session(OnDevice())
    result = detector(image)
    with pytest.raises(gsttrt.InputError, match="type OnDevice .*host first"):
        result.plot(OnDevice())
    with pytest.raises(gsttrt.InputError, match="vectors are no rows of numbers: copy it to the host first"):
        gsttrt.Tracker("botsort").update(result, vectors=[OnDevice() for _ in range(len(result))])


def test_an_image_of_pillow_that_cannot_be_read_is_an_error(detector, image, tmp_path):
    Image.fromarray(image).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "part.png").write_bytes(whole[: len(whole) // 2])
    with Image.open(tmp_path / "part.png") as part, pytest.raises(gsttrt.ReadError, match="Cannot read the image of Pillow: .*whole"):
        detector(part)
    with Image.open(tmp_path / "whole.png") as closed:
        pass
    with pytest.raises(gsttrt.ReadError, match="not closed"):
        detector([closed])


def test_packages_of_the_environment_are_found_without_its_activation():
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    script = "import gsttrt, os, sys; print(os.environ['VIRTUAL_ENV'] == sys.prefix)"
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert run.stdout == "True\n", run.stderr


def test_a_failing_library_says_how_to_get_one():
    from gsttrt._library import Library

    with pytest.raises(gsttrt.LibraryError, match="Cannot load /nowhere.so: .*GSTTRT_LIBRARY"):
        Library("/nowhere.so")
    with pytest.raises(gsttrt.LibraryError, match="gst_trt_last_error"):
        Library(ctypes.util.find_library("m"))

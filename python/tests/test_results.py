# SPDX-License-Identifier: MPL-2.0
"""Results are those of a pipeline with the plugin of the wheel, for each kind of model."""

import copy
import io
import json
import pickle
import sys
import types

import networks
import numpy
import pytest
from conftest import model, pipeline, results
from PIL import Image

import gsttrt

FRAMES = 3


@pytest.mark.parametrize(
    "clip, name",
    [
        ("sample", "shapes"),
        ("sample", "shapes-v8"),
        ("sample", "shapes-e2e"),
        ("sample", "shapes-f16"),
        ("shapes", "shapes-seg"),
        ("shapes", "shapes-obb"),
        ("pose", "figures-pose"),
    ],
)
def test_objects_are_those_of_the_pipeline(clip, name):
    wanted = pipeline(clip, name, FRAMES)
    found = results(clip, name, FRAMES)
    assert any(frame["detections"] for frame in wanted)
    for frame, (image, result) in zip(wanted, found):
        assert image.shape == (frame["height"], frame["width"], 3)
        assert round(result.time * 1e9) == frame["stream-time"]
        assert len(result) == len(frame["detections"])
        for fields, detection in zip(result.json(), frame["detections"]):
            assert fields.keys() == detection.keys()
            for key, value in detection.items():
                if isinstance(value, (float, list)) and key != "keypoint-names":
                    assert numpy.allclose(fields[key], value, rtol=0, atol=6e-4), key
                else:
                    assert fields[key] == value, key


def test_classes_are_those_of_the_pipeline():
    wanted = pipeline("classes", "shapes-cls", FRAMES)
    for frame, (_, result) in zip(wanted, results("classes", "shapes-cls", FRAMES)):
        probs = result.probs
        assert len(result) == 0 and len(probs.names) == 1, "the other is less probable than score_threshold"
        assert probs.names == [each["label"] for each in frame["classes"]]
        assert list(probs.class_id) == [each["class-id"] for each in frame["classes"]]
        assert numpy.allclose(probs.confidence, [each["confidence"] for each in frame["classes"]], rtol=0, atol=1e-6)
        assert repr(result).startswith(f"<Result {result.width}x{result.height}: {probs.names[0]} ")
    (_, result), *_ = results("classes", "shapes-cls", 1, score_threshold=0, top_k=2)
    assert len(result.probs.names) == 2 and result.probs.confidence.sum() <= 1


def test_masks_are_pixels_of_the_image():
    (_, result), *_ = results("shapes", "shapes-seg", 1)
    masks, count = result.masks, len(result)
    assert masks.shape == (count, result.height, result.width) and masks.dtype == bool and count > 0
    for index, fields in enumerate(result.json()):
        left, top, mask = result.mask(index)
        assert [left, top, *mask.shape[::-1]] == [fields[f"mask-{name}"] for name in ("x", "y", "width", "height")]
        assert mask.any() and masks[index].sum() == mask.sum()
        rows, columns = numpy.nonzero(masks[index])
        x1, y1, x2, y2 = result.xyxy[index]
        assert x1 - 1 <= columns.min() and columns.max() <= x2 + 1 and y1 - 1 <= rows.min() and rows.max() <= y2 + 1
    assert (result.mask(-1)[2] == result.mask(count - 1)[2]).all()


def test_a_map_of_objects():
    (_, result), *_ = results("shapes", "shapes-seg", 1, mask_output="map")
    assert result.map.kind == "objects" and result.masks is None
    assert result.map.values.dtype == numpy.uint16 and result.map.values.max() == len(result)
    assert result.map.xyxy.shape == (4,) and result.map.xyxy[2] > result.map.xyxy[0]


def test_keypoints_are_arrays():
    (_, result), *_ = results("pose", "figures-pose", 1)
    assert result.keypoints.shape == (len(result), 17, 3) and len(result) > 0
    assert result.keypoint_names is None and "keypoint-names" not in result.json()[0], "this model has no names"
    wanted = [fields["keypoints"] for fields in result.json()]
    assert numpy.allclose(result.keypoints.reshape(len(result), -1), wanted)


def test_rotated_boxes_have_angles_and_corners():
    (_, result), *_ = results("shapes", "shapes-obb", 1)
    assert result.angle.shape == (len(result),) and result.corners.shape == (len(result), 4, 2) and len(result) > 0
    assert numpy.allclose(result.angle, [fields["angle"] for fields in result.json()])
    middle = result.corners.mean(axis=1)
    assert (result.xyxy[:, :2] < middle).all() and (middle < result.xyxy[:, 2:]).all()


def test_ids_are_those_of_the_pipeline():
    wanted = pipeline("sample", "shapes", 8, "! trttrack")
    found = results("sample", "shapes", 8, tracker=gsttrt.Tracker(fps=15))
    assert any("track-id" in each for frame in wanted for each in frame["detections"])
    for frame, (_, result) in zip(wanted, found):
        assert list(result.track_id) == [each.get("track-id", 0) for each in frame["detections"]]
        assert result.track_id.dtype == numpy.int64


def test_a_tracker_by_itself(detector, image):
    tracker = gsttrt.Tracker("ocsort", fps=25, lost_after=1_000_000_000)
    for _ in range(4):
        result = tracker.update(detector(image))
    assert sorted(result.track_id)[0] == 1 and len(set(result.track_id)) == len(result)
    with pytest.raises(gsttrt.InputError, match="have ids already"):
        tracker.update(result)
    before = max(result.track_id)
    tracker.reset()
    for _ in range(4):
        result = tracker.update(detector(image))
    assert min(result.track_id) > before
    with pytest.raises(gsttrt.SettingsError, match="bytetrack, botsort-iou"):
        gsttrt.Tracker("kcf")
    with pytest.raises(gsttrt.InputError, match="fps is 0"):
        gsttrt.Tracker(fps=0)
    for wrong in (1e-300, float("nan"), "30", 1e300, None):
        with pytest.raises(gsttrt.InputError, match="fps is "):
            gsttrt.Tracker(fps=wrong)
    for wrong in (None, [detector(image)]):
        with pytest.raises(gsttrt.InputError, match="is no result"):
            tracker.update(wrong)
    with pytest.raises(gsttrt.InputError, match="time is 'now'"):
        tracker.update(detector(image), time="now")
    with pytest.raises(gsttrt.InputError, match="whole result"):
        tracker.update(detector(image)[:1])
    with pytest.raises(gsttrt.InputError, match="time is -1"):
        tracker.update(detector(image), time=-1)


def test_a_tracker_takes_vectors_of_objects(tmp_path):
    (tmp_path / "two.onnx").write_bytes(networks.two_boxes())
    detector, image = gsttrt.Detector(tmp_path / "two.onnx", backend="rten"), numpy.zeros((64, 64, 3), numpy.uint8)
    red, blue = [1.0, 0.0], [0.0, 2.0]
    for name, second in (("botsort", [2, 1]), ("deepocsort", [2, 1]), ("boosttrack", [2, 1]), ("bytetrack", [1, 2])):
        tracker = gsttrt.Tracker(name, per_class=False)
        assert list(tracker.update(detector(image), vectors=[red, blue]).track_id) == [1, 2], name
        assert list(tracker.update(detector(image), vectors=numpy.array([blue, red])).track_id) == second, name
        assert list(tracker.update(detector(image), vectors=numpy.zeros((2, 2))).track_id) == second, name
        assert list(tracker.update(detector(image)).track_id) == second, name
        assert list(tracker.update(detector(image), vectors=[None, None]).track_id) == second, name
    for wrong in ([red], [1.0, 2.0], [[[1.0]], [[2.0]]], [red, [1.0]], []):
        with pytest.raises(gsttrt.InputError, match="there are 2 objects"):
            tracker.update(detector(image), vectors=wrong)
    for wrong in (["red", "blue"], 7):
        with pytest.raises(gsttrt.InputError, match="no rows of numbers"):
            tracker.update(detector(image), vectors=wrong)
    high = gsttrt.Detector(tmp_path / "two.onnx", backend="rten", score_threshold=0.95)
    assert len(tracker.update(high(image), vectors=[])) == 0


def test_a_tracker_goes_by_the_times_of_results(detector, image):
    def ids(*times):
        """Of the last frame; before it one is empty."""
        tracker = gsttrt.Tracker(lost_after=1_000_000_000)
        for index, time in enumerate(times):
            result = detector(image if index != len(times) - 2 else numpy.zeros_like(image))
            result.time = time
            tracker.update(result)
        return set(result.track_id.tolist()) - {0}

    soon, later = ids(0.0, 0.04, 0.08, 0.12), ids(0.0, 0.04, 60.0, 60.04)
    assert soon == ids(None, None, None, None) and soon
    assert not later & soon, "the tracks have ended in that minute"


def equal(one, other) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(equal, one, other))
    return numpy.array_equal(one, other, equal_nan=isinstance(one, numpy.ndarray) and one.dtype.kind == "f")


OBJECTS = [("sample", "shapes"), ("shapes", "shapes-seg"), ("shapes", "shapes-obb"), ("pose", "figures-pose")]
EVERYTHING = ("xyxy", "confidence", "class_id", "names", "masks", "keypoints", "angle", "corners", "track_id", "time", "width", "probs", "vector", "text", "map")


def test_vectors_tell_images_apart(tmp_path):
    (tmp_path / "colours.onnx").write_bytes(networks.colours())
    detector = gsttrt.Detector(tmp_path / "colours.onnx")
    images = [numpy.full((64, 64, 3), bgr, numpy.uint8) for bgr in ((200, 0, 0), (100, 0, 0), (0, 100, 100), (0, 0, 0))]
    blue, darker, yellow, black = (detector(image) for image in images)
    assert len(blue) == 0 and blue.vector.shape == (3,) and blue.vector.dtype == numpy.float32
    assert numpy.allclose([blue.vector @ darker.vector, blue.vector @ yellow.vector], [1, 0], atol=1e-5)
    assert numpy.allclose(yellow.vector, [0.5**0.5, 0.5**0.5, 0], atol=1e-5), "red, green, blue"
    assert black.vector is None and repr(black) == "<Result 64x64: nothing>", "there is no vector of 0"
    assert repr(blue) == "<Result 64x64: a vector of 3 numbers>"
    assert numpy.array_equal(pickle.loads(pickle.dumps(blue)).vector, blue.vector)


def test_texts_are_read(tmp_path):
    (tmp_path / "reader.onnx").write_bytes(networks.reader())
    found = gsttrt.Detector(tmp_path / "reader.onnx")(numpy.zeros((48, 64, 3), numpy.uint8))
    assert (len(found), found.text, found.text_confidence) == (0, "Hi", 1)
    assert repr(found) == "<Result 64x48: the text 'Hi'>"
    assert pickle.loads(pickle.dumps(found)).text == "Hi"


@pytest.mark.parametrize("clip, name", [*OBJECTS, ("classes", "shapes-cls")])
def test_results_can_be_copied_and_pickled(clip, name):
    (_, result), *_ = results(clip, name, 1, tracker="iou")
    for other in (copy.deepcopy(result), copy.copy(result), pickle.loads(pickle.dumps(result)), result[:]):
        for field in EVERYTHING:
            assert equal(getattr(other, field), getattr(result, field)), field
        assert other.json() == result.json() and other.to_json(3) == result.to_json(3) and repr(other) == repr(result)


@pytest.mark.parametrize("clip, name", OBJECTS)
def test_objects_are_chosen_as_in_arrays(clip, name):
    (_, result), *_ = results(clip, name, 1)
    count, sure = len(result), result.confidence > numpy.median(result.confidence)
    for which in (slice(1, 3), sure, [count - 1, 0], [], numpy.zeros(count, bool)):
        chosen, indices = result[which], numpy.arange(count)[which if len(numpy.atleast_1d(which)) else slice(0)]
        assert len(chosen) == len(indices) and chosen.names == [result.names[index] for index in indices]
        assert chosen.json() == [result.json()[index] for index in indices]
        for field in ("xyxy", "confidence", "class_id", "masks", "keypoints", "corners"):
            values = getattr(result, field)
            assert equal(getattr(chosen, field), None if values is None else values[indices]), field
    assert [len(each) for each in result] == [1] * count
    assert [each.names[0] for each in result] == result.names and result[-1].names == result.names[-1:]
    for wrong in (count, numpy.zeros(count + 1, bool), [[0]]):
        with pytest.raises(IndexError):
            result[wrong]


def test_lines_of_json_are_those_of_the_pipeline():
    for clip, name in (("sample", "shapes"), ("pose", "figures-pose")):
        for frame, (wanted, (_, result)) in enumerate(zip(pipeline(clip, name, FRAMES), results(clip, name, FRAMES))):
            found = json.loads(result.to_json(frame))
            assert list(found) == [each for each in wanted if each in found] and wanted.keys() - found.keys() <= {"wall-clock", "ntp-time"}
            for key in ("stream-time", "frame", "width", "height", "held"):
                assert found[key] == wanted[key], key
            assert [each.keys() for each in found["detections"]] == [each.keys() for each in wanted["detections"]]


def test_results_are_drawn(detector, image, tmp_path):
    before, result = image.copy(), detector(image)
    drawn = result.plot()
    assert drawn.shape == image.shape and (image == before).all(), "the image stays as it is"
    left, top, right, bottom = result.xyxy[0].astype(int)
    assert (drawn[top:bottom, left] != image[top:bottom, left]).any() and (drawn != image).any(axis=2).sum() < image[..., 0].size / 2
    assert (detector(numpy.ascontiguousarray(image[..., ::-1]), color="rgb").plot() == drawn).all()
    assert (detector(numpy.dstack([image, image[..., :1]])).plot() == drawn).all()
    assert (result.plot(numpy.zeros_like(image)) != 0).any() and (result[:0].plot() == image).all()
    one = result[len(result) - 1].plot() != image
    assert one.any() and one.sum() < (drawn != image).sum()
    assert (result[::-1][0].plot() != image).sum() == one.sum()
    result.save(tmp_path / "drawn.png")
    assert (numpy.asarray(Image.open(tmp_path / "drawn.png"))[..., ::-1] == drawn).all()
    assert Image.open(io.BytesIO(result._repr_png_())).size == (640, 360)
    with pytest.raises(gsttrt.ReadError, match="Cannot write .*none"):
        result.save(tmp_path / "none" / "a.png")
    with pytest.raises(gsttrt.InputError, match=r"\(360, 640, 3\) of uint8"):
        result.plot(image[:50])
    with pytest.raises(gsttrt.InputError, match="Draw the original"):
        pickle.loads(pickle.dumps(result)).plot()
    assert pickle.loads(pickle.dumps(result))._repr_png_() is None
    ids = gsttrt.Tracker().update(detector(image))
    assert (ids.plot() != drawn).any(), "with ids"


@pytest.mark.parametrize("clip, name", [*OBJECTS, ("classes", "shapes-cls"), ("shapes", "shapes-sem")])
def test_each_kind_of_result_is_drawn(clip, name):
    (frame, result), *_ = results(clip, name, 1)
    assert (result.plot() != frame).any()


def test_a_table_for_pandas(detector, image):
    pandas = pytest.importorskip("pandas")
    result = detector(image)
    table = result.to_pandas()
    assert isinstance(table, pandas.DataFrame) and list(table["label"]) == result.names
    classes = gsttrt.Detector(model("shapes-cls"), backend="rten", score_threshold=0)(image)
    assert list(classes.to_pandas()["label"]) == classes.probs.names and len(classes.probs.names) == 3
    assert len(detector(image[:50, :50]).to_pandas()) == len(detector(image[:50, :50]))


def test_supervision_has_nothing_for_maps(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", types.ModuleType("supervision"))
    result = gsttrt.Detector(model("shapes-sem"), backend="rten")(numpy.zeros((64, 64, 3), numpy.uint8))
    assert result.map.kind == "classes"
    with pytest.raises(gsttrt.InputError, match=r"map of classes\. Use result\.map\.values"):
        result.to_supervision()


def test_supervision_gets_its_arguments(detector, image, monkeypatch):
    """Without the package, which is large: its two classes take what is checked here. Seen with 0.31.2."""
    recorded = types.ModuleType("supervision")
    recorded.Detections = recorded.Classifications = lambda **arguments: arguments
    monkeypatch.setitem(sys.modules, "supervision", recorded)
    result = gsttrt.Tracker().update(detector(image))
    given = result.to_supervision()
    assert given["xyxy"] is result.xyxy and given["class_id"] is result.class_id and given["tracker_id"] is result.track_id
    assert given["mask"] is None and list(given["data"]["class_name"]) == result.names
    (_, rotated), *_ = results("shapes", "shapes-obb", 1)
    assert rotated.to_supervision()["data"]["xyxyxyxy"].shape == (len(rotated), 4, 2)
    (_, classes), *_ = results("classes", "shapes-cls", 1)
    assert classes.to_supervision().keys() == {"class_id", "confidence"}


def test_results_of_many_detectors_are_freed(image):
    for _ in range(3):
        with gsttrt.Detector(model("shapes"), backend="rten") as detector:
            result = detector(image)
        del detector
    assert result.names

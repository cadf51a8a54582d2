# SPDX-License-Identifier: MPL-2.0
"""Columns of Arrow are the fields of JSON."""

import itertools
import re

import networks
import numpy
import pytest
from conftest import TESTS, results

pyarrow = pytest.importorskip("pyarrow", reason="Arrow is not installed: python/requirements-ray.txt")

import gsttrt  # noqa: E402
from gsttrt import _rows  # noqa: E402

FRAMES = 3


def rows_of(kind: str, found: list) -> list:
    rows = _rows.ROWS[kind]()
    for index, (_, result) in enumerate(found):
        rows.add(index, result)
    table = pyarrow.concat_tables(rows.tables("a.mp4", None))
    assert table.schema.equals(_rows.SCHEMAS[kind])
    return table.to_pylist()


def flat(fields: dict) -> dict:
    """The fields of an object as its columns. Keypoints always have three numbers there."""
    named = {name.replace("-", "_"): value for name, value in fields.items() if not name.startswith("keypoint-")}
    if fields.get("keypoint-dims") == 2:
        points = numpy.array(named["keypoints"]).reshape(-1, 2)
        named["keypoints"] = numpy.hstack([points, numpy.full((len(points), 1), numpy.nan)]).ravel().tolist()
    return named


@pytest.mark.parametrize("clip_name, model_name", [("shapes", "shapes-seg"), ("shapes", "shapes-obb"), ("pose", "figures-pose"), ("sample", "shapes")])
def test_columns_are_the_fields_of_json(clip_name, model_name):
    found = results(clip_name, model_name, FRAMES, tracker="iou", threads=1)
    rows = rows_of("objects", found)
    fields = [(index, result, each) for index, (_, result) in enumerate(found) for each in result.json()]
    assert len(rows) == len(fields) > FRAMES
    for row, (index, result, each) in zip(rows, fields):
        given = {name: value for name, value in row.items() if value is not None}
        frame = {name: given.pop(name) for name in ("source", "frame", "time", "width", "height")}
        assert list(frame.values()) == ["a.mp4", index, result.time, result.width, result.height]
        expected = flat(each)
        assert set(given) == set(expected)
        for name, value in expected.items():
            exact = isinstance(value, (str, int))
            # The right edge is kept, so that a width may differ in its last digit.
            assert given[name] == (value if exact else pytest.approx(value, abs=1e-3, nan_ok=True)), name
    frames = rows_of("frames", found)
    assert [each for frame in frames for each in frame["objects"]] == [{name: row[name] for name in _rows.OBJECT} for row in rows]


def test_classes_of_a_frame_are_objects_without_a_box():
    found = results("classes", "shapes-cls", FRAMES, threads=1)
    rows = rows_of("objects", found)
    names = [name for _, result in found for name in result.probs.names]
    assert [row["label"] for row in rows] == names and len(names) > 0
    assert all(row["x"] is None and row["confidence"] > 0 for row in rows)
    assert rows_of("tracks", found) == []


def test_vectors_of_frames_are_rows_without_a_box(tmp_path):
    (tmp_path / "colours.onnx").write_bytes(networks.colours())
    detector = gsttrt.Detector(tmp_path / "colours.onnx", backend="rten")
    # A black picture has no vector.
    pictures = [numpy.full((8, 8, 3), grey, numpy.uint8) for grey in (200, 0, 100)]
    found = [(picture, detector(picture)) for picture in pictures]
    rows = rows_of("objects", found)
    assert [row["frame"] for row in rows] == [0, 2]
    for row in rows:
        assert row["vector"] == pytest.approx([3**-0.5] * 3, abs=1e-5) and row["label"] is None and row["x"] is None
    assert [frame["count"] for frame in rows_of("frames", found)] == [1, 0, 1]
    assert rows_of("tracks", found) == []


def test_frames_with_which_no_clip_ends_have_no_rows(tmp_path):
    (tmp_path / "clip.onnx").write_bytes(networks.of_clips([1, 3, 2, 8, 16], [1, 3, 4]))
    options = {"class_scores": "probabilities", "score_threshold": 0, "interval": 2}
    detector = gsttrt.Detector(tmp_path / "clip.onnx", backend="rten", **options)
    pictures = [numpy.full((8, 16, 3), level, numpy.uint8) for level in (10, 20, 30, 40, 50)]
    found = [(picture, detector(picture)) for picture in pictures]
    rows = rows_of("objects", found)
    assert [row["frame"] for row in rows] == [1, 1, 3, 3] and {row["class_id"] for row in rows} == {0, 1}
    assert [(frame["count"], len(frame["objects"])) for frame in rows_of("frames", found)] == [(0, 0), (2, 2), (0, 0), (2, 2), (0, 0)]
    assert rows_of("frames", found[:1])[0]["objects"] == rows_of("objects", found[:1]) == rows_of("tracks", found) == []


def test_a_map_has_no_column():
    # That of a model of clips comes after some frames only.
    with pytest.raises(gsttrt.SettingsError, match="map for each frame"):
        rows_of("objects", results("shapes", "rooms-depth", 1, threads=1))


def test_tables_of_many_frames_are_small_and_complete(monkeypatch):
    monkeypatch.setattr(_rows, "TOGETHER", 2)
    found = results("sample", "shapes", 5, threads=1)
    rows = _rows.ObjectRows()
    for index, (_, result) in enumerate(found):
        rows.add(index, result)
    tables = list(rows.tables("a.mp4", "It ends here."))
    assert [sorted(set(table["frame"].to_pylist()), key=str) for table in tables] == [[0, 1], [2, 3], [4], [None]]
    assert tables[-1].to_pylist()[0]["error"] == "It ends here."
    assert [len(table) for table in _rows.FrameRows().tables("a.mp4", None)] == [0]


def test_frames_without_objects_have_empty_lists():
    found = results("sample", "shapes", 2, threads=1, score_threshold=0.999)
    assert [(row["count"], row["objects"]) for row in rows_of("frames", found)] == [(0, []), (0, [])]
    assert rows_of("objects", found) == []


def test_the_page_has_the_columns():
    page = (TESTS.parent / "docs/archives.md").read_text(encoding="utf-8")
    listed = set()
    for line in re.findall(r"^\| (`.*?) \| (.*?) \|", page, re.M):
        listed |= set(itertools.product(re.findall(r"`(\w+)`", line[0]), [line[1].split(",")[0]]))
    kinds = {"string": "text", "int32": "int32", "int64": "int64", "float": "float32", "double": "float64"}
    for schema in _rows.SCHEMAS.values():
        for field in schema:
            wanted = "list" if pyarrow.types.is_list(field.type) else kinds[str(field.type)]
            assert any(name == field.name and kind.startswith(wanted) for name, kind in listed), field

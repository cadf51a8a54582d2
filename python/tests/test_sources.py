# SPDX-License-Identifier: MPL-2.0
"""Videos, folders of images, and the command line."""

import functools
import http.server
import itertools
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import types

import numpy
import pytest
from conftest import clip, model
from PIL import Image

import gsttrt
from gsttrt import __main__ as program
from gsttrt import _whole, video
from gsttrt.video import open_source


def test_a_video_may_be_left_early_and_played_again(detector):
    for _ in range(2):
        frames = gsttrt.detect(clip("sample"), detector)
        frame, result = next(frames)
        assert frame.shape == (360, 640, 3) and frame.dtype == numpy.uint8 and frame.flags.writeable
        assert result.time == 0 and len(result) > 0
        frames.close()


def test_a_video_is_read_to_its_end(detector):
    small = gsttrt.Detector(model("shapes-cls"), backend="rten")
    times = [result.time for _, result in gsttrt.detect(f"file://{clip('classes')}", small)]
    assert len(times) > 3 and times == sorted(times)


def test_a_video_that_is_cut_off_is_an_error_at_its_end(tmp_path):
    whole, cut = tmp_path / "whole.mp4", tmp_path / "cut.mp4"
    line = f"filesrc location={clip('classes')} ! qtdemux ! h264parse ! mp4mux faststart=true ! filesink location={whole}"
    subprocess.run(["gst-launch-1.0", "-q", *line.split()], check=True)
    data = whole.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    count = sum(1 for _ in open_source(whole))
    for source in (cut, f"file://{cut}"):
        seen = 0
        with pytest.raises(gsttrt.ReadError, match=f"to its end: {len(data) // 2} of {len(data)} bytes are there"):
            for _ in open_source(source):
                seen += 1
        assert 0 < seen < count


def test_a_file_is_as_long_as_it_says(tmp_path):
    def missing(data):
        (tmp_path / "a").write_bytes(data)
        return _whole.missing(str(tmp_path / "a"))

    start = b"\0\0\0\x0cftypisom"
    mp4 = start + b"\0\0\0\1mdat" + (18).to_bytes(8, "big") + b"12"
    riff = b"RIFF" + (8).to_bytes(4, "little") + b"AVI 1234"
    mkv = b"\x1a\x45\xdf\xa3\x81\0\x18\x53\x80\x67\x40\x03123"
    for whole in (mp4, riff, mkv):
        assert missing(whole) is None
        assert missing(whole[:-1]) == f"{len(whole) - 1} of {len(whole)} bytes are there"
    assert missing(mp4[:15]) and missing(mp4[:21]), "half a header"
    # Nothing tells it.
    for data in (mkv[:10] + b"\xff12", start + b"\0\0\0\0mdat12", b"RIFF\xff\xff\xff\xffAVI ", mp4 + b"\0\0\0\2####", b"some text", b""):
        assert missing(data) is None
    assert _whole.missing(str(tmp_path / "none")) is None


def test_frames_from_before_an_error_are_given(monkeypatch):
    samples = ["first", "second"]
    error = types.SimpleNamespace(parse_error=lambda: (types.SimpleNamespace(message="It is damaged."), ""))
    out = types.SimpleNamespace(emit=lambda *_: samples.pop(0) if samples else None, get_property=lambda _: False)
    bus = types.SimpleNamespace(pop_filtered=lambda _: error)
    pipeline = types.SimpleNamespace(get_by_name=lambda _: out, get_bus=lambda: bus, set_state=lambda _: 1)
    Gst = types.SimpleNamespace(
        SECOND=10**9,
        State=types.SimpleNamespace(PLAYING=4, NULL=1),
        MessageType=types.SimpleNamespace(ERROR=2),
        StateChangeReturn=types.SimpleNamespace(FAILURE=0),
    )
    monkeypatch.setattr(video, "picture", lambda _, sample: sample)
    found = []
    with pytest.raises(gsttrt.ReadError, match="Cannot read a.mp4: It is damaged"):
        for each in video.pull(Gst, pipeline, "a.mp4", None):
            found.append(each)
    assert found == ["first", "second"]


def test_live_streams_are_known_by_their_scheme():
    assert all(video.is_live(each) for each in (0, "rtsp://a/b", "RTSP://a/b", "rtspt://a", "v4l2:///dev/video0"))
    assert not any(video.is_live(each) for each in ("rtsp-of-today.mp4", "http://a/b.mp4", pathlib.Path("rtsp://a"), ["rtsp://a"]))


def test_a_video_of_a_server_has_all_its_frames(short_clip):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(short_clip.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = list(open_source(f"http://127.0.0.1:{server.server_address[1]}/{short_clip.name}"))
        server.shutdown()
    wanted = list(open_source(short_clip))
    assert [time for _, time in found] == [time for _, time in wanted] and len(wanted) > 2
    assert all((frame == same).all() for (frame, _), (same, _) in zip(found, wanted))


class HalfWay(http.server.BaseHTTPRequestHandler):
    """A file without its parts: having sent half of it, it waits whether somebody hangs up to ask for another part."""

    def do_GET(self):
        data = pathlib.Path(clip("shapes")).read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "video/mp4")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data[: len(data) // 2])
            select.select([self.connection], [], [], 0.5)
            self.wfile.write(data[len(data) // 2 :])
        except OSError:
            pass  # somebody hung up

    def log_message(self, *_):
        pass


def test_a_video_with_its_tables_at_the_end_needs_no_parts_of_files():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HalfWay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = sum(1 for _ in open_source(f"http://127.0.0.1:{server.server_address[1]}/shapes.mp4", timeout=10))
        server.shutdown()
    assert found == sum(1 for _ in open_source(clip("shapes")))


def test_names_of_files_may_be_any_bytes(short_clip, image, tmp_path):
    odd = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    odd.write_bytes(short_clip.read_bytes())
    assert sum(1 for _ in open_source(odd)) == sum(1 for _ in open_source(short_clip))
    assert video.path_of(odd.as_uri()) == str(odd) and video.path_of("FILE:///a%20b") == "/a b" and video.path_of("http://a/b") is None
    Image.fromarray(image).save(tmp_path / "\u24600101.png")
    assert sum(1 for _ in open_source(tmp_path)) == 1, "a digit in a circle is no number"


def test_images_come_in_the_order_of_their_numbers(detector, image, tmp_path):
    for number, width in ((10, 100), (9, 90), (1, 50)):
        Image.fromarray(image[:60, :width, ::-1]).save(tmp_path / f"frame{number}.png")
    (tmp_path / "notes.txt").write_text("no image")
    widths = [(frame.shape, result.width, result.time) for frame, result in gsttrt.detect(tmp_path, detector)]
    assert widths == [((60, width, 3), width, None) for width in (50, 90, 100)]
    [(frame, _)] = gsttrt.detect(str(tmp_path / "frame9.png"), detector)
    assert (frame == image[:60, :90]).all(), "in BGR"
    listed = gsttrt.detect([tmp_path / "frame10.png", tmp_path / "frame1.png"], detector, tracker="iou")
    assert [result.width for _, result in listed] == [100, 50] and result_has_ids(tmp_path, detector)


def result_has_ids(folder, detector) -> bool:
    return all(result.track_id is not None for _, result in gsttrt.detect(folder, detector, tracker="iou"))


def test_wrong_sources_are_errors(detector, tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file none.mp4"):
        gsttrt.detect("none.mp4", detector)
    with pytest.raises(gsttrt.NotFoundError, match="no image in the folder"):
        gsttrt.detect(tmp_path, detector)
    (tmp_path / "bad.mp4").write_bytes(b"hello")
    with pytest.raises(gsttrt.ReadError, match=r"Cannot read file://.*bad\.mp4: "):
        next(gsttrt.detect(tmp_path / "bad.mp4", detector))
    # Its index would come last.
    with open(clip("classes"), "rb") as file:
        (tmp_path / "cut.mp4").write_bytes(file.read(100_000))
    with pytest.raises(gsttrt.ReadError, match=r"The file is cut off: 100000 of \d+ bytes are there. Copy or record it again"):
        next(gsttrt.detect(tmp_path / "cut.mp4", detector))
    with pytest.raises(gsttrt.ReadError, match="Cannot read nonsense://"):
        next(gsttrt.detect("nonsense://a", detector))
    with pytest.raises(gsttrt.InputError, match="a detector already.*score_threshold"):
        gsttrt.detect(clip("sample"), detector, score_threshold=0.5)


def test_sources_of_a_wrong_type_are_errors(detector, monkeypatch):
    for wrong in (None, 1.5, [3], object()):
        with pytest.raises(gsttrt.InputError, match="is no source"):
            gsttrt.detect(wrong, detector)
    with pytest.raises(gsttrt.InputError, match="The source is empty"):
        gsttrt.detect("", detector)
    with pytest.raises(gsttrt.NotFoundError, match="no camera /dev/video99: "):
        gsttrt.detect(99, detector)
    with pytest.raises(gsttrt.InputError, match="is no tracker"):
        gsttrt.detect(clip("sample"), detector, tracker=5)
    with pytest.raises(gsttrt.SettingsError, match=r'Tracker\("bytetrack", track_thresh=0.3\)'):
        gsttrt.detect(clip("sample"), model("shapes"), tracker="bytetrack", track_thresh=0.3)


def test_patterns_name_images(detector, image, tmp_path):
    for number in (10, 9):
        Image.fromarray(image[:60, : number * 10, ::-1]).save(tmp_path / f"frame{number}.png")
    assert [result.width for _, result in gsttrt.detect(f"{tmp_path}/frame*.png", detector)] == [90, 100]
    with pytest.raises(gsttrt.NotFoundError, match="No image matches"):
        gsttrt.detect(f"{tmp_path}/*.jpg", detector)


def test_opencv_reads_videos_where_gstreamer_is_not(detector, monkeypatch):
    pytest.importorskip("cv2")
    wanted = [(frame, result.time) for frame, result in itertools.islice(gsttrt.detect(clip("sample"), detector), 5)]
    monkeypatch.setitem(sys.modules, "gi", None)
    found = list(itertools.islice(gsttrt.detect(clip("sample"), detector), 5))
    assert len(found) == 5
    for (frame, result), (image, time) in zip(found, wanted):
        assert frame.shape == image.shape and abs(frame.astype(int) - image.astype(int)).mean() < 4
        assert abs(result.time - time) < 1e-3
    assert found[0][1].names
    with pytest.raises(gsttrt.ReadError, match="OpenCV does not open it"):
        next(gsttrt.detect("nonsense://a", detector))


def test_opencv_tells_an_end_from_a_failure(monkeypatch):
    monkeypatch.setitem(sys.modules, "gi", None)
    cv2 = types.SimpleNamespace(
        CAP_ANY=0,
        **{f"CAP_PROP_{name}": name for name in ("OPEN_TIMEOUT_MSEC", "READ_TIMEOUT_MSEC", "POS_MSEC", "FRAME_COUNT", "FPS")},
    )
    monkeypatch.setitem(sys.modules, "cv2", cv2)

    class Capture:
        """A video at 25 frames a second. It is said to have other numbers of them."""

        there, said = 100, {"FRAME_COUNT": 100.0, "FPS": 25.0}

        def __init__(self, *given):
            self.given.append(given)
            self.count = 0

        given: list = []

        def isOpened(self):
            return True

        def read(self):
            self.count += 1
            return self.count <= self.there, None

        def get(self, name):
            return {**self.said, "POS_MSEC": 40.0 * (self.count - 1)}[name]

        def release(self):
            pass

    cv2.VideoCapture = Capture
    address = "http://me:hush@host/a.mp4"
    for count, rate in ((100.0, 25.0), (105.0, 25.0), (-1.0, 25.0), (0.0, 0.0), (200.0, 50.0)):
        Capture.said = {"FRAME_COUNT": count, "FPS": rate}
        assert sum(1 for _ in open_source(address)) == 100, (count, rate)
    assert Capture.given[-1] == (address,)
    Capture.said = {"FRAME_COUNT": 200.0, "FPS": 25.0}
    with pytest.raises(gsttrt.ReadError, match=r"Cannot read http://\*\*\*@host/a.mp4 to its end: 100 of 200 frames came"):
        list(open_source(address, timeout=3))
    assert Capture.given[-1] == (address, 0, ["OPEN_TIMEOUT_MSEC", 3000, "READ_TIMEOUT_MSEC", 3000])
    Capture.said = {"FRAME_COUNT": 100.0, "FPS": 25.0}
    monkeypatch.setattr(video, "monotonic", itertools.count(step=5).__next__)
    with pytest.raises(gsttrt.ReadError, match="no frame came for 3 s"):
        list(open_source(address, timeout=3))


def test_without_gstreamer_and_opencv_a_video_is_refused(detector, monkeypatch):
    monkeypatch.setitem(sys.modules, "gi", None)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(gsttrt.LibraryError, match="python3-gi.*--system-site-packages.*opencv-python-headless"):
        gsttrt.detect(clip("sample"), detector)


def test_without_ray_its_command_says_what_to_install(tmp_path):
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError(\"No module named 'pyarrow'\")\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "gsttrt.ray", "archive", "--model", "m.onnx", "--out", "found"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths})
    assert ran.returncode == 1
    assert ran.stderr == "Error: Ray Data is not installed: No module named 'pyarrow'. Use pip install \"ray[data]>=2.60\".\n"


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "gsttrt", *arguments], capture_output=True, text=True)


def test_env_puts_the_plugin_where_gstreamer_finds_it(tmp_path):
    line = run("env").stdout
    assert re.fullmatch(r"export GST_PLUGIN_PATH=\S+\n", line)
    environment = {"PATH": os.environ["PATH"], "GST_REGISTRY": str(tmp_path / "registry"), "GST_PLUGIN_PATH": "/elsewhere"}
    script = f'{line} echo "$GST_PLUGIN_PATH"; gst-inspect-1.0 trtinfer >/dev/null && echo found'
    shell = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True)
    assert shell.stdout.split() == [f"{gsttrt.plugin_path()}:/elsewhere", "found"], shell.stderr


def test_the_program_prints_json(tmp_path, image, capsys):
    Image.fromarray(image[..., ::-1]).save(tmp_path / "a.png")
    assert program.main(["detect", str(tmp_path / "a.png"), model("shapes"), "backend=rten", "score-threshold=0.5"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert list(line) == ["stream-time", "frame", "width", "height", "held", "detections"]
    assert (line["frame"], line["stream-time"], line["width"], line["height"], line["held"]) == (0, None, 640, 360, False)
    assert line["detections"] and all(each["confidence"] >= 0.5 for each in line["detections"])
    assert program.main(["detect", str(tmp_path / "a.png"), model("shapes-cls")]) == 0
    assert json.loads(capsys.readouterr().out)["classes"][0].keys() == {"label", "class-id", "confidence"}
    assert program.main(["detect", "none.mp4", model("shapes")]) == 1
    assert capsys.readouterr().err == "Error: There is no file none.mp4. Check the path.\n"
    for taken in ("source", "model"):
        assert program.main(["detect", str(tmp_path), model("shapes"), f"{taken}=a"]) == 1
        assert capsys.readouterr().err.startswith(f"Error: There is no option {taken}: ")
    assert program.main(["detect", str(tmp_path), model("shapes"), "threads"]) == 1
    assert "Write name=value" in capsys.readouterr().err
    assert run("--version").stdout == f"gsttrt {gsttrt.__version__}\n"


def test_the_json_of_the_program_is_utf_8_in_any_locale(tmp_path, image):
    Image.fromarray(image[..., ::-1]).save(tmp_path / "a.png")
    (tmp_path / "labels.txt").write_text("円盤\nKästchen\n", encoding="utf-8")
    command = [sys.executable, "-m", "gsttrt", "detect", str(tmp_path / "a.png"), model("shapes"), f"label-file={tmp_path}/labels.txt"]
    for encoding in ("latin-1", "ascii"):
        ran = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding})
        assert ran.returncode == 0, ran.stderr
        assert {each["label"] for each in json.loads(ran.stdout.decode("utf-8"))["detections"]} == {"円盤", "Kästchen"}


def test_the_program_ends_with_the_status_of_an_interrupt(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "detect", interrupted)
    assert program.main(["detect", "a.mp4", "a.onnx"]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_files_that_cannot_be_looked_at_are_errors(detector, tmp_path, monkeypatch):
    # Later versions of Python say that it is not there.
    with pytest.raises((gsttrt.ReadError, gsttrt.NotFoundError), match=r"a+\.png.*Check the path"):
        gsttrt.detect("a" * 300 + ".png", detector)

    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "iterdir", refuse)
    with pytest.raises(gsttrt.ReadError, match=f"^Cannot read {re.escape(str(tmp_path))}: Permission denied"):
        gsttrt.detect(tmp_path, detector)


def test_the_program_tells_warnings_in_a_line(tmp_path, image):
    Image.fromarray(image).save(tmp_path / "a.png")
    ran = run("detect", str(tmp_path / "a.png"), model("shapes-cls"), "backend=rten", "precision=fp16")
    assert ran.returncode == 0 and re.fullmatch(r"Warning: precision has no effect: .*\.\n", ran.stderr), ran.stderr


def test_a_reader_may_stop_reading():
    script = f"'{sys.executable}' -m gsttrt detect '{clip('sample')}' '{model('shapes')}' backend=rten | head -n 1"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert json.loads(shell.stdout)["frame"] == 0 and shell.stderr == ""


def test_the_package_is_typed_and_documented():
    folder = os.path.dirname(gsttrt.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed")) and os.path.exists(os.path.join(folder, "LICENSE"))
    for name in gsttrt.__all__:
        assert getattr(gsttrt, name).__doc__, name


def test_the_command_says_what_it_cannot_write():
    command = [sys.executable, "-m", "gsttrt", "detect", clip("sample"), model("shapes"), "backend=rten"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    said = "Error: Cannot write the lines: No space left on device. Make room on that disk, or write to another one.\n"
    assert ended.returncode == 1 and ended.stderr.endswith(said) and "Traceback" not in ended.stderr, ended.stderr

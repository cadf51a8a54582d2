# SPDX-License-Identifier: MPL-2.0
"""The code in the pages runs, and the container's files are there."""

import os
import re
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import networks
import numpy
import pytest
from conftest import TESTS, model
from PIL import Image

import gsttrt

ROOT = TESTS.parent


def blocks(page: str, language: str) -> list:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)


@pytest.fixture
def furnished(tmp_path, image, short_clip, monkeypatch):
    """A folder with what the reader has, and the packages of others that the pages use: cv2 reads images, supervision takes arrays."""
    Image.fromarray(image[..., ::-1]).save(tmp_path / "street.jpg")
    shutil.copy(model("shapes"), tmp_path / "yolo11n.onnx")
    shutil.copy(short_clip, tmp_path / "a.mp4")
    (tmp_path / "reid.onnx").write_bytes(networks.colours())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    cv2, supervision = types.ModuleType("cv2"), types.ModuleType("supervision")
    cv2.imread = lambda path: numpy.asarray(Image.open(path))[..., ::-1]
    supervision.Detections = lambda **arguments: arguments
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    monkeypatch.setitem(sys.modules, "supervision", supervision)


PYTHON = [(page, code) for page in ("README.md", "docs/python.md", "python/README.md") for code in blocks(page, "python")]


@pytest.mark.parametrize("page, code", PYTHON)
def test_code_of_the_pages_runs(furnished, page, code):
    # The model of the tests has other classes.
    exec(compile(code.replace('"person", "car"', '"disc"'), page, "exec"), {})


def test_the_package_has_right_types(tmp_path):
    pytest.importorskip("mypy")
    options = ["--config-file", str(ROOT / "python/pyproject.toml"), "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    run = subprocess.run([sys.executable, "-m", "mypy", *options, "-p", "gsttrt"], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_code_of_the_pages_has_right_types(tmp_path):
    pytest.importorskip("mypy")
    checked = [code for page, code in PYTHON if "gsttrt" in code and "gi.repository" not in code]
    assert len(checked) > 4
    for index, code in enumerate([*checked, TYPES]):
        (tmp_path / f"code{index}.py").write_text(code)
    # To OpenCV's types imread() may give None, which a page need not say.
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\nignore_missing_imports = true\n[mypy-cv2.*]\nfollow_imports = skip\nfollow_imports_for_stubs = true\n")
    strict = ["-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    files = sorted(str(path) for path in tmp_path.glob("*.py"))
    run = subprocess.run([sys.executable, *strict, *files], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


# What is right, and, where mypy must object, a comment that mypy would call unused if it did not.
TYPES = """
from pathlib import Path
import gsttrt, numpy

detector = gsttrt.Detector("a.onnx", input_size=320)
detector("a.jpg").xyxy, detector(Path("a.jpg")).xyxy, detector(numpy.zeros((9, 9, 3), numpy.uint8)).xyxy
detector(["a.jpg", Path("b.jpg")])[0].names
frames = [numpy.zeros((9, 9, 3), numpy.uint8)]
paths = ("a.jpg", "b.jpg")
detector(frames)[0].names, detector(paths)[0].names, detector(list(paths), color="rgb")[0].names
for each in detector.batch(frames):
    each.names
for each in detector.batch(Path(path) for path in paths):
    each.names
outputs = gsttrt.Session("a.onnx", batch_size=4)(numpy.zeros((4, 3, 9, 9), numpy.float32))
outputs["a"].shape, gsttrt.Tracker("iou").update(detector("a.jpg")).track_id
for frame, found in gsttrt.detect(0, detector, tracker="iou"):
    frame.shape, found.xyxy[0], found.time
detector.batch(3)  # type: ignore[arg-type]
detector([3])  # type: ignore[list-item]
gsttrt.Detector("a.onnx", precision="fp16", score_threshold=0.4, class_thresholds={"car": 0.5}, threads=2)
gsttrt.Detector("a.onnx", score_thresold=0.4)  # type: ignore[call-arg]
gsttrt.Detector("a.onnx", threads="two")  # type: ignore[arg-type]
gsttrt.Session("a.onnx", score_threshold=0.4)  # type: ignore[call-arg]
gsttrt.Tracker("iou", track_tresh=0.4)  # type: ignore[call-arg]
gsttrt.detect("a.mp4", "a.onnx", classes=["person"], batch_size=8, mask_output="map")
gsttrt.detect(1.5, detector)  # type: ignore[arg-type]
detector("a.jpg")[0].plot().shape
for each in detector("a.jpg"):
    each.save("a.png")
detector(3)  # type: ignore[call-overload]
detector("a.jpg", color="hsv")  # type: ignore[call-overload]
gsttrt.Detector("a.onnx", backend="gpu")  # type: ignore[arg-type]
"""


def test_the_page_names_all_that_is_public():
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    code = " ".join([*re.findall(r"```\w*\n(.*?)```", page, re.S), *re.findall(r"`([^`\n]+)`", page)])
    named = set(re.findall(r"\w+", code))
    session = gsttrt.Session(model("shapes-cls"), backend="rten")
    result = gsttrt.Detector(model("shapes"), backend="rten")(numpy.zeros((9, 9, 3), numpy.uint8))
    public = set(gsttrt.__all__)
    for each in (gsttrt.Detector, gsttrt.Tracker, gsttrt.Map, gsttrt.Probs, gsttrt.TensorInfo, session, result):
        public |= {name for name in dir(each) if not name.startswith("_")} - set(dir(tuple))
    assert len(public) > 50 and sorted(public - named) == []


def test_the_commands_of_the_page_run(furnished):
    [lines] = blocks("docs/python.md", "sh")
    program = f"python() {{ '{sys.executable}' \"$@\"; }}\n"
    run = subprocess.run(["bash", "-ec", program + lines], capture_output=True, text=True, env={**os.environ, "GST_PLUGIN_PATH": ""})
    assert run.returncode == 0 and '"detections"' in run.stdout and "trtinfer" in run.stdout, run.stderr


def test_the_page_on_installing_names_what_is_there():
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    [wheel] = (Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "wheels").glob("gsttrt-*.whl")
    assert f"gsttrt-{gsttrt.__version__}-py3-none-manylinux_" in page and f"gst-plugin-trt_{gsttrt.__version__}_amd64.deb" in page
    assert "x86_64" not in wheel.name or wheel.name in page
    for script in re.findall(r"^((?:packaging|python)/[a-z0-9.]+)", "\n".join(blocks("docs/install.md", "sh")), re.M):
        assert os.access(ROOT / script, os.X_OK), script


def test_pip_builds_the_wheel_that_is_tested(tmp_path):
    pytest.importorskip("mypy", reason="pip gets what builds it from the network, so this is for released wheels")
    [wheel] = (Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "wheels").glob("gsttrt-*.whl")
    pip = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT / "python")]
    subprocess.run([sys.executable, *pip], check=True)
    [built] = tmp_path.iterdir()
    contents = [{each.filename: each.CRC for each in zipfile.ZipFile(file).infolist()} for file in (wheel, built)]
    assert built.name == wheel.name and contents[0] == contents[1]


def test_files_of_the_container_are_there():
    text = (ROOT / "packaging/Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {line[0] for line in lines} <= known and lines[0] == ["ARG", "BASE=docker.io/library/debian:bookworm-slim"]
    # Kubernetes knows that a user is not root only by a number.
    assert [line for line in lines if line[0] == "USER"] == [["USER", "10001:10001"]]
    stages = {line[3] for line in lines if line[0] == "FROM" and line[2:3] == ["AS"]}
    copied = 0
    for line in (line for line in lines if line[0] == "COPY"):
        if line[1].startswith("--from="):
            assert line[1].removeprefix("--from=") in stages
            continue
        for path in line[1:-1]:
            assert (ROOT / path).exists(), path
            copied += 1
    members = re.search(r"members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.S)[1]
    needed = ["src", "packaging", *re.findall(r'"(.*?)"', members)]
    assert copied > 8 and all(any(each in line[1:-1] for line in lines if line[0] == "COPY") for each in needed)


def test_the_folder_of_sources_is_not_what_is_tested():
    assert ROOT not in Path(gsttrt.__file__).parents

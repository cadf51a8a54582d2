# SPDX-License-Identifier: MPL-2.0
"""Lists of images, which are run in batches, and streams of them."""

import itertools
import threading
import warnings

import networks
import numpy
import pytest
from conftest import OnGpu, clip, model
from PIL import Image

import gsttrt
from gsttrt import _library
from gsttrt._batches import WrongImage, in_batches, run_later
from gsttrt._options import OF_DETECTOR, AllOptions, TrackerOptions


def images(*kinds):
    """(width, height, brightness) of each"""
    return [numpy.full((height, width, 3), level, numpy.uint8) for width, height, level in kinds]


def counts(results) -> list:
    """How many were run together, of each."""
    return [round(result.confidence[0] * 10) for result in results]


@pytest.fixture
def counting(tmp_path):
    """A detector that tells how many images were run together."""

    def make(batch="n", height=64, width=64, **options) -> gsttrt.Detector:
        (tmp_path / "counter.onnx").write_bytes(networks.counter(batch, height, width))
        return gsttrt.Detector(tmp_path / "counter.onnx", backend="rten", score_threshold=0.01, **options)

    return make


KINDS = [(64, 64, 10), (90, 40, 200), (64, 64, 30), (20, 60, 90), (90, 40, 50), (64, 64, 250)]


@pytest.mark.parametrize(
    "batch, batch_size, together",
    [("n", None, [1] * 6), ("n", 1, [1] * 6), ("n", 4, [4, 4, 4, 4, 2, 2]), ("n", 64, [6] * 6), (4, None, [4] * 6), (1, None, [1] * 6)],
)
def test_lists_run_in_batches_with_the_results_of_one_by_one(counting, batch, batch_size, together):
    detector = counting(batch, batch_size=batch_size)
    assert detector.batch_size == (batch_size or (batch if batch != "n" else 1))
    given = images(*KINDS)
    results = detector(given)
    assert counts(results) == together
    for result, image in zip(results, given):
        one = detector(image)
        assert (result.xyxy == one.xyxy).all() and (result.width, result.height) == (one.width, one.height)
        assert (result.plot() == one.plot()).all() or batch != 1
    assert counts(detector.batch(tuple(given))) == counts(detector.batch(each for each in given)) == together
    stacked = numpy.stack(images(*[(64, 64, level) for level in (10, 200, 30)]))
    assert [round((result.xyxy[0, 0] - 22) * 25.5) for result in detector.batch(stacked)] == [10, 200, 30]
    assert detector([]) == detector(()) == list(detector.batch(iter([]))) == []


def test_a_fixed_batch_cannot_be_another(counting):
    with pytest.raises(gsttrt.SettingsError, match="batch_size is 3, but the model takes batches of 4.*Set batch_size=4, or"):
        counting(4, batch_size=3)
    with pytest.raises(gsttrt.SettingsError, match="batch_size=0.5"):
        counting(batch_size=0.5)


def test_images_of_one_size_of_the_input_are_run_together(counting):
    detector = counting(height="h", width="w", batch_size=4)
    kinds = [(64, 32, 10), (32, 64, 20), (128, 64, 30), (32, 64, 40), (64, 64, 50)]
    results = detector(images(*kinds))
    assert counts(results) == [2, 2, 2, 2, 1]
    for result, (width, height, level) in zip(results, kinds):
        assert abs(result.xyxy[0, 0] - (22 + 10 * level / 255) * max(width, height) / 64) < 0.01


def runs(results) -> float:
    return sum(1 / count for count in counts(results))


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_batches_are_full_but_for_the_last_one(counting, batch_size):
    detector = counting(height="h", width="w", batch_size=batch_size)
    for count in range(1, 14):
        given = images(*[(64, 32, level) for level in range(count)])
        for results in (detector(given), detector.batch(given), detector.batch(iter(given))):
            assert round(runs(results), 9) == -(-count // batch_size)


def test_batches_of_sizes_that_take_turns_are_full(counting):
    detector = counting(height="h", width="w", batch_size=4)
    kinds = [((64, 32), (32, 64), (64, 64))[number % 3] + (number * 5,) for number in range(48)]
    for results in (detector(images(*kinds)), detector.batch(each for each in images(*kinds))):
        results = list(results)
        assert counts(results) == [4] * 48
        for result, (width, height, level) in zip(results, kinds):
            assert (result.width, result.height) == (width, height)
            assert abs(result.xyxy[0, 0] - (22 + 10 * level / 255) * max(width, height) / 64) < 0.01


def test_a_rare_size_does_not_hold_up_the_others(counting):
    detector, read = counting(height="h", width="w", batch_size=2), []

    def given():
        for number in itertools.count():  # without end
            read.append(number)
            yield numpy.full((64, 32, 3) if number % 100 == 0 else (32, 64, 3), number % 256, numpy.uint8)

    results = detector.batch(given())
    assert counts([next(results)]) == [1] and len(read) == 8, "four batches at most are read before it is run alone"
    assert counts(itertools.islice(results, 6)) == [2] * 6
    assert max(read) < 8 + 6 + 2
    assert counts(itertools.islice(results, 293))[92:96] == [2, 1, 2, 2] and len(read) <= 300 + 8


def test_wrong_images_of_sizes_that_take_turns_are_named_in_order(counting, monkeypatch):
    detector = counting(height="h", width="w", batch_size=3)
    given = images(*[((64, 32), (32, 64))[number % 2] + (number * 20,) for number in range(10)])
    for wrong in range(10):
        found = []
        with pytest.raises(gsttrt.InputError, match=rf"^images\[{wrong}\]: "):
            for result in detector.batch([*given[:wrong], numpy.zeros((0, 8, 3), numpy.uint8), *given[wrong:]]):
                found.append(result.height)
        assert found == [each.shape[0] for each in given[:wrong]]


def test_real_models_find_the_same_in_lists(image):
    given = [image, image[:180, :320], image[::-1], image[:, ::-1]]
    for name in ("shapes", "shapes-seg", "shapes-cls", "shapes-obb", "figures-pose", "shapes-sem", "rooms-depth"):
        detector = gsttrt.Detector(model(name), backend="rten")
        for result, each in zip(detector.batch(given), given):
            assert result.to_json() == detector(each).to_json(), name


def test_no_more_images_are_read_than_are_run_together(counting):
    detector, read = counting(batch_size=3), []

    def given():
        for level in itertools.count():  # without end
            read.append(level)
            yield numpy.full((8, 8, 3), level % 256, numpy.uint8)

    results = detector.batch(given())
    assert read == []
    next(results)
    assert len(read) == 3
    assert counts(itertools.islice(results, 3)) == [3] * 3 and len(read) == 6
    results.close()


def test_a_wrong_image_is_named_after_the_results_of_those_before_it(counting, tmp_path):
    detector = counting(batch_size=4)
    good = numpy.zeros((8, 8, 3), numpy.uint8)
    for wrong, error, text in [
        (numpy.zeros((8, 8, 3)), gsttrt.InputError, r"^images\[5\]: The image has values of float64"),
        (numpy.zeros((0, 8, 3), numpy.uint8), gsttrt.InputError, r"^images\[5\]: .*8x0"),
        (tmp_path / "none.png", gsttrt.NotFoundError, r"^images\[5\]: There is no image"),
        (7, gsttrt.InputError, r"^images\[5\]: An object of type int"),
    ]:
        found = []
        with pytest.raises(error, match=text):
            for result in detector.batch([good] * 5 + [wrong, good]):
                found.append(result)
        assert len(found) == 5
        with pytest.raises(error, match=text):
            detector([good] * 5 + [wrong])

    def failing():
        yield from [good] * 5
        raise ZeroDivisionError("of the caller")

    found = []
    with pytest.raises(ZeroDivisionError, match="of the caller"):
        for result in detector.batch(failing()):
            found.append(result)
    assert len(found) == 5 and len(detector([good] * 3)) == 3


@pytest.fixture
def ahead(counting, monkeypatch):
    """A detector that runs images while others are read, as on a GPU."""

    def make(**options) -> gsttrt.Detector:
        detector = counting(**options)
        monkeypatch.setattr(detector, "_backend", "tensorrt")
        return detector

    return make


def test_the_next_images_are_read_while_these_are_run(ahead):
    detector, read = ahead(batch_size=3), []

    def given():
        for level in itertools.count():  # without end
            read.append(level)
            yield numpy.full((8, 8, 3), level % 256, numpy.uint8)

    results = detector.batch(given())
    assert read == []
    for number in range(12):
        result = next(results)
        assert round((result.xyxy[0, 0] / 8 * 64 - 22) * 25.5) == number and round(result.confidence[0] * 10) == 3
        assert len(read) == 6 + number // 3 * 3, "a batch more than the one whose results come"
    results.close()
    assert len(detector([numpy.zeros((8, 8, 3), numpy.uint8)] * 2)) == 2


@pytest.mark.parametrize("stream, is_here", [(None, False), (7, False), (2, True)])
def test_the_default_stream_of_a_thread_is_given_in_that_thread(ahead, monkeypatch, stream, is_here):
    detector, threads = ahead(batch_size=2), []
    detect = detector._detect

    def on_host(images):
        threads.append(threading.current_thread())
        return detect([each._replace(is_on_gpu=False) for each in images])

    monkeypatch.setattr(detector, "_detect", on_host)
    assert len(list(detector.batch(OnGpu((8, 8, 3), stream=stream) for _ in range(5)))) == 5
    assert [thread is threading.current_thread() for thread in threads] == [is_here] * 3


def test_one_by_one_an_image_may_lie_where_the_former_one_was(ahead):
    detector, image = ahead(batch_size=1), numpy.zeros((64, 64, 3), numpy.uint8)

    def given():
        for level in range(0, 60, 10):
            image[:] = level
            yield image

    assert [round((result.xyxy[0, 0] - 22) * 25.5) for result in detector.batch(given())] == [0, 10, 20, 30, 40, 50]


def test_lists_of_arrays_are_given_to_the_library_at_once(ahead, monkeypatch, tmp_path):
    detector, given = ahead(batch_size=2), []
    detect = detector._detect
    monkeypatch.setattr(detector, "_detect", lambda images: given.append(len(images)) or detect(images))
    for count, calls in [(1, [1]), (16, [16]), (17, [16, 1]), (40, [16, 16, 8])]:
        levels = [number * 6 for number in range(count)]
        for images in (detector([numpy.full((64, 64, 3), level, numpy.uint8) for level in levels]),
                       detector.batch(numpy.stack([numpy.full((64, 64, 3), level, numpy.uint8) for level in levels]))):
            found = [round((result.xyxy[0, 0] - 22) * 25.5) for result in images]
            assert (found, given) == (levels, calls)
            given.clear()
    Image.fromarray(numpy.zeros((8, 8, 3), numpy.uint8)).save(tmp_path / "a.png")
    assert len(detector([tmp_path / "a.png"] * 5)) == 5 and given == [2, 2, 1], "no more are read than are run"


@pytest.mark.parametrize("wrong", range(12))
def test_a_wrong_image_is_named_where_others_run_meanwhile(ahead, wrong):
    detector = ahead(height="h", width="w", batch_size=2)
    good = images(*[((64, 32), (32, 64))[number % 2] + (number * 20,) for number in range(12)])
    for bad in (numpy.zeros((0, 8, 3), numpy.uint8), numpy.zeros((8, 8, 3))):
        found = []
        with pytest.raises(gsttrt.InputError, match=rf"^images\[{wrong}\]: "):
            for result in detector.batch(iter([*good[:wrong], bad, *good[wrong + 1 :]])):
                found.append((result.width, result.height))
        assert found == [each.shape[1::-1] for each in good[:wrong]]


def test_what_is_wrong_in_a_run_is_told_after_the_results_before_it():
    """Runs of images that are found to be wrong only when their results are asked for, in any order of their kinds."""
    for kinds, wrong in itertools.product(itertools.product("ab", repeat=6), range(6)):
        runs = []

        def run(numbers):
            runs.append(numbers)
            if wrong in numbers:
                raise WrongImage(numbers.index(wrong), gsttrt.InputError, "wrong")
            return [10 * number for number in numbers]

        for goes_ahead in (False, True):
            found = []
            with pytest.raises(gsttrt.InputError, match=rf"^images\[{wrong}\]: wrong$"):
                for each in in_batches(iter(range(6)), 2, kinds.__getitem__, run_later(run), goes_ahead):
                    found.append(each)
            assert found == [10 * number for number in range(wrong)], (kinds, wrong, runs)


def test_one_image_is_no_list(detector, image, tmp_path):
    for one in (image, image[..., 0], "a.jpg", tmp_path / "a.jpg", Image.fromarray(image)):
        with pytest.raises(gsttrt.InputError, match=r"One image is given.*Use detector\(image\)"):
            detector.batch(one)
    with pytest.raises(gsttrt.InputError, match="type int is no list of images"):
        detector.batch(3)
    with pytest.raises(gsttrt.InputError, match="color is "):
        detector.batch([image], color="hsv")
    with pytest.raises(gsttrt.InputError, match=r"type generator is no image.*detector\.batch\(\)"):
        detector(each for each in [image])


def test_frames_of_a_video_are_run_in_batches(counting):
    for batch_size in (1, 4):
        detector = counting(batch_size=batch_size)
        found = list(itertools.islice(gsttrt.detect(clip("sample"), detector, tracker="iou"), 6))
        assert counts(result for _, result in found) == [batch_size] * 6
        times = [result.time for _, result in found]
        assert times == sorted(set(times)) and times[0] == 0
        for frame, result in found:
            assert abs(result.xyxy[0, 0] - detector(frame).xyxy[0, 0]) < 1e-4 and result.track_id is not None


@pytest.mark.parametrize(
    "dims, axes", [([1, 3, 2, 8, 16], [1, 3, 4]), ([1, 2, 3, 8, 16], [2, 3, 4]), ([1, 2, 8, 16, 3], [2, 3, 4]), ([1, 2, 1, 8, 16], [2, 3, 4])]
)
def test_a_video_begins_with_a_clip_of_its_own_frames(tmp_path, dims, axes):
    def seen(result) -> list:
        """The brightness of each frame that the model has seen."""
        if result.probs is None:
            return []
        return [round(float(each) * 255) for each in result.probs.confidence[numpy.argsort(result.probs.class_id)]]

    (tmp_path / "clip.onnx").write_bytes(networks.of_clips(dims, axes))
    options = {"backend": "rten", "class_scores": "probabilities", "score_threshold": 0}
    for step, wanted in [(1, [[], [10, 20], [20, 30]]), (2, [[], [], [10, 30]])]:
        levels = [10 * (number + 1) for number in range(len(wanted))]
        paths = [tmp_path / f"{level}.png" for level in levels]
        for path, level in zip(paths, levels):
            Image.fromarray(numpy.full((8, 16, 3), level, numpy.uint8)).save(path)
        with gsttrt.Detector(tmp_path / "clip.onnx", frame_step=step, **options) as detector:
            assert [seen(result) for result in detector.batch(paths)] == wanted, "the black images of its beginning are in none"
            for _ in range(2):
                assert [seen(result) for _, result in gsttrt.detect(paths, detector)] == wanted, "nor are frames of another video"
        # What does not fit is told before the first image.
        with pytest.warns(UserWarning, match="iou_threshold has no effect"):
            gsttrt.Detector(tmp_path / "clip.onnx", frame_step=step, iou_threshold=0.7, **options).close()


def test_a_session_takes_several_images(counting, tmp_path):
    counting()
    with gsttrt.Session(tmp_path / "counter.onnx", backend="rten", batch_size=2) as session:
        assert (session.batch_size, session.input.shape, session.outputs[0].shape) == (2, (1, 3, 64, 64), (1, 1, 6))
        assert repr(session).endswith("counter.onnx: rten, images 1x3x64x64, output0 1x1x6>")
        several = numpy.zeros((5, 3, 64, 64), numpy.float32) + numpy.arange(5, dtype=numpy.float32).reshape(5, 1, 1, 1)
        rows = session(several)["output0"]
        assert rows.shape == (5, 1, 6)
        assert numpy.allclose(rows[:, 0, 0], 22 + 10 * numpy.arange(5)) and numpy.allclose(rows[:, 0, 4], [0.2, 0.2, 0.2, 0.2, 0.1])
        for wrong in (several[:0], several[:, :2], several[0], several.astype(numpy.float64)):
            with pytest.raises(gsttrt.InputError, match="several may be joined"):
                session(wrong)


def test_options_without_effect_are_warnings(tmp_path):
    for make in (gsttrt.Detector, gsttrt.Session):
        for name, value in [("precision", "fp16"), ("cuda_device_id", 0), ("execution_providers", "cpu"), ("workspace_mib", 64)]:
            with pytest.warns(UserWarning, match=f"^{name} has no effect: the model runs on the CPU") as told:
                make(model("shapes-cls"), backend="rten", **{name: value})
            assert len(told) == 1 and told[0].filename == __file__ and "-" not in str(told[0].message).split(":")[0]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(model("shapes-cls"), backend="rten", threads=1, batch_size=1, precision="auto")
        with pytest.raises(gsttrt.SettingsError, match="cuda_graph=on needs TensorRT"):
            make(model("shapes-cls"), backend="rten", cuda_graph="on")
    for name, options, without in [
        ("shapes", {"top_k": 3}, "top_k has no effect: .* top_k is for classifiers. Leave it unset"),
        ("shapes", {"mask_output": "map", "class_scores": "logits"}, "mask_output, class_scores have no effect: .*Leave them unset"),
        ("shapes-cls", {"iou_threshold": 0.7}, "iou_threshold has no effect: .* boxes repeat each other"),
        ("rooms-depth", {"score_threshold": 0.5}, "score_threshold has no effect: .* give scores"),
        ("shapes-cls", {"pad_value": 0}, "pad_value has no effect: it is for letterbox .* by center-crop"),
    ]:
        with pytest.warns(UserWarning, match=without) as told:
            detector = gsttrt.Detector(model(name), backend="rten", **options)
        assert len(told) == 1 and told[0].filename == __file__ and not any("no effect" in note for note in detector.notes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gsttrt.Detector(model("shapes"), backend="rten", top_k=5, iou_threshold=0.3, max_detections=3, class_agnostic=True)
        gsttrt.Detector(model("shapes-seg"), backend="rten", mask_output="map")
        gsttrt.Detector(model("shapes-cls"), backend="rten", top_k=1, score_threshold=0.5, class_scores="logits")
        gsttrt.Detector(model("shapes-cls"), backend="rten", resize="stretch", tensor_colors="bgr", scale=0.01, pad_value=-1)
    with pytest.warns(UserWarning, match="upload has no effect") as told:
        gsttrt.detect(clip("sample"), model("shapes-cls"), backend="rten", upload="mapped")
    assert told[0].filename == __file__, "the line that asked for it"
    with pytest.raises(gsttrt.SettingsError, match="The options are ") as error:
        gsttrt.Session(model("shapes-cls"), nonsense=1)
    known = str(error.value).split("The options are ")[1].rstrip(".").split(", ")
    assert set(known) == AllOptions.__optional_keys__ > OF_DETECTOR, "what type checkers know is what there is"
    with pytest.raises(gsttrt.SettingsError, match="The options are ") as error:
        gsttrt.Tracker(nonsense=1)
    assert set(str(error.value).split("The options are ")[1].rstrip(".").split(", ")) == TrackerOptions.__optional_keys__ | {"tracker"}
    for name in (*OF_DETECTOR, "label-file"):
        with pytest.raises(gsttrt.SettingsError, match="has no effect: a Session gives the outputs as they are"):
            gsttrt.Session(model("shapes-cls"), **{name: "1"})
    with pytest.raises(gsttrt.SettingsError, match="frames=2 is for models that see several frames"):
        gsttrt.Session(model("shapes-cls"), backend="rten", frames=2)  # it has an effect: on the tensor


@pytest.mark.parametrize("backend", ["rten", "tensorrt"])
def test_what_is_wrong_with_the_numbers_of_a_later_image_is_told_once(tmp_path, monkeypatch, backend):
    (tmp_path / "overflows.onnx").write_bytes(networks.overflows())
    detector = gsttrt.Detector(tmp_path / "overflows.onnx", backend="rten")
    monkeypatch.setattr(detector, "_backend", backend)
    dark, bright = images((64, 64, 10), (64, 64, 250))
    assert [len(result) for result in (detector(dark), *detector([dark] * 3))] == [1] * 4
    with pytest.warns(UserWarning, match="overflows.onnx gives numbers that are not finite.*Set precision=fp32, or") as told:
        assert [len(result) for result in detector([dark, bright, dark])] == [1, 0, 1]
    assert len(told) == 1 and told[0].filename == __file__
    assert len(detector(bright)) == 0
    with gsttrt.Detector(tmp_path / "overflows.onnx", backend="rten") as other, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="not finite"):
            other(bright)
        assert len(other(dark)) == 1


def test_a_session_tells_what_comes_while_it_runs(monkeypatch):
    with gsttrt.Session(model("shapes"), backend="rten") as session:
        given, said = numpy.zeros(session.input.shape, session.input.dtype), []
        monkeypatch.setattr(_library.library, "session_warning", lambda _, index: said[index] if index < len(said) else None)
        session(given)
        said.append(b"Outputs differ, as verify-every has found.")
        with pytest.warns(UserWarning, match="^Outputs differ, as verify_every has found") as told:
            session(given)
        assert told[0].filename == __file__
        session(given)


class Door:
    """A lock that tells who comes to it."""

    def __init__(self):
        self.lock, self.come = threading.Lock(), threading.Semaphore(0)

    def __enter__(self):
        self.come.release()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


def test_what_two_threads_find_is_told_once(monkeypatch):
    with gsttrt.Session(model("shapes"), backend="rten") as session:
        found, door = session._warnings, Door()
        other = threading.Thread(target=found.tell)

        def warning(_, index):
            if other.ident is None:
                other.start()
                for _ in "this thread", "the other one":
                    door.come.acquire()
            return b"Outputs differ." if index == 0 else None

        monkeypatch.setattr(found, "lock", door)
        monkeypatch.setattr(_library.library, "session_warning", warning)
        with pytest.warns(UserWarning, match="Outputs differ") as told:
            found.tell()
            other.join()
        assert len(told) == 1


def test_what_is_guessed_of_a_model_is_told(tmp_path, caplog):
    (tmp_path / "unknown.onnx").write_bytes(networks.unknown())
    with caplog.at_level("INFO", "gsttrt"):
        [note, *_] = gsttrt.Detector(tmp_path / "unknown.onnx", backend="rten").notes
    assert "by the dimensions of its outputs alone" in note and " set layout;" in note and caplog.messages[0] == note
    assert gsttrt.Detector(model("shapes"), backend="rten").notes == []

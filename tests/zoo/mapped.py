# SPDX-License-Identifier: MPL-2.0
# Asks our program for a map, of classes or of depths, and compares it. The pixels are read from the picture that it draws: with
# mask-alpha=1 it shows nothing but the map.
#
# Imported by the programs of this folder; not run by itself. Needs numpy only.
import json
import subprocess
import time

import numpy as np

EQUAL = 0.995  # of the pixels
SHARE = 1e-3  # of all pixels that a class may have more or less
RANGE = 1e-4  # of the depths between minimum and maximum, by which either may be off


def ask_for_map(result, program, path, png, folder, timeout, preprocess, nms, options=()):
    """What the JSON line says of the map, and the picture of it; `None` where there is none, which is a fault."""
    out, lines = folder / "drawn", folder / "maps.jsonl"
    command = [program, "detect", str(png), "--model", str(path), "--json", str(lines), "--output", str(out)]
    command += ["--preprocess", preprocess, "--nms", f"mask-alpha=1 {nms}", *options]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    result.seconds = time.monotonic() - started
    if done.returncode != 0 or not lines.exists():
        result.faults.append(f"status {done.returncode}: {done.stderr.strip()[-300:]}")
        return None
    line = json.loads(lines.read_text())
    (given,) = line["maps"]
    return given, pixels_of(next(out.rglob("*.png")), line["width"], line["height"])


def pixels_of(png, width, height):
    """The RGB values of a picture in a file."""
    line = f"filesrc location={png} ! pngdec ! videoconvert ! video/x-raw,format=RGBx ! fdsink"
    done = subprocess.run(["gst-launch-1.0", "-q", *line.split()], stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(height, width, 4)[:, :, :3].astype(int)


def match_map(result, wanted, size, answer, classes, ramp):
    """A map of so many classes, or of depths with the colours of 256 steps."""
    if answer is None:
        return
    given, drawn = answer
    if (given["map-width"], given["map-height"]) != size:
        result.faults.append(f"the map is {given['map-width']}x{given['map-height']}, not {size[0]}x{size[1]}")
    if classes is None:
        match_depths(result, wanted, given, drawn, ramp)
    else:
        match_ids(result, wanted, given, drawn, classes)
    if result.worst_mask < EQUAL:
        result.faults.append(f"only {result.worst_mask:.4f} of the pixels are as they should be")
    if result.certain < 5:
        result.faults.append(f"only {result.certain} values in the map: that tests nothing")


def match_ids(result, wanted, given, drawn, classes):
    """Each class has its share, and a colour of its own in the picture."""
    shares = {region["class-id"]: region["share"] for region in given["regions"]}
    ids, counts = np.unique(wanted, return_counts=True)
    result.candidates, result.certain, result.found = classes, int((counts > 0.01 * wanted.size).sum()), len(shares)
    apart = [abs(shares.get(id, 0.0) - (wanted == id).mean()) for id in range(classes)]
    result.worst_score = float(max(apart))
    if result.worst_score > SHARE:
        result.faults.append(f"class {int(np.argmax(apart))} has not its share of the pixels")
    pixels, colours = at_frame(wanted, drawn), drawn @ np.array([1, 256, 65536])
    own = {id: np.bincount(np.unique(colours[pixels == id], return_inverse=True)[1]).argmax() for id in ids}
    own = {id: np.unique(colours[pixels == id])[at] for id, at in own.items()}
    if len(set(own.values())) < len(own):
        result.faults.append(f"classes share colours: {own}")
    result.worst_mask = float(np.mean([own[id] == colour for id, colour in zip(pixels.flat, colours.flat)]))


def match_depths(result, wanted, given, drawn, ramp):
    """The range, and the step of 256 that each pixel's colour is for, which may be one off."""
    low, high = float(wanted.min()), float(wanted.max())
    apart = max(abs(given["minimum"] - low), abs(given["maximum"] - high)) / (high - low)
    result.worst_score = apart
    if not apart <= RANGE:
        result.faults.append(f"depths from {given['minimum']} to {given['maximum']}, not {low} to {high}")
    steps = ((at_frame(wanted, drawn) - low) / (high - low) * 65535).round().astype(int) >> 8
    result.candidates, result.found = 256, len(np.unique(steps))
    result.certain = result.found
    colours, which = np.unique(drawn.reshape(-1, 3), axis=0, return_inverse=True)
    nearest = np.array([np.square(ramp - colour).sum(axis=1).argmin() for colour in colours])
    off = np.abs(nearest[which.ravel()].reshape(steps.shape) - steps)
    result.worst_point = float(off.max())
    result.worst_mask = float((off <= 1).mean())


def at_frame(values, drawn):
    """The pixel of the map that has the middle of each of the picture."""
    rows, columns = (((np.arange(many) + 0.5) * of / many).astype(int) for many, of in zip(drawn.shape, values.shape))
    return values[rows][:, columns]

# SPDX-License-Identifier: MPL-2.0
# Masks as the plugin's JSON has them: a rectangle, and the run lengths of its pixels column by
# column, as COCO compresses them to text.  Python's standard library only, but for what
# encode() is given.  Not run by itself; render.py writes masks with it, score_masks.py reads them.


def encode(mask):
    """The fields of a mask, a boolean numpy array of the frame's size in which at least one pixel is set."""
    (top, bottom), (left, right) = (bounds(mask.any(axis)) for axis in (1, 0))
    pixels, counts, last = mask[top:bottom, left:right].T.ravel(), [], 0
    changes = (pixels[1:] != pixels[:-1]).nonzero()[0] + 1
    for change in ([0] if pixels[0] else []) + [*map(int, changes), pixels.size]:
        counts.append(change - last)
        last = change
    return {"mask-x": left, "mask-y": top, "mask-width": right - left, "mask-height": bottom - top,
            "mask-counts": compress(counts)}


def bounds(line):
    """First and last set element, the last one excluded."""
    places = line.nonzero()[0]
    return int(places[0]), int(places[-1]) + 1


def compress(counts):
    """From the fourth on the difference to the count before the last, five bits a character, the lowest first."""
    text = []
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        while True:
            low, value = value & 31, value >> 5
            more = value != (-1 if low & 16 else 0)
            text.append(chr(48 + low + 32 * more))
            if not more:
                break
    return "".join(text)


def expand(text):
    counts, value, shift = [], 0, 0
    for code in text.encode():
        value |= (code - 48 & 31) << shift
        shift += 5
        if code - 48 & 32:
            continue
        if code - 48 & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    return counts


def columns(entry):
    """{x: number whose bit y is set where the mask is} of a detection or an object with a mask."""
    result, at = {}, 0
    left, top, height = entry["mask-x"], entry["mask-y"], entry["mask-height"]
    for index, count in enumerate(expand(entry["mask-counts"])):
        while index % 2 and count:
            x, y = divmod(at, height)
            run = min(count, height - y)
            result[left + x] = result.get(left + x, 0) | ((1 << run) - 1) << y + top
            at, count = at + run, count - run
        at += count
    return result

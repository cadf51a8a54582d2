#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Makes the pictures of tests/pictures.rs, of kinds that GStreamer's encoders do not write. Needs Pillow and NumPy.

  pictures.py FOLDER

All are of 64x48 pixels: red, green, blue and grey in four quarters; those without colours have four shades of grey.
"""

import io
import pathlib
import struct
import sys
import zlib

import numpy
from PIL import Image

WIDTH, HEIGHT = 64, 48
COLOURS = [[(200, 40, 40), (40, 180, 60)], [(40, 60, 200), (128, 128, 128)]]
SHADES = [[40, 100], [160, 220]]


def quarters(values, dtype="uint8"):
    rows = numpy.array(values, dtype)
    return rows.repeat(HEIGHT // 2, axis=0).repeat(WIDTH // 2, axis=1)


def png(pixels, depth, kind, interlaced=False):
    """PNG of 16 bits or interlaced, which Pillow does not write."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    def rows(part):
        return b"".join(b"\0" + row.astype(">u2" if depth == 16 else "u1").tobytes() for row in part)

    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    data = b"".join(rows(pixels[y::dy, x::dx]) for y, x, dy, dx in passes) if interlaced else rows(pixels)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


def cmyk(colour):
    """With black in it, which Pillow leaves out."""
    light = numpy.asarray(colour).astype(float)
    white = light.max(axis=2, keepdims=True)
    inks = numpy.dstack([255 - light * 255 / white, 255 - white])
    return Image.fromarray(inks.round().astype("uint8"), "CMYK")


def ycck(inks):
    """Pillow writes CMYK alone: the components are made here, and the marker of Adobe is changed."""
    inks = numpy.asarray(inks)
    chroma = numpy.asarray(Image.fromarray(inks[..., :3].copy(), "RGB").convert("YCbCr"))
    stored = numpy.dstack([255 - chroma, inks[..., 3]])  # Pillow inverts what it is given
    out = io.BytesIO()
    Image.fromarray(stored, "CMYK").save(out, "JPEG", quality=95, subsampling=0)
    found = bytearray(out.getvalue())
    adobe = found.index(b"Adobe")
    found[adobe + 11] = 2
    return bytes(found)


def main(folder):
    colour, grey = Image.fromarray(quarters(COLOURS), "RGB"), Image.fromarray(quarters(SHADES), "L")
    dark = grey.point(lambda value: 255 if value > 128 else 0).convert("1")
    wide = quarters(COLOURS, "uint16") * 257
    save = {
        "colour-progressive.jpg": (colour, {"progressive": True, "quality": 95}),
        "colour-444.jpg": (colour, {"subsampling": 0, "quality": 95}),
        "colour-restart.jpg": (colour, {"subsampling": "4:2:2", "restart_marker_rows": 1, "quality": 95}),
        "colour-cmyk.jpg": (cmyk(colour), {"quality": 95}),
        "grey.jpg": (grey, {"quality": 95}),
        "colour-palette.png": (colour.quantize(4), {}),
        "colour-palette-alpha.png": (colour.quantize(4), {"transparency": 3}),
        "colour-alpha.png": (colour.convert("RGBA"), {}),
        "grey-alpha.png": (grey.convert("LA"), {}),
        "dark.png": (dark, {}),
        "grey-16.png": (Image.fromarray(quarters(SHADES, "uint16") * 257), {}),
        "colour.gif": (colour.quantize(4), {}),
        "colour-animated.gif": (colour.quantize(4), {"save_all": True, "append_images": [colour.quantize(4).rotate(180)], "duration": 40}),
        "colour.webp": (colour, {"quality": 95}),
        "colour-lossless.webp": (colour, {"lossless": True}),
        "colour-lzw.tif": (colour, {"compression": "tiff_lzw"}),
        "colour-deflate.tif": (colour, {"compression": "tiff_adobe_deflate"}),
        "colour-pages.tif": (colour, {"save_all": True, "append_images": [colour.rotate(180)]}),
        "colour-cmyk.tif": (cmyk(colour), {}),
        "grey-16.tif": (Image.fromarray(quarters(SHADES, "uint16") * 257), {}),
        "grey.tif": (grey, {}),
        "dark.tif": (dark, {"compression": "group4"}),
        "colour-palette.bmp": (colour.quantize(4), {}),
        "colour-alpha.bmp": (colour.convert("RGBA"), {}),
        "dark.bmp": (dark, {}),
        "grey.pgm": (grey, {}),
        "grey-16.pgm": (Image.fromarray(quarters(SHADES, "uint16") * 257), {}),
        "colour.jp2": (colour, {}),
    }
    for name, (picture, options) in save.items():
        picture.save(folder / name, **options)
    (folder / "colour-ycck.jpg").write_bytes(ycck(cmyk(colour)))
    (folder / "colour-16.png").write_bytes(png(wide, 16, 2))
    (folder / "colour-interlaced.png").write_bytes(png(quarters(COLOURS), 8, 2, interlaced=True))
    text = "\n".join(" ".join(map(str, pixel)) for row in quarters(COLOURS) for pixel in row)
    (folder / "colour-text.ppm").write_text(f"P3\n{WIDTH} {HEIGHT}\n255\n{text}\n")


main(pathlib.Path(sys.argv[1]))

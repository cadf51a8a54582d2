#!/usr/bin/python3
# SPDX-License-Identifier: MPL-2.0
"""A command and what it prints, as a picture of a terminal: for docs/images.sh.

    docs/terminal.py OUT.jpg LINES SHOWN COMMAND…

SHOWN is the command as it stands in the picture, and COMMAND what runs. Of what it prints, to both of its outputs, the last LINES lines are
shown. Needs Debian's python3-gst-1.0 and gstreamer1.0-x, whose textoverlay writes them.
"""

import html
import os
import pathlib
import subprocess
import sys

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402

ROOT = str(pathlib.Path(__file__).resolve().parent.parent)
COLUMNS, SIZE, LINE, EDGE = 96, 14, 17, 14
# A letter of this font is 0.6 of its size wide.
WIDTH = 2 * EDGE + int(COLUMNS * SIZE * 0.61)
PIPELINE = (
    "videotestsrc num-buffers=1 pattern=solid-color foreground-color=0xff101418 ! video/x-raw,width={width},height={height},framerate=1/1 "
    "! textoverlay name=text font-desc=\"DejaVu Sans Mono {size}px\" halignment=left valignment=top line-alignment=left xpad={edge} ypad={edge} "
    "draw-outline=false draw-shadow=false wrap-mode=none auto-resize=false ! videoconvert ! jpegenc quality=80 ! filesink name=file"
)


def folded(text):
    """Its lines as a terminal of that width has them."""
    lines = [line.split("\r")[-1].rstrip() for line in text.splitlines()]
    return [line[at : at + COLUMNS] for line in lines for at in range(0, max(len(line), 1), COLUMNS)]


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__.strip())
    out, count, shown, *command = sys.argv[1:]
    plain = {**os.environ, "TERM": "dumb", "NO_COLOR": "1", "CARGO_TERM_COLOR": "never", "COLUMNS": str(COLUMNS)}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain, check=False)
    if done.returncode:
        sys.exit(f"{shown} ended with status {done.returncode}:\n{done.stdout}")
    # Where a clone of the reader may be, and not where this one is.
    said = done.stdout.replace(ROOT, "~/gst-plugin-trt").replace(os.getcwd() + "/", "")
    lines = folded(f"$ {shown}") + folded(said)[-int(count) :]
    Gst.init(None)
    height = 2 * EDGE + LINE * (len(lines) + 1)
    pipeline = Gst.parse_launch(PIPELINE.format(width=WIDTH // 4 * 4, height=height // 4 * 4, size=SIZE, edge=EDGE))
    pipeline.get_by_name("text").set_property("text", html.escape("\n".join(lines), quote=False))
    pipeline.get_by_name("file").set_property("location", out)
    pipeline.set_state(Gst.State.PLAYING)
    message = pipeline.get_bus().timed_pop_filtered(30 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
    pipeline.set_state(Gst.State.NULL)
    if message is None or message.type != Gst.MessageType.EOS:
        sys.exit(f"{out} cannot be written: {message.parse_error() if message else 'nothing comes'}")


if __name__ == "__main__":
    main()

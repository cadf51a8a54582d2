# SPDX-License-Identifier: MPL-2.0
"""python -m gsttrt"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
import warnings
from typing import Any

from . import Error, __version__, detect, plugin_path


def env() -> None:
    print(f'export GST_PLUGIN_PATH={shlex.quote(plugin_path())}"${{GST_PLUGIN_PATH:+:$GST_PLUGIN_PATH}}"')


def lines(source: str, model: str, options: list[str]) -> None:
    """A JSON object for each frame, as `gst-trt detect --json` writes them."""
    settings: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise Error(f"The option {option!r} has no value. Write name=value, such as score-threshold=0.5.")
        if name in ("source", "model"):
            raise Error(f"There is no option {name}: it stands before the options. Leave it out.")
        settings[name] = value
    # JSON is UTF-8, whatever the locale.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for index, (_, result) in enumerate(detect(source, model, **settings)):
        try:
            print(result.to_json(index), flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            leave_output()
            raise Error(f"Cannot write the lines: {error.strerror}. Make room on that disk, or write to another one.") from error


def leave_output() -> None:
    """Python writes what is left when it ends, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m gsttrt", description="Detects in images and videos.")
    parser.add_argument("--version", action="version", version=f"gsttrt {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("env", help='how GStreamer finds the plugin of this package: eval "$(python -m gsttrt env)"')
    detecting = commands.add_parser("detect", help="print a line of JSON for each frame")
    detecting.add_argument("source", help="a video, an image, a folder of images, or an address such as rtsp://camera/stream")
    detecting.add_argument("model", help="an ONNX file or a TensorRT engine")
    detecting.add_argument("options", nargs="*", metavar="name=value", help="such as score-threshold=0.5 classes=person,car")
    given = parser.parse_args(arguments)
    warnings.showwarning = lambda message, *_, **__: print(f"Warning: {message}", file=sys.stderr)
    try:
        if given.command == "env":
            env()
        else:
            lines(given.source, given.model, given.options)
    except BrokenPipeError:
        # The reader has seen enough, such as `head`.
        leave_output()
    except Error as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

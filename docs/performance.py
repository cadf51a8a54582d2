#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes what is shown of docs/performance.json: docs/performance.md, docs/performance.svg and the table in README.md.

    docs/performance.py            writes them
    docs/performance.py --check    says which of them differ, with exit status 1; tests/readme.rs runs this

Needs Python's standard library only.
"""

import json
import math
import pathlib
import sys
from html import escape

DOCS = pathlib.Path(__file__).resolve().parent
README = DOCS.parent / "README.md"
BEGIN, END = "<!-- performance: begin -->\n", "<!-- performance: end -->\n"
COLORS = ("#0a7d33", "#1a5fb4", "#b45309", "#613583")
FIELDS = ("figure", "value", "unit", "target", "machine", "command", "date")


def number(value):
    if isinstance(value, list):
        return " to ".join(map(number, value))
    return f"{value:,}" if isinstance(value, (int, float)) else value


def measured(figure):
    text = f"{number(figure['value'])} {figure['unit']}".strip()
    if "limit" in figure:
        text += f" ({100 * figure['value'] / figure['limit']:.0f} % of the slower stage's {number(figure['limit'])})"
    return f"**{text}**" if figure.get("missed") else text


def read():
    """The whole file, each figure with all fields."""
    data = json.loads((DOCS / "performance.json").read_text(encoding="utf-8"))
    for group in data["groups"]:
        defaults = {field: group[field] for field in ("machine", "command", "date")}
        group["figures"] = [{**defaults, **figure} for figure in group["figures"]]
        for figure in group["figures"]:
            missing = [field for field in FIELDS if field not in figure]
            if missing or figure["machine"] not in data["machines"]:
                sys.exit(f"docs/performance.json: {figure.get('figure')!r} lacks {missing or 'a known machine'}")
            if "limit" in figure and figure["value"] > figure["limit"]:
                sys.exit(f"docs/performance.json: {figure['figure']!r} is above its limit, so the limit is wrong")
    return data


def page(data):
    lines = ["# Performance", "",
             "This page is made from [performance.json](performance.json) by [performance.py](performance.py). Do not edit it.", "",
             "![Streams against frames per second](performance.svg)", "",
             "Bold: the target was missed. Date: of the state of the code that was measured. Machines:", ""]
    lines += [f"* **{name}**: {text}." for name, text in data["machines"].items()]
    lines += ["", "The H200 has no video encoder, so no figure has encoding in it. [`tests/gpu/run.sh`](../tests/gpu/run.sh) and",
              "[`tests/bench/gpu.sh`](../tests/bench/gpu.sh) print the figures of a machine with a GPU."]
    for group in data["groups"]:
        lines += ["", f"## {group['title']}", "", "| figure | measured | target | machine | date | command |", "|---|---|---|---|---|---|"]
        for figure in group["figures"]:
            command = figure["command"]
            shown = f"[how](../{command})" if command.startswith("tests/models/") else f"`{command}`"
            lines.append(f"| {figure['figure']} | {measured(figure)} | {figure['target']} | {figure['machine']} | {figure['date']} | {shown} |")
        for note in group.get("notes", []):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def table(data):
    """The few figures of README.md."""
    figures = {figure["id"]: figure for group in data["groups"] for figure in group["figures"] if "id" in figure}
    lines = ["| figure | measured | target | machine |", "|---|---|---|---|"]
    for name in data["readme"]:
        figure = figures[name]
        lines.append(f"| {figure['figure']} | {measured(figure)} | {figure['target']} | {figure['machine'].upper()} |")
    return "\n".join(lines) + "\n"


def plot(data):
    """Bars for the numbers of streams that were measured, and a dashed line for the limit of each."""
    width, height, left, right, top, bottom = 720, 400, 70, 20, 60, 90
    bars = [line for line in data["plot"]["series"] if not line.get("limit")]
    limits = [line for line in data["plot"]["series"] if line.get("limit")]
    counts = sorted({streams for line in bars for streams, _ in line["points"]})
    step = 1000
    ceiling = step * math.ceil(max(fps for line in bars + limits for _, fps in line["points"]) / step)
    room = (width - left - right) / len(counts)
    bar = 0.7 * room / len(bars)

    def y(fps):
        return height - bottom - (height - top - bottom) * fps / ceiling

    def text(x, y, words, anchor="middle", more=""):
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'

    def line(x1, x2, y, stroke):
        return f'<line x1="{x1:.0f}" x2="{x2:.0f}" y1="{y:.0f}" y2="{y:.0f}" {stroke}/>'

    dashed = 'stroke="#c01c28" stroke-width="2.5" stroke-dasharray="6 4"'
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="13" fill="#222">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(left, 22, data["plot"]["title"], "start", ' font-size="16" font-weight="bold"'),
           text(left, 42, f"{data['plot']['model']}; {data['plot']['unit']}", "start")]
    for fps in range(0, ceiling + 1, step):
        out += [line(left, width - right, y(fps), 'stroke="#ddd"'), text(left - 8, y(fps) + 4, f"{fps:,}", "end")]
    for column, streams in enumerate(counts):
        begin = left + room * column + 0.15 * room
        for row, (series, color) in enumerate(zip(bars, COLORS)):
            for fps in (fps for count, fps in series["points"] if count == streams):
                x = begin + bar * row
                out.append(f'<rect x="{x + 2:.0f}" y="{y(fps):.0f}" width="{bar - 4:.0f}" height="{height - bottom - y(fps):.0f}" fill="{color}"/>')
                out.append(text(x + bar / 2, y(fps) + 16, f"{fps:,}", more=' fill="#fff"'))
        for fps in (fps for series in limits for count, fps in series["points"] if count == streams):
            out.append(line(begin - 8, begin + bar * len(bars) + 8, y(fps), dashed))
        out.append(text(left + room * (column + 0.5), height - bottom + 20, f"{streams} stream{'s' if streams > 1 else ''}"))
    x = left
    for series, color in [*zip(bars, COLORS), *((series, None) for series in limits)]:
        out.append(f'<rect x="{x}" y="{height - 40}" width="14" height="14" fill="{color}"/>' if color else
                   line(x - 14, x + 14, height - 33, dashed))
        out.append(text(x + 22, height - 28, series["name"], "start"))
        x += 60 + 7 * len(series["name"])
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    data = read()
    readme = README.read_text(encoding="utf-8")
    before, rest = readme.split(BEGIN)
    behind = rest.split(END)[1]
    wanted = {DOCS / "performance.md": page(data), DOCS / "performance.svg": plot(data),
              README: before + BEGIN + table(data) + END + behind}
    if sys.argv[1:] == ["--check"]:
        stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        if stale:
            sys.exit(f"{', '.join(stale)}: not what docs/performance.json says; run docs/performance.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")


main()

#!/usr/bin/env python3
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
             "Bold: the target was missed. Machines:", ""]
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
    """Streams, by powers of two, against frames per second."""
    width, height, left, right, top, bottom = 720, 380, 70, 20, 60, 60
    series = data["plot"]["series"]
    points = [point for line in series for point in line["points"]]
    first, last = (math.log2(edge(streams for streams, _ in points)) for edge in (min, max))
    step = 1000
    ceiling = step * math.ceil(max(fps for _, fps in points) / step)

    def x(streams):
        return left + (width - left - right) * (math.log2(streams) - first) / (last - first)

    def y(fps):
        return height - bottom - (height - top - bottom) * fps / ceiling

    def text(x, y, words, anchor="middle", more=""):
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="13" fill="#222">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(left, 22, data["plot"]["title"], "start", ' font-size="16" font-weight="bold"'),
           text(left, 42, f"{data['plot']['model']}; {data['plot']['unit']}", "start")]
    for fps in range(0, ceiling + 1, step):
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(fps):.0f}" y2="{y(fps):.0f}" stroke="#ddd"/>')
        out.append(text(left - 8, y(fps) + 4, f"{fps:,}", "end"))
    for streams in (2**power for power in range(round(first), round(last) + 1)):
        out.append(text(x(streams), height - bottom + 20, str(streams)))
    out.append(text((left + width - right) / 2, height - 16, "streams"))
    for row, (line, color) in enumerate(zip(series, ("#888", "#0a7d33", "#1a5fb4", "#b45309"))):
        path = " ".join(f"{x(streams):.0f},{y(fps):.0f}" for streams, fps in line["points"])
        dashes = ' stroke-dasharray="6 4"' if line.get("limit") else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.5"{dashes}/>')
        if not line.get("limit"):
            out += [f'<circle cx="{x(streams):.0f}" cy="{y(fps):.0f}" r="4" fill="{color}"/>' for streams, fps in line["points"]]
        legend = top + 16 + 20 * row
        out.append(f'<line x1="{left + 16}" x2="{left + 46}" y1="{legend}" y2="{legend}" stroke="{color}" stroke-width="2.5"{dashes}/>')
        most = max(fps for _, fps in line["points"])
        out.append(text(left + 54, legend + 4, f"{line['name']} (up to {most:,})", "start"))
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

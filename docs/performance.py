#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes what is shown of docs/performance.json: docs/performance.md, its plots (plots.py) and the table in README.md.

    docs/performance.py            writes them
    docs/performance.py --check    says which of them differ, with exit status 1; tests/readme.rs runs this

Needs Python's standard library only.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True  # docs is a book, and all files in it are copied
import plots

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
             *(line for plot in data["plots"] for line in (f"![{plot['title']}]({plot['file']})", "")),
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


def by_id(data):
    return {figure["id"]: figure for group in data["groups"] for figure in group["figures"] if "id" in figure}


def table(data):
    """The few figures of README.md."""
    figures = by_id(data)
    lines = ["| figure | measured | target | machine |", "|---|---|---|---|"]
    for name in data["readme"]:
        figure = figures[name]
        lines.append(f"| {figure['figure']} | {measured(figure)} | {figure['target']} | {figure['machine'].upper()} |")
    return "\n".join(lines) + "\n"


def main():
    data = read()
    readme = README.read_text(encoding="utf-8")
    before, rest = readme.split(BEGIN)
    behind = rest.split(END)[1]
    wanted = {DOCS / "performance.md": page(data), README: before + BEGIN + table(data) + END + behind}
    wanted |= {DOCS / plot["file"]: plots.svg(plot, by_id(data)) for plot in data["plots"]}
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

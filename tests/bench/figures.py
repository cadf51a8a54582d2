#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes what is shown of tests/bench/figures.json: all figures in tests/bench/FIGURES.md; those that people compare in docs/performance.md,
with its plots (plots.py); and a few of them in README.md.

    tests/bench/figures.py            writes them
    tests/bench/figures.py --check    says which of them differ, with exit status 1; tests/readme.rs runs this

Needs Python's standard library only.
"""

import json
import pathlib
import sys

sys.dont_write_bytecode = True
import plots

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
BEGIN, END = "<!-- performance: begin -->\n", "<!-- performance: end -->\n"
FIELDS = ("figure", "value", "unit", "target", "machine", "command", "date")
# Names of the networks in the figures.
NETWORKS = "YOLOv8s, YOLO11n-seg and the like are these networks with random weights."


def number(value):
    if isinstance(value, list):
        return " to ".join(map(number, value))
    return f"{value:,}" if isinstance(value, (int, float)) else value


def measured(figure):
    text = f"{number(figure['value'])} {figure['unit']}".strip()
    return f"{text}; {figure['limit-of']} {number(figure['limit'])}" if "limit" in figure else text


def read():
    """The whole file, each figure with all fields."""
    data = json.loads((BENCH / "figures.json").read_text(encoding="utf-8"))
    for group in data["groups"]:
        defaults = {field: group[field] for field in ("machine", "command", "date")}
        group["figures"] = [{**defaults, **figure} for figure in group["figures"]]
        for figure in group["figures"]:
            name = figure.get("figure")
            missing = [field for field in FIELDS if field not in figure]
            if missing or figure["machine"] not in data["machines"]:
                sys.exit(f"tests/bench/figures.json: {name!r} lacks {missing or 'a known machine'}")
            if ("limit" in figure) != ("limit-of" in figure):
                sys.exit(f"tests/bench/figures.json: {name!r} has a limit, and does not say of what")
            if "limit" in figure and figure["value"] > figure["limit"]:
                sys.exit(f"tests/bench/figures.json: {name!r} is above its limit, so the limit is wrong")
    return data


def by_id(data):
    return {figure["id"]: figure for group in data["groups"] for figure in group["figures"] if "id" in figure}


def machines(data):
    return ["Machines:", "", *(f"* **{name.upper()}**: {text}." for name, text in data["machines"].items())]


def ledger(data):
    """All figures, for those who measure them again."""
    lines = ["# All figures", "",
             "This page is made from [figures.json](figures.json) by [figures.py](figures.py). Do not edit it. Those that people compare, and plots:",
             "[Performance](../../docs/performance.md).", "",
             f"Bold: the target was missed. Date: of the state of the code that was measured. {NETWORKS}", "", *machines(data), "",
             "The H200 has no video encoder, so no figure has encoding in it. [tests/gpu/run.sh](../gpu/run.sh) and",
             "[tests/bench/gpu.sh](gpu.sh) print the figures of a machine with a GPU."]
    for group in (group for group in data["groups"] if group["figures"]):
        lines += ["", f"## {group['title']}", "", "| figure | measured | target | machine | date | command |", "|---|---|---|---|---|---|"]
        for figure in group["figures"]:
            command = figure["command"]
            shown = f"[how]({command.replace('tests/', '../', 1)})" if command.startswith("tests/models/") else f"`{command}`"
            text = f"**{measured(figure)}**" if figure.get("missed") else measured(figure)
            lines.append(f"| {figure['figure']} | {text} | {figure['target']} | {figure['machine'].upper()} | {figure['date']} | {shown} |")
        for note in group.get("notes", []):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def shown(wanted, figures):
    """Rows of figures that are there. Others may still have to be measured, if they say so."""
    return [row for row in wanted if row["id"] in figures or not row.get("when-measured")]


def rows(wanted, figures):
    """A table of figures, in the words of the page."""
    lines = ["| figure | measured | machine |", "|---|---|---|"]
    for row in shown(wanted, figures):
        figure = figures[row["id"]]
        lines.append(f"| {row['text']} | {measured(figure)} | {figure['machine'].upper()} |")
    return lines


def page(data):
    """The figures that people compare."""
    lines = ["# Performance", "",
             "Frames per second, latency, cost and accuracy as they were measured, next to those of other programs.", "",
             "This page is made from [figures.json](../tests/bench/figures.json). Do not edit it. [All figures](../tests/bench/FIGURES.md) have",
             "targets, dates, and the commands that measure them.", "",
             *(line for plot in data["plots"] for line in (f"![{plot['title']}]({plot['file']})", "")),
             f"{NETWORKS} The test model is [a small detector](../tests/models/README.md) of discs and boxes, with an input of 512x512.", "",
             *machines(data), "", "The H200 has no video encoder, so no figure has encoding in it."]
    for section in (section for section in data["page"] if shown(section["rows"], by_id(data))):
        lines += ["", f"## {section['title']}", ""]
        lines += [section["intro"], ""] if "intro" in section else []
        lines += rows(section["rows"], by_id(data))
        for note in section.get("notes", []):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def table(data):
    """The few figures of README.md."""
    chosen = {row["id"]: row for section in data["page"] for row in section["rows"]}
    return "\n".join(rows([chosen[name] for name in data["readme"]], by_id(data))) + "\n"


def main():
    data = read()
    readme = README.read_text(encoding="utf-8")
    before, rest = readme.split(BEGIN)
    behind = rest.split(END)[1]
    wanted = {BENCH / "FIGURES.md": ledger(data), DOCS / "performance.md": page(data), README: before + BEGIN + table(data) + END + behind}
    wanted |= {DOCS / plot["file"]: plots.svg(plot, by_id(data)) for plot in data["plots"]}
    if sys.argv[1:] == ["--check"]:
        stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        if stale:
            sys.exit(f"{', '.join(stale)}: not what tests/bench/figures.json says; run tests/bench/figures.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")


main()

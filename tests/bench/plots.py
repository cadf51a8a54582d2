# SPDX-License-Identifier: MPL-2.0
"""Bars as SVG, for figures.py: what figures.json says under "plots"."""

import math
from html import escape

COLORS = ("#0a7d33", "#1a5fb4", "#b45309", "#613583")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 20, 60, 100
DASHED = 'stroke="#c01c28" stroke-width="2.5" stroke-dasharray="6 4"'


def value(wanted, figures):
    """The least and the greatest value of a bar, and its label; None where there is no bar. A value is a number, or the id of a figure;
    "id/1" is the second number of a figure that has several."""
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        return wanted, wanted, f"{wanted:,}"
    name, _, part = wanted.partition("/")
    found = figures[name]["value"]
    if part:
        found = float(found.split(", ")[int(part)])
    if isinstance(found, list):
        return *found, " to ".join(f"{number:,}" for number in found)
    return found, found, f"{found:,.0f}" if found >= 10 else f"{found:,}"  # narrow bars have room for three digits


def ticks(greatest):
    """Round steps, four to eight of them."""
    step = 10 ** math.floor(math.log10(greatest / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if greatest / (step * factor) <= 7)
    return [step * count for count in range(math.ceil(greatest / step) + 1)]


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def line(x1, x2, y, stroke):
    return f'<line x1="{x1:.0f}" x2="{x2:.0f}" y1="{y:.0f}" y2="{y:.0f}" {stroke}/>'


def svg(plot, figures):
    """Bars for each group, and a dashed line for the limit of each."""
    bars = [[value(wanted, figures) for wanted in series["values"]] for series in plot["series"]]
    limits = plot.get("limit", {"values": []})["values"]
    steps = ticks(max(*limits, *(found[1] for series in bars for found in series if found)))
    room = (WIDTH - LEFT - RIGHT) / len(plot["groups"])
    bar = 0.7 * room / len(bars)

    def y(amount):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * amount / steps[-1]

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="13" fill="#222">',
           f'<title>{escape(plot["title"])}</title>',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           text(LEFT, 22, plot["title"], "start", ' font-size="16" font-weight="bold"'),
           text(LEFT, 42, plot["subtitle"], "start")]
    for step in steps:
        out += [line(LEFT, WIDTH - RIGHT, y(step), 'stroke="#ddd"'), text(LEFT - 8, y(step) + 4, f"{round(step, 6):,}", "end")]
    for column, group in enumerate(plot["groups"]):
        begin = LEFT + room * column + 0.15 * room
        for row, (series, color) in enumerate(zip(bars, COLORS)):
            if series[column]:
                x, (_, high, label) = begin + bar * row, series[column]
                out.append(f'<rect x="{x + 2:.0f}" y="{y(high):.0f}" width="{bar - 4:.0f}" height="{y(0) - y(high):.0f}" fill="{color}"/>')
                is_tall = y(0) - y(high) > 20
                out.append(text(x + bar / 2, y(high) + (16 if is_tall else -5), label, more=' fill="#fff"' if is_tall else ""))
        if limits:
            out.append(line(begin - 8, begin + bar * len(bars) + 8, y(limits[column]), DASHED))
        out += [text(LEFT + room * (column + 0.5), y(0) + 20 + 16 * row, words) for row, words in enumerate(group.split("\n"))]
    x = LEFT
    names = [(series["name"], color) for series, color in zip(plot["series"], COLORS)]
    for name, color in names + ([(plot["limit"]["name"], None)] if limits else []):
        out.append(f'<rect x="{x}" y="{HEIGHT - 34}" width="14" height="14" fill="{color}"/>' if color else
                   line(x - 14, x + 14, HEIGHT - 27, DASHED))
        out.append(text(x + 22, HEIGHT - 22, name, "start"))
        x += 60 + 7 * len(name)
    return "\n".join(out + ["</svg>"]) + "\n"

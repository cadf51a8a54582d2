#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Writes what coding agents read first, from the pages and the examples: SKILL.md and llms.txt.

    docs/agents.py            writes them
    docs/agents.py --check    says what differs, with exit status 1; tests/readme.rs runs this

What they say of their own is the text at the end of this file. The rest is copied: tables, launch lines, commands and code. Where something
to copy is not found, the script ends and says what it looked for. Needs Python's standard library only.
"""

import ast
import difflib
import json
import pathlib
import posixpath
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([^)]*)\)")
LISTED = re.compile(r"( *)- \[([^]]*)\]\(([^)]*)\)$")
MADE = ("SKILL.md", "llms.txt")  # each links to the other
REPEATED = 4  # a heading of so many pages tells nothing about one of them
SHORT = 60  # characters; a sentence that is shorter has the next one with it
SECTIONS = 10


def fail(text):
    sys.exit(f"docs/agents.py: {text}")


def must_exist(name):
    if name not in MADE and not (ROOT / name).exists():
        fail(f"there is no {name}")


def read(name):
    must_exist(name)
    return (ROOT / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------- pages


def without_code(text):
    return "".join(text.split("```")[::2])


class Page:
    """README.md or a page in docs."""

    def __init__(self, name):
        self.name, self.text = name, read(name)
        self.folder = posixpath.dirname(name)
        prose = without_code(self.text)
        titles = re.findall(r"^# (.+)$", prose, re.M)
        if not titles:
            fail(f"{name} has no title, a line that begins with \"# \"")
        self.title = plain(titles[0])
        self.headings = [re.sub(r"[][]", "", plain(heading)) for heading in re.findall(r"^## (.+)$", prose, re.M)]

    def blocks(self, language):
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.M | re.S)

    def opening(self):
        """The first paragraph before the first section, and nothing where that only says how the page is made."""
        before = re.split(r"^## ", without_code(self.text), maxsplit=1, flags=re.M)[0]
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", before)]
        first = next((plain(part) for part in paragraphs if part and not re.match(r"[#|*!<-]", part)), "")
        return "" if "Do not edit" in first else first

    def begins_with_table(self):
        return re.match(r"# [^\n]*\n+\|", self.text) is not None

    def tables(self):
        """Each table of the page as its rows, and each row as its cells. The first row is the header."""
        tables, rows = [], []
        for line in [*without_code(self.text).splitlines(), ""]:
            if line.startswith("|"):
                rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().removesuffix("|"))[1:]])
            elif rows:
                tables.append([row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)])
                rows = []
        return tables

    def from_root(self, text):
        """Links as they are in a file at the root."""
        def target(link):
            path, _, fragment = link[2].partition("#")
            if "://" in link[2]:
                return link[0]
            path = posixpath.normpath(posixpath.join(self.folder, path)) if path else self.name
            return f"[{link[1]}]({path}{'#' + fragment if fragment else ''})"
        return LINK.sub(target, text)


def plain(text):
    return LINK.sub(r"\1", text)


def first_sentence(text):
    """With the next one, where the first is short. It ends with a full stop."""
    sentences = re.split(r"(?<=[.!?:])\s+(?=[A-Z`\"])", plain(text))
    shown = sentences[0] if len(sentences[0]) >= SHORT else " ".join(sentences[:2])
    return shown.rstrip(":.") + "." if shown else ""


def summary():
    """The chapters of docs/SUMMARY.md, each with its pages in their order."""
    chapters = []
    for line in read("docs/SUMMARY.md").splitlines():
        if line.startswith("# ") and line != "# Summary":
            chapters.append((line.removeprefix("# "), []))
        elif found := LISTED.match(line):
            if not chapters:
                fail(f"docs/SUMMARY.md has this before its first chapter: {line}")
            chapters[-1][1].append((found[2], Page("docs/" + found[3])))
    if not chapters:
        fail("docs/SUMMARY.md has no chapters with lines such as \"- [Title](page.md)\"")
    return chapters


README = Page("README.md")
CHAPTERS = summary()
PAGES = [README] + [page for _, listed in CHAPTERS for _, page in listed]


# ------------------------------------------------------------------------------------------- what is copied


def link(name, text=None):
    """A link to a page that is in the book, or to a file."""
    if name.startswith("docs/") and name not in [page.name for page in PAGES]:
        fail(f"{name} is not in docs/SUMMARY.md")
    must_exist(name)
    return f"[{text or name}]({name})"


def command(begin, *words):
    """The shortest command of the pages that begins so and has these words, on one line and without its comment."""
    blocks = [block for page in PAGES for block in page.blocks("sh")]
    lines = [re.sub(r"\s+#.*", "", line).strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if line.startswith(begin) and all(word in line for word in words)]
    if not found:
        fail(f"no page has a command that begins with {begin!r}" + (f" and has {', '.join(map(repr, words))}" if words else ""))
    return min(found, key=len)


def code(language, word):
    """The first block of code of the pages that has this word."""
    for page in PAGES:
        for block in page.blocks(language):
            if word in block:
                return block.rstrip("\n")
    fail(f"no page has a block of {language} with {word!r}")


def example(name):
    """What stands between the markers of an example."""
    found = re.search(r"^[^\n]*README: begin[^\n]*\n(.*?)^[^\n]*README: end", read(name), re.M | re.S)
    if not found:
        fail(f"{name} has no lines \"README: begin\" and \"README: end\"")
    lines = found[1].rstrip().splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[indent:] for line in lines)


def table(page, *header):
    """The rows of the table of a page whose header begins with these cells, header left out."""
    for rows in page.tables():
        if rows[0][:len(header)] == list(header) and len(rows) > 1:
            return [[page.from_root(cell) for cell in row] for row in rows[1:]]
    fail(f"{page.name} has no table whose header begins with {' | '.join(header)}")


def element_pages(element):
    found = [page for page in PAGES if element in (page.title, pathlib.PurePosixPath(page.name).stem)]
    return found or fail(f"docs/SUMMARY.md has no page called {element}")


def property_row(element, name):
    """Default and meaning of a property, and the values of an enumeration."""
    for page in element_pages(element):
        tables = page.tables()
        for rows in tables:
            for row in rows[1:]:
                if rows[0][0] == "property" and "default" in rows[0] and row[0] == f"`{name}`":
                    values = [value[0] for table in tables if table[0][0] == row[0] for value in table[1:]]
                    meaning = page.from_root(row[-1]) + (f": {', '.join(values)}" if values else "")
                    return row[rows[0].index("default")] or "unset", meaning
    fail(f"no page called {element} has a table \"property | … | default | …\" with `{name}`, which README.md says is set often")


def markdown(*rows):
    header, *others = ["| " + " | ".join(row).rstrip() + " |" for row in rows]
    return "\n".join([header, "|" + "---|" * len(rows[0]), *others])


ELEMENTS = [(plain(name), does, often) for name, does, often in table(README, "element", "does", "properties set most often")]


def elements():
    return markdown(["element", "does"], *([link(element_pages(element)[0].name, element), does] for element, does, _ in ELEMENTS))


def properties():
    rows = []
    for element, _, often in ELEMENTS:
        for name in re.findall(r"`([a-z0-9-]+)`", often):
            rows.append([element, f"`{name}`", *property_row(element, name)])
    return markdown(["element", "property", "default", "meaning"], *rows)


def mistakes():
    name = "docs/troubleshooting.md"
    link(name)
    page = next(page for page in PAGES if page.name == name)
    return markdown(["symptom", "remedy"], *table(page, "symptom", "remedy"))


# ------------------------------------------------------------------------------------------- llms.txt


def description(page):
    """The first sentence of a page, or the header of the table that it begins with, and its sections."""
    text = first_sentence(page.opening())
    if not text and page.begins_with_table():
        text = "A table: " + ", ".join(plain(cell) for cell in page.tables()[0][0] if cell) + "."
    everywhere = [heading for other in PAGES for heading in other.headings]
    sections = [heading for heading in page.headings if everywhere.count(heading) < REPEATED]
    if sections:
        text += " Sections: " + "; ".join(sections[:SECTIONS]) + (" …" if len(sections) > SECTIONS else ".")
    return text.strip() or fail(f"{page.name} has neither a sentence nor a table nor sections that say what it is about")


def comment(name):
    """The first sentence of the comment that an example begins with."""
    text = read(name)
    if name.endswith(".py"):
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        found = re.search(r"^(?://! |/\* (?!SPDX))(.+)$", text, re.M)
        text = found[1] if found else ""
    return first_sentence(text.split("\n\n")[0].replace("\n", " ")) or fail(f"{name} does not begin with a comment that says what it does")


def opening():
    return README.opening() or fail("README.md has no paragraph before its first section")


def llms():
    repository = re.search(r'^repository = "(.+)"$', read("Cargo.toml"), re.M)
    if not repository:
        fail("Cargo.toml names no repository")
    raw = repository[1] + "/raw/main/"

    def entry(title, name, text):
        must_exist(name)
        return f"- [{title}]({raw}{name}): {text}"

    lines = [f"# {README.title}", "", f"> {opening()}", "",
             "Behind `/raw/main/` comes the path in a checkout. `SKILL.md` says how to use it, with examples and common mistakes; read it first.", "",
             "## First", "", entry("SKILL.md", "SKILL.md", "how to use it, for coding agents."),
             entry("README.md", "README.md", description(README))]
    titles = [title for _, listed in CHAPTERS for title, _ in listed]
    for chapter, listed in CHAPTERS:
        lines += ["", f"## {chapter}", ""]
        for title, page in listed:
            full = title if titles.count(title) == 1 else f"{page.title}: {title}"
            lines.append(entry(full, page.name, description(page)))
    names = sorted(path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".c", ".py", ".rs"))
    lines += ["", "## Examples", "", *(entry(name, f"examples/{name}", comment(f"examples/{name}")) for name in names)]
    lines += ["", "## Optional", ""]
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"):
        lines.append(entry(Page(name).title, name, description(Page(name))))
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------- SKILL.md

DESCRIPTION = """Object detection, masks, poses, rotated boxes, classes, tracking and counting with YOLO, RT-DETR and other ONNX models by \
gst-plugin-trt: the GStreamer elements trtpreprocess, trtinfer, trtnms, trttrack, trtmatch, trtanalytics, trtoverlay and trtpublish, the program gst-trt, \
the Python package gsttrt, the Rust crate gsttrt and the C library libgsttrt-1. Use it to write or repair launch lines, programs and \
configurations with these, on NVIDIA GPUs or on the CPU."""


def skill():
    fences = {name: f"```{language}\n{text}\n```" for name, language, text in [
        ("check", "sh", "\n".join([command("gst-trt doctor"), command("gst-trt info "), command("gst-inspect-1.0 trt")])),
        ("detect", "sh", "\n".join(command("gst-trt detect ", *words) for words in [["--model"], ["--no-video", "--json"], ["--track"], ["photos/"]])),
        ("serve", "sh", command("gst-trt serve ", "--check")),
        ("file", "sh", command("gst-launch-1.0 ", "filesrc", "decodebin ! queue", "trtnms ! queue", "mp4mux")),
        ("rtsp", "sh", command("gst-launch-1.0 ", "rtspsrc", "leaky=downstream")),
        ("json", "sh", command("gst-launch-1.0 ", "trtnms draw=false", "trtpublish location=results.jsonl")),
        ("track", "sh", command("gst-launch-1.0 ", "trttrack", "mqtt:")),
        ("many", "sh", command("gst-launch-1.0 ", "shared-model=")),
        ("gpu", "sh", command("gst-launch-1.0 ", "nvh264dec", "nvh264enc")),
        ("arrays", "python", code("python", "gsttrt.Detector(")),
        ("frames", "python", code("python", "gsttrt.detect(")),
        ("wheel", "sh", command('eval "$(python -m gsttrt env)"')),
        ("pipeline", "python", example("examples/detections.py")),
        ("rust", "rust", example("examples/session.rs")),
        ("c", "c", example("examples/session.c")),
        ("cc", "sh", command("cc session.c")),
    ]}
    return f"""---
name: {README.title}
description: {json.dumps(DESCRIPTION)}
---

# Use {README.title} rightly

<!-- Made from the pages by docs/agents.py. Do not edit. -->

{opening()}

## Check first

{fences["check"]}

They say what is on this machine and what each missing piece costs; what a model file is and which property it lacks; and which properties an element has.
Do this before you write anything, and again before you say that something works.

## Rules

1. The order is `trtpreprocess ! trtinfer ! trtnms`, once for each model. The other elements come behind trtnms, trttrack before trtanalytics.
2. Set few properties. Labels, input size, letterbox and layout are read from the model file. `gst-trt info` names what is missing.
3. Do not guess names of properties and values. They are listed by `gst-inspect-1.0`, and in the [pages of the elements](#elements).
4. What converts, scales, crops or flips never stands between trtpreprocess and trtnms. Behind trtnms it drops confidences: read or publish results before it.
5. Read errors from the bus. An `appsink` does not report them, and a program that does not look waits forever.
6. `backend=auto`, the default, runs on the CPU where TensorRT cannot, and says why in a message. `backend=tensorrt` makes that an error.
7. There is no muxer, and no configuration file for a model: several streams share one by `shared-model`.
8. Use only model files and engines that you trust: {link("SECURITY.md")}.

## Which to use

| you have or want | use | page |
|---|---|---|
| a file, a folder, a camera or a stream; a video with boxes, or JSON lines | the program: `gst-trt detect` | {link("docs/program.md")} |
| many cameras for months, one configuration, HTTP | the program: `gst-trt serve` | {link("docs/serve.md")} |
| a pipeline with other elements; results to a broker | a launch line | {link("docs/tasks/sources.md")}, {link("docs/tasks/results.md")} |
| arrays for images or videos, in Python | the package `gsttrt` | {link("docs/python.md")} |
| Parquet of thousands of videos | `gst-trt detect --parquet`; on many processors or machines `gsttrt.ray` of that package | {link("docs/archives.md")} |
| results of a pipeline in an application | the pipeline in Python, Rust or C, and metas from `appsink` | {link("docs/library.md")} |
| pictures or tensors without GStreamer, in Rust or C | `Detector` and `Session`, `gst_trt_session_*` | {link("docs/library.md")} |

How to install each: {link("docs/install.md")}.

## The program

{fences["detect"]}

A service: write its configuration by {link("docs/serve.md")}, then check it:

{fences["serve"]}

## Launch lines

A file. A `queue` before trtpreprocess and one behind trtnms let stages run in parallel:

{fences["file"]}

A live source. The leaky `queue` drops old frames where the model is too slow:

{fences["rtsp"]}

Results as JSON lines, without drawing:

{fences["json"]}

Ids from frame to frame, to a broker:

{fences["track"]}

Several streams, one model:

{fences["many"]}

On an NVIDIA GPU, frames stay in its memory:

{fences["gpu"]}

## Python

Arrays, without GStreamer:

{fences["arrays"]}

Frames of a video, with ids:

{fences["frames"]}

GStreamer finds the plugin of the wheel after:

{fences["wheel"]}

In a pipeline, with Debian's own `/usr/bin/python3`; `video` and `model` are paths, `gi` and `sys` are imported ({link("examples/detections.py", "whole program")}):

{fences["pipeline"]}

## Rust

Without a pipeline ({link("examples/session.rs", "whole program")}; with one, {link("examples/detections.rs")}):

{fences["rust"]}

## C

Without a pipeline ({link("examples/session.c", "whole program")}; with one, {link("examples/detections.c")}). Options are the elements' properties as text:

{fences["c"]}

{fences["cc"]}

## Elements

{elements()}

The properties that are set most often:

{properties()}

## Mistakes that people make

{mistakes()}

More: {link("llms.txt")} lists all pages.
"""


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    stale = []
    for name, text in zip(MADE, (skill(), llms())):
        path = ROOT / name
        found = path.read_text(encoding="utf-8") if path.exists() else ""
        if found != text:
            stale.append(name)
            if not sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
            else:
                sys.stderr.writelines(difflib.unified_diff(found.splitlines(True), text.splitlines(True), name, f"{name}, of the pages", n=0))
    if stale and sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: not what the pages say; run docs/agents.py")


main()

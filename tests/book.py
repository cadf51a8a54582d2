#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Builds the pages in docs as a book, by mdbook, and follows its links: a warning and a link to what is not there are failures.

    tests/book.py [FOLDER]     where to, target/book else
"""

import html.parser
import os
import pathlib
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Page(html.parser.HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def build(folder):
    command = ["mdbook", "build", "--dest-dir", str(folder), str(ROOT / "docs")]
    output = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    sys.stderr.write(output.stderr)
    if output.returncode or any(word in output.stderr for word in ("WARN", "ERROR")):
        sys.exit("mdbook has warnings or errors, which are above")


def broken(folder):
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    for path, page in sorted(pages.items()):
        if path.name in ("404.html", "toc.html"):
            continue  # for servers that have the book at their root; for browsers without scripts
        for link in page.links:
            address = urllib.parse.urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            name = urllib.parse.unquote(address.fragment)
            if not target.exists() or name and target in pages and name not in pages[target].ids:
                yield f"{path.relative_to(folder)}: {link}"
    if len(pages) < 20:
        yield f"only {len(pages)} pages"


def main():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folder = pathlib.Path(sys.argv[1] if sys.argv[1:] else target / "book").resolve()
    build(folder)
    found = list(broken(folder))
    if found:
        sys.exit("Links to what is not there:\n" + "\n".join(found))


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""A preprocessor of mdBook: links to files outside docs, such as ../CONTRIBUTING.md, become links to the repository, for these files
are not in the book. mdBook runs it, by docs/book.toml."""

import json
import posixpath
import re
import sys

LINK = re.compile(r"\]\(((?:\.\./)+[^)#]+)(#[^)]*)?\)")


def rewrite(chapter, repository):
    folder = posixpath.dirname(chapter["path"] or "")

    def target(link):
        path = posixpath.normpath(posixpath.join(folder, link[1]))
        if not path.startswith("../"):
            return link[0]
        return f"]({repository}/blob/main/{path.removeprefix('../')}{link[2] or ''})"

    chapter["content"] = LINK.sub(target, chapter["content"])
    for item in chapter["sub_items"]:
        if "Chapter" in item:
            rewrite(item["Chapter"], repository)


def main():
    if sys.argv[1:2] == ["supports"]:
        return  # any renderer
    context, book = json.load(sys.stdin)
    repository = context["config"]["output"]["html"]["git-repository-url"]
    for item in book["items"]:
        if isinstance(item, dict) and "Chapter" in item:
            rewrite(item["Chapter"], repository)
    json.dump(book, sys.stdout)


main()

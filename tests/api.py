#!/usr/bin/env python3
"""What the library offers to Rust, read from its documentation (cargo doc --no-deps): tests/api.py [--update]

Without --update, what differs from tests/api.txt is an error: a change of the public API is to be seen in a commit."""
import difflib
import os
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
docs = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", here.parent / "target")) / "doc" / "gsttrt"
kinds = ("struct", "enum", "fn", "trait", "constant", "static", "type", "macro")
members = re.compile(r'id="(?:method|tymethod|variant|structfield|associatedconstant)\.([A-Za-z0-9_]+)"')

others = re.compile(r'id="(?:deref-methods|trait-implementations|synthetic-implementations|blanket-implementations|foreign-impls|implementors)')

lines = []
for page in docs.rglob("*.html"):
    kind, _, name = page.stem.partition(".")
    if kind not in kinds or not name:
        continue
    text = page.read_text(encoding="utf-8")
    if 'http-equiv="refresh"' in text:
        continue  # where an item lies, if it is offered elsewhere
    path = "::".join([*page.relative_to(docs).parent.parts, name])
    # Behind this are the traits of std and others, whose methods are not ours.
    text = others.split(text)[0]
    lines.append(f"{path} ({kind})")
    lines += sorted({f"{path}::{member}" for member in members.findall(text)})
lines.sort()

snapshot = here / "api.txt"
if "--update" in sys.argv:
    snapshot.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
known = snapshot.read_text(encoding="utf-8").splitlines()
difference = list(difflib.unified_diff(known, lines, "tests/api.txt", "the documentation", lineterm="", n=0))
print("\n".join(difference) or f"{len(lines)} items, as in tests/api.txt")
if difference:
    sys.exit("Error: the public API is another one. If it is meant to be, run tests/api.py --update.")

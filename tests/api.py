#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""What the library offers to Rust, read from its documentation (cargo doc --workspace --lib --no-deps): tests/api.py [--update]

A line is an item with its signature. Without --update, what differs from tests/api.txt is an error: a change of the public API
is to be seen in a commit. A line that goes or changes breaks programs, a new one does not."""
import difflib
import html
import os
import pathlib
import re
import sys

# Lines of each crate: an API that can be read at one sitting.
MAXIMA = {"gsttrt_core": 300, "gsttrt": 20, "gsttrt_publish": 160}

here = pathlib.Path(__file__).resolve().parent
docs = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", here.parent / "target")) / "doc"
kinds = ("struct", "enum", "fn", "trait", "constant", "static", "type", "macro")

declaration = re.compile(r'<pre class="rust item-decl"><code>(.*?)</code></pre>', re.S)
member = re.compile(
    r'<section id="(?:method|tymethod|associatedconstant|variant)\.[^"]*" class="(?:method|associatedconstant|variant)">'
    r'.*?class="code-header">(.*?)</h[34]>|<span id="structfield\.[^"]*".*?<code>(.*?)</code>', re.S)
implementation = re.compile(r'<section id="impl-[^"]*".*?<h3 class="code-header">impl(.*?)</h3>', re.S)


def text(markup):
    """A signature in one line, without links and bodies."""
    plain = html.unescape(re.sub(r"<summary.*?</summary>|<[^>]*>", "", markup, flags=re.S))
    return re.sub(r"\s+", " ", plain).replace("( ", "(").replace(", )", ")").strip()


def section(page, name):
    """One list of a page: methods, or implementations of traits."""
    start = page.find(f'id="{name}"')
    return page[start:page.find("<h2", start + 1)] if start >= 0 else ""


lines = []
for file in (file for crate in MAXIMA for file in (docs / crate).rglob("*.html")):
    kind, _, name = file.stem.partition(".")
    page = file.read_text(encoding="utf-8")
    if kind not in kinds or not name or 'http-equiv="refresh"' in page:
        continue  # the last is where an item lies, if it is offered elsewhere
    path = "::".join([*file.relative_to(docs).parent.parts, name])
    declared = declaration.search(page)
    signature = text(declared[1]) if declared else ""
    if kind in ("struct", "enum", "trait"):  # their members have lines of their own
        signature = re.sub(r"\s*\{.*", "", signature)
    traits = section(page, "trait-implementations-list")
    derived = {text(found).removesuffix(f" for {name}") for found in implementation.findall(traits)}
    derived = sorted(derived - {"StructuralPartialEq"})  # comes with PartialEq
    lines.append(f"{path}: {signature}" + (f" [{', '.join(derived)}]" if derived else ""))
    # Behind this are the traits of std and others, whose methods are not ours.
    own = re.split(r'id="(?:deref-methods|trait-implementations|synthetic-implementations|foreign-impls|implementors)', page)[0]
    lines += sorted({f"{path}: {text(a or b)}" for a, b in member.findall(own)})
lines.sort(key=lambda line: line.split(": ")[0])

snapshot = here / "api.txt"
if "--update" in sys.argv:
    snapshot.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
known = snapshot.read_text(encoding="utf-8").splitlines()
difference = list(difflib.unified_diff(known, lines, "tests/api.txt", "the documentation", lineterm="", n=0))
print("\n".join(difference) or f"{len(lines)} lines, as in tests/api.txt")
if difference:
    sys.exit("Error: the public API is another one. If it is meant to be, run tests/api.py --update.")
for crate, maximum in MAXIMA.items():
    count = sum(line.startswith(f"{crate}::") for line in lines)
    print(f"{crate}: {count} lines, of {maximum} at most")
    if count > maximum:
        sys.exit(f"Error: the public API of {crate} has {count} lines; it is to have {maximum} at most.")

#!/usr/bin/env python3
# SPDX-License-Identifier: MPL-2.0
"""Checks the chart's keys of a source against docs/serve.md. Helm is not needed."""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def keys_of_the_page():
    """The first column of the table of [[source]], in which a row may have several keys."""
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    table = page.split("| `[[source]]` |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {key for row in rows for key in re.findall(r"`([a-z-]+)`", row)}


def main():
    schema = json.loads((ROOT / "packaging/chart/values.schema.json").read_text(encoding="utf-8"))
    of_schema = set(schema["properties"]["sources"]["items"]["properties"])
    of_page = keys_of_the_page()
    if of_schema != of_page:
        sys.exit(
            "keys of a source: values.schema.json of the chart has not the keys of docs/serve.md. "
            f"Only in the schema: {sorted(of_schema - of_page)}, only on the page: {sorted(of_page - of_schema)}."
        )


main()

# SPDX-License-Identifier: MPL-2.0
"""What scripts of measures are told: KEY=VALUE, over their defaults."""

import sys


def options_of(defaults, usage):
    """Ends the program with its usage where a key is not among the defaults."""
    options = dict(defaults)
    for argument in sys.argv[1:]:
        key, _, value = argument.partition("=")
        if key not in options:
            sys.exit(usage.strip())
        options[key] = value
    return options

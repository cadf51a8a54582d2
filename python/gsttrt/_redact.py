# SPDX-License-Identifier: MPL-2.0
"""Addresses as they may be shown and written: without passwords."""

from __future__ import annotations

import re

# Words of names whose values are nobody's business, as in the library.
SECRETS = ("pas", "pwd", "pw", "user", "usr", "login", "account", "token", "secret", "auth", "key", "cred", "sig", "session")
ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*://)(\S+)", re.I)
# User and password end with the last @ before the path. A password that is not escaped may have a slash in it: what stands between
# the colon and it is no port then.
USER = re.compile(r"^([^/?#]*|[^/?#@:]*:(?!\d*/).*)@")
VALUE = re.compile(r"(?<=[?&;/#])([^=&;/?#]+)=([^&;#\s]*)")


def redacted(text: str) -> str:
    """A text with addresses, without users, passwords and what has a name such as token or signature."""
    return ADDRESS.sub(lambda found: found[1] + without_secrets(found[1], found[2]), text)


def without_secrets(scheme: str, rest: str) -> str:
    if scheme.lower() == "file://":
        return rest
    return VALUE.sub(hidden, USER.sub("***@", rest))


def hidden(value: re.Match[str]) -> str:
    name = value[1].lower()
    # A name with a percent sign could be any.
    is_secret = "%" in name or any(word in name for word in SECRETS)
    return f"{value[1]}=***" if is_secret else value[0]

"""Fuzz target: any text is refused or confined, nothing else is raised, and what is accepted is stable.

Run: ``python tests/fuzz/fuzz_uri.py -max_total_time=60``
"""

from __future__ import annotations

import posixpath
import sys
from urllib.parse import unquote

import atheris

with atheris.instrument_imports(include=["sandbox"]):
    from sandbox.errors import CallRefused
    from sandbox.serve.paths import Roots, check_path
    from sandbox.serve.templates import Template
    from sandbox.serve.uris import UriRules, check_reference, check_uri

ROOTS = ("/data/a", "/srv")
RULES = UriRules(
    Roots(ROOTS), "/data/a/w", (Template("m://{x}{/y*}{?q}"), Template("n:{+z}")), lambda _host, _port: None
)
HEADS = ("", "/data/a/", "file:///data/a/", "http://", "m://", "n:")


def inside(path: str) -> bool:
    """Return whether a path is lexically a root or below one."""
    plain = posixpath.normpath(path)
    return any(plain == root or plain.startswith(root + "/") for root in ROOTS)


def one(data: bytes) -> None:
    """Check one text in every way."""
    provider = atheris.FuzzedDataProvider(data)
    text = HEADS[provider.ConsumeIntInRange(0, len(HEADS) - 1)] + provider.ConsumeUnicode(200)
    for check in (check_uri, check_reference):
        try:
            checked = check(text, RULES)
        except CallRefused:
            continue
        if check_uri(checked.text, RULES) != checked:
            raise AssertionError(f"not stable: {text!r}")
        if checked.kind == "file" and not inside(checked.path):
            raise AssertionError(f"outside: {text!r}")
    try:
        checked = check_path(text, RULES.roots, RULES.cwd)
    except CallRefused:
        return
    for reading in (checked.text, unquote(checked.text), unquote(unquote(checked.text))):
        if not inside(reading) or not inside(reading.replace("\\", "/")):
            raise AssertionError(f"outside: {text!r}")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()

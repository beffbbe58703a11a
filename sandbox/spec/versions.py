"""Versions and ranges as npm reads them, and the ``version_check`` of a driver.

Ranges are npm's (AIP-30 ``implements[].version``, ``version_check.range``); ``node-semver``, a port of npm's own
parser, reads them. Patterns of ``version_check.parse`` run over what an untrusted server prints, so they are compiled
by RE2, whose time is linear in the text (ADR 0014).
"""

from __future__ import annotations

import functools
import re
import shlex
from typing import Any, Final

import nodesemver  # type: ignore[import-untyped]

from sandbox.limits import KIB
from sandbox.spec.model import VersionCheck

MAX_RANGE_CHARS: Final = 256
"""A version or range; npm's own bound for versions. The range parser is quadratic in its length."""

MAX_VERSION_OUTPUT: Final = 4 * KIB
"""Of a version check's output that is searched."""

MAX_PATTERN_CHARS: Final = 512
"""A ``version_check.parse`` pattern."""

MAX_REMEMBERED: Final = 512
"""Answers about versions and ranges that are kept: all tools of a driver usually ask the same."""

_PATTERN_MEMORY: Final = 1 << 20
"""Bytes RE2 may spend on one compiled pattern."""

_SHELL: Final = re.compile(r"[;&|<>`$(){}*?\[\]!\n\\~#]")
"""Characters that mean something to a shell. There is none, so a command that holds them expects the wrong thing."""


@functools.lru_cache(maxsize=MAX_REMEMBERED)
def is_version(text: str) -> bool:
    """Return whether a text is one full semantic version (semver.org 2.0.0)."""
    plain = len(text) <= MAX_RANGE_CHARS and text.isascii() and text[:1].isdigit()
    return plain and nodesemver.valid(text, False) is not None


@functools.lru_cache(maxsize=MAX_REMEMBERED)
def is_range(text: str) -> bool:
    """Return whether a text is an npm range such as ``^1.2.0``, ``>=0.5`` or ``>=2.40 <3``; the empty text is not."""
    plain = bool(text.strip()) and len(text) <= MAX_RANGE_CHARS and text.isascii()
    return plain and nodesemver.valid_range(text, False) is not None


@functools.lru_cache(maxsize=MAX_REMEMBERED)
def satisfies(version: str, wanted: str) -> bool:
    """Return whether a version lies in an npm range; a prerelease only in a range that names one (npm's rule)."""
    return is_version(version) and is_range(wanted) and bool(nodesemver.satisfies(version, wanted, loose=False))


def major(version: str) -> int:
    """Return the first number of a version."""
    return int(version.partition(".")[0])


def compare(one: str, other: str) -> int:
    """Return -1, 0 or 1 as one version is lower than, equal to or higher than another."""
    return int(nodesemver.compare(one, other, False))


def pattern(text: str) -> Any:
    """Return a compiled ``version_check.parse``.

    Raises:
        ValueError: RE2 cannot run it in linear time (look-around, back-references), it is no pattern at all, it is too
            long, or it has no group.
    """
    # Imported here: most drivers have no version check.
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415

    if len(text) > MAX_PATTERN_CHARS:
        raise ValueError(f"it has more than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY
    options.log_errors = False
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a pattern"
        raise ValueError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    if compiled.groups < 1:
        raise ValueError("it has no group in parentheses")
    return compiled


def accepts(check: VersionCheck, output: str) -> tuple[str, bool]:
    """Hold a version check's output against its pattern and range.

    Args:
        check: from a loaded driver.
        output: what the program printed; only the first ``MAX_VERSION_OUTPUT`` characters are searched.

    Returns:
        The version found, empty when the pattern did not match, and whether it lies in the range. ``2.40`` counts as
        ``2.40.0``, and a leading ``v`` is dropped, as npm does.
    """
    match = pattern(check.parse).search(output[:MAX_VERSION_OUTPUT])
    found = (match.group(1) or "").strip() if match else ""
    version = found.removeprefix("v")
    version += ".0" * max(0, 2 - version.count(".")) if re.fullmatch(r"[0-9]+(\.[0-9]+)*", version) else ""
    return found, satisfies(version, check.range)


def command(text: str) -> tuple[str, ...]:
    """Return a ``version_check.cmd`` in words.

    Raises:
        ValueError: it is empty, has an open quotation, or needs a shell.
    """
    if found := _SHELL.search(text):
        raise ValueError(f"it holds {found.group()!r}, and no shell reads it")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(str(error).lower()) from None
    if not words:
        raise ValueError("it is empty")
    return tuple(words)

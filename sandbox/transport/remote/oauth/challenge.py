"""``WWW-Authenticate`` (RFC 9110 §11.6.1): the parameters of the ``Bearer`` challenge, read strictly; pure.

What two readers could read differently is read as nothing: a parameter twice, an open quotation, two Bearer challenges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

MAX_FIELD: Final = 8 * 1024
"""Characters of one field; real ones have 200."""

_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:({_WORD})|"((?:[^"\\\x00-\x1f\x7f]|\\[\x20-\x7e])*)")')
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+|$)")
_TOKEN68: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_GAP: Final = re.compile(r"[ \t]*(?:,[ \t]*)*")


def bearer(fields: Iterable[str]) -> Mapping[str, str]:
    """Return the parameters of the Bearer challenge, by lower-case name; empty when there is none that is clear.

    Args:
        fields: values of ``WWW-Authenticate``, each with one or more challenges.
    """
    found = [own for field in fields for scheme, own in _challenges(field) if scheme == "bearer"]
    return found[0] if len(found) == 1 else {}


def _challenges(field: str) -> list[tuple[str, dict[str, str]]]:
    """Return scheme and parameters of each challenge of a field; none at all when it is malformed."""
    if len(field) > MAX_FIELD:
        return []
    found: list[tuple[str, dict[str, str]]] = []
    at = _gap(field, 0)
    while at < len(field):
        parameter = _PARAMETER.match(field, at)
        if parameter is not None and found:
            name = parameter[1].lower()
            if name in found[-1][1]:
                return []
            quoted = parameter[3]
            found[-1][1][name] = parameter[2] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            at = _gap(field, parameter.end())
            continue
        scheme = _SCHEME.match(field, at)
        if scheme is None:
            return []
        found.append((scheme[1].lower(), {}))
        at = scheme.end()
        blob = _TOKEN68.match(field, at)
        if blob is not None and _PARAMETER.match(field, at) is None:
            at = blob.end()
        at = _gap(field, at)
    return found


def _gap(field: str, at: int) -> int:
    match = _GAP.match(field, at)
    return match.end() if match else at

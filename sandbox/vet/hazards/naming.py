"""Hazards of names: what cannot be called safely, and what can be taken for something else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from sandbox.vet.containment import shown
from sandbox.vet.findings import Finding, Severity
from sandbox.vet.hazards.interface import Subject

MAX_NAME_CHARS: Final = 128
"""MCP 2025-11-25, tool names."""

_GRAMMAR: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SEPARATORS: Final = re.compile(r"[-_.\s]+")

_LOOKS_LIKE: Final = str.maketrans(
    {
        **dict(zip("АВЕЅІЈКМНОРСТУХҮԌԚԜ", "ABESIJKMHOPCTYXYGQW", strict=True)),
        **dict(zip("аеіјорсухѕһԁԛԝѵӏгп", "aeijopcyxshdqwvlrn", strict=True)),
        **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
        **dict(zip("αγεικνορτυχω", "ayeikvoptuxw", strict=True)),
        **dict(zip("օսոցհ", "ounqh", strict=True)),
        **dict(zip("ıȷɑɡɩʋ", "ijagiv", strict=True)),
        **dict(zip("0135", "oles", strict=True)),
        "I": "l",
        "|": "l",
        "!": "l",
        "$": "s",
        "@": "a",
    }
)
"""Characters that are drawn like another one, after Unicode TR39, restricted to what occurs in identifiers."""


def folded(name: str) -> str:
    """Return a name without differences of case and compatibility forms."""
    return unicodedata.normalize("NFKC", name).casefold()


def drawn(name: str) -> str:
    """Return a name as a reader sees it: look-alikes of other scripts and digits replaced, marks dropped."""
    plain = unicodedata.normalize("NFKD", name)
    bare = "".join(char for char in plain if not unicodedata.combining(char))
    return unicodedata.normalize("NFKC", bare.translate(_LOOKS_LIKE)).casefold()


class MistakableName:
    """A name that another loaded server's tool has too, as far as a reader can tell."""

    id = "VET-205"
    title = "name that can be mistaken for another server's tool"
    severity: Severity = "block"
    mend = "bind only one of them, or give the contracts ids that cannot be mistaken"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield names of other tools that look the same; those that differ in separators only inform."""
        name = subject.name
        for server, others in subject.others.items():
            of = f"`{ascii(server)[1:-1]}`'s" if server else "the same server's"
            for other in sorted(set(others) - {name}):
                if folded(other) == folded(name) or drawn(other) == drawn(name):
                    yield subject.finding(self, "name", f"{shown(name)} looks like {of} tool {shown(other)}")
                elif _SEPARATORS.sub("", folded(other)) == _SEPARATORS.sub("", folded(name)):
                    message = f"{shown(name)} differs from {of} tool {shown(other)} in separators only"
                    yield subject.finding(self, "name", message, "inform")
            if server and name in others:
                yield subject.finding(self, "name", f"{shown(name)} is also the name of {of} tool", "inform")


class OddName:
    """A name outside the protocol's grammar."""

    id = "VET-210"
    title = "tool name outside the grammar"
    severity: Severity = "block"
    mend = "expose it under a contract's id, which has a plain name"

    def check(self, subject: Subject) -> Iterator[Finding]:
        """Yield a name that is empty or over-long; other visible characters inform, the grammar being a SHOULD."""
        name = subject.name
        if _GRAMMAR.fullmatch(name):
            return
        if not 0 < len(name) <= MAX_NAME_CHARS:
            yield subject.finding(
                self, "name", f"the name has {len(name)} characters; 1 to {MAX_NAME_CHARS} are allowed"
            )
        else:
            message = f"{shown(name)} has characters beyond A–Z, a–z, 0–9, `_`, `-` and `.`"
            yield subject.finding(self, "name", message, "inform")

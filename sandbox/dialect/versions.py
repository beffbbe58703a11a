"""Releases of the dialect and which one two sides agree on (S1-10, S1-11, S1-12).

A version is ``YYYY-MM``. The rule of the document, “mismatch > 1 cycle: downgrade or reject”, counts *cycles*; releases
did not come monthly, so a cycle is a step in the list of releases: 2025-06 and 2025-11 are one apart, not five.

=========  ===========================================================================================
distance   outcome
=========  ===========================================================================================
0          that release
1          the older of the two: the newer side steps down
more       refused by a server, which names the releases it would take; a client may *downgrade*: speak
           the server's release when it is an older one that the client still speaks, else it rejects too
unknown    refused: what is no release has no distance
=========  ===========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sandbox.dialect.refusals import DialectRefused

RELEASES: Final = ("2024-10", "2024-11", "2025-03", "2025-06", "2025-11")
"""Every release, oldest first."""

DIALECT: Final = RELEASES[-1]
"""The release that this package implements."""

CYCLES: Final = 1
"""Steps in the list of releases that two sides may be apart."""

CAPABILITIES: Final = ("async", "registry", "code_exec", "stream", "sandbox", "schema_ref")
"""Capabilities that the document defines, in its order."""

_FORM: Final = re.compile(r"([0-9]{4})-([0-9]{2})")

OnMismatch = Literal["downgrade", "reject"]


@dataclass(frozen=True, slots=True)
class Agreed:
    """What two sides speak.

    Attributes:
        version: the release.
        how: ``same``, or ``downgraded``: one side stepped down.
    """

    version: str
    how: Literal["same", "downgraded"]


def checked(text: str) -> str:
    """Return a version that is a year and a month.

    Raises:
        DialectRefused: ``DIA-001``, it is not.
    """
    found = _FORM.fullmatch(text)
    if found is None or not 1 <= int(found[2]) <= 12 or int(found[1]) < 2024:  # noqa: PLR2004 - months; first release
        raise DialectRefused("DIA-001", f"{text[:40]!r} is no version", f"write year and month, such as {DIALECT}")
    return text


def distance(one: str, other: str) -> int:
    """Return how many releases two releases are apart.

    Raises:
        DialectRefused: ``DIA-001`` no version, ``DIA-002`` no release.
    """
    return abs(_place(one) - _place(other))


def within(version: str) -> tuple[str, ...]:
    """Return the releases that are at most one cycle from a release, oldest first."""
    return tuple(one for one in RELEASES if distance(one, version) <= CYCLES)


def negotiate(theirs: str, ours: str = DIALECT) -> Agreed:
    """Return what a server of release ``ours`` speaks with a client of release ``theirs``.

    Raises:
        DialectRefused: ``DIA-001``, ``DIA-002``; ``DIA-003``, they are more than one cycle apart.
    """
    if distance(theirs, ours) > CYCLES:
        raise _apart(theirs, ours)
    older = min(theirs, ours)
    return Agreed(older, "same" if theirs == ours else "downgraded")


def settle(
    theirs: str, ours: str = DIALECT, *, speaks: Collection[str] = RELEASES, on_mismatch: OnMismatch = "downgrade"
) -> Agreed:
    """Return what a client of release ``ours`` speaks with a server of release ``theirs``.

    Args:
        theirs: what the server says.
        ours: what the client prefers.
        speaks: every release that the client speaks.
        on_mismatch: what to do when they are more than one cycle apart.

    Raises:
        DialectRefused: as :func:`negotiate` says, where the client does not step down.
    """
    if distance(theirs, ours) <= CYCLES:
        return negotiate(theirs, ours)
    if on_mismatch == "downgrade" and theirs < ours and theirs in speaks:
        return Agreed(theirs, "downgraded")
    raise _apart(theirs, ours)


def common(theirs: Iterable[str], ours: Collection[str]) -> tuple[str, ...]:
    """Return the capabilities that both sides have, in the document's order; what nobody defined is not agreed."""
    both = set(theirs) & set(ours)
    return tuple(one for one in CAPABILITIES if one in both)


def _place(version: str) -> int:
    if checked(version) not in RELEASES:
        raise DialectRefused(
            "DIA-002", f"{version} is no release", f"use one of {', '.join(RELEASES)}", data={"supported": [*RELEASES]}
        )
    return RELEASES.index(version)


def _apart(theirs: str, ours: str) -> DialectRefused:
    text = f"{theirs} and {ours} are {distance(theirs, ours)} releases apart"
    taken = within(ours)
    return DialectRefused("DIA-003", text, f"speak one of {', '.join(taken)}", data={"supported": [*taken]})

"""Known vulnerabilities of what runs containers, by version; pure.

A version number says what upstream fixed, not what a distribution backported: Debian's ``1.1.5+ds1-1+deb12u1`` has
the fix of CVE-2024-21626 under an older number. So a hit on a distribution's version is a warning to look it up, and a
hit on an upstream version is a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Version = tuple[int, int, int, int]
"""Major, minor, patch, and release candidate (a release sorts after its candidates)."""

RELEASE: Final = 1 << 30
"""Stands for "not a candidate" in a version's fourth place."""

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[-~]?rc[.-]?(\d+))?")
_DISTRIBUTION: Final = re.compile(r"(?:\+deb\d|ubuntu|\.el\d|\.fc\d|\.amzn|\+dfsg|\+ds\d|-alpine)")


@dataclass(frozen=True, slots=True)
class Advisory:
    """One vulnerability.

    Attributes:
        id: CVE number.
        component: ``runc`` or ``engine``.
        fixed: first fixed version of each maintained branch, ascending.
        what: what an attacker gains.
        here: what stands in its way in this project.
        backported: beginnings of distribution versions whose changelog names the fix.
    """

    id: str
    component: Literal["runc", "engine"]
    fixed: tuple[str, ...]
    what: str
    here: str
    backported: tuple[str, ...] = ()


ADVISORIES: Final = (
    Advisory(
        "CVE-2024-21626",
        "runc",
        ("1.1.12",),
        "a leaked descriptor of the host's file system is reached through the working directory",
        "plans refuse a working directory below /proc",
        backported=("1.1.5+ds1-1+deb12u",),
    ),
    Advisory(
        "CVE-2025-31133",
        "runc",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "an image that replaces /dev/null redirects the masking of kernel files",
        "the read-back compares each mask with the sandbox's own null device",
    ),
    Advisory(
        "CVE-2025-52565",
        "runc",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "a race on /dev/console mounts a host file over it",
        "no terminal is ever given",
    ),
    Advisory(
        "CVE-2025-52881",
        "runc",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
        "writes of the runtime to /proc are redirected through a shared mount",
        "containers share no volume or mount; use images from a source you trust",
    ),
    Advisory(
        "CVE-2026-41579",
        "runc",
        ("1.3.6", "1.4.3", "1.5.0-rc.3"),
        "an image whose /dev is a link makes the runtime act outside the container",
        "the read-back refuses a /dev that is not the sandbox's own; use images from a source you trust",
    ),
    Advisory(
        "CVE-2024-29018",
        "engine",
        ("25.0.4",),
        "the engine's resolver forwards names from internal networks",
        "sandboxes have no network of the engine's, so its resolver is not reachable",
    ),
)


def parse(text: str) -> Version | None:
    """Return a version's numbers, ``None`` when there are none."""
    match = _VERSION.match(text.strip())
    if match is None:
        return None
    candidate = int(match[4]) if match[4] else RELEASE
    return int(match[1]), int(match[2]), int(match[3] or 0), candidate


def affected(advisory: Advisory, version: Version) -> bool:
    """Return whether upstream's version of that number has the vulnerability.

    A version is fixed when it is at or above the fix of its own branch; a branch without a fix is judged by the
    nearest fix above it.
    """
    fixes = [fix for fix in (parse(text) for text in advisory.fixed) if fix is not None]
    same_branch = [fix for fix in fixes if fix[:2] == version[:2]]
    if same_branch:
        return version < same_branch[0]
    return any(version < fix for fix in fixes)


def is_distribution(text: str) -> bool:
    """Return whether a version is a distribution's package version, which may carry backported fixes."""
    return _DISTRIBUTION.search(text) is not None

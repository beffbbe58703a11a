"""Loads the seccomp profiles that ship under ``policies/seccomp``, and refuses one that a reviewer could not judge.

A profile denies by default and every rule says why it is there (``comment``: ``<group>: <reason>``). The digest that a
plan carries is taken over exactly the bytes that the engine is given, so that what was reviewed, what was planned and
what runs are one thing.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.resources import shipped

PROFILES: Final = ("nonet", "net", "nonet-nospawn", "net-nospawn")
"""``nonet`` has no INET sockets at all; ``net`` is ``nonet`` and IPv4/IPv6 TCP and UDP; ``-nospawn``: no child."""

ARCHITECTURES: Final = frozenset({"SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"})
"""No 32-bit entry: it doubles the attack surface and is not filtered by 64-bit call numbers."""

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_REASON: Final = re.compile(r"([a-z][a-z0-9-]*): \S.{9,}\Z")
_ACTIONS: Final = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"})


@dataclass(frozen=True, slots=True)
class Profile:
    """A seccomp profile as the engine is given it.

    Attributes:
        name: file name without ``.json``.
        text: compact JSON.
        digest: ``sha256:…`` of ``text``.
    """

    name: str
    text: str
    digest: str


def load(name: str) -> Profile:
    """Return a shipped profile.

    Raises:
        PlatformError: ``LAUNCH-012``, there is none of that name or it breaks the rules of :func:`faults`.
    """
    if _NAME.match(name) is None:
        raise _unusable(name, ("its name is not lower-case letters, digits and hyphens",))
    value = jsontext.parse(shipped("policies", "seccomp", f"{name}.json").read_bytes())
    found = faults(value)
    if found:
        raise _unusable(name, found)
    data = jsontext.canonical(value)
    return Profile(name, data.decode("ascii"), "sha256:" + hashlib.sha256(data).hexdigest())


def faults(profile: Any) -> tuple[str, ...]:
    """Return what makes a profile unusable, empty when nothing does; pure."""
    if not isinstance(profile, dict) or profile.get("defaultAction") != "SCMP_ACT_ERRNO":
        return ("it does not deny by default",)
    wrong = []
    if (
        not {entry.get("architecture") for entry in profile.get("archMap", ())} <= ARCHITECTURES
        or "architectures" in profile
    ):
        wrong.append("it admits an architecture other than x86-64 and AArch64")
    if any(entry.get("subArchitectures") for entry in profile.get("archMap", ())):
        wrong.append("it admits 32-bit or x32 calls")
    for number, rule in enumerate(profile.get("syscalls", ())):
        wrong += [f"rule {number} {fault}" for fault in _rule_faults(rule)]
    return tuple(wrong)


def groups(profile: Any) -> dict[str, dict[str, Any]]:
    """Return a profile's rules by group name."""
    return {rule["comment"].partition(":")[0]: rule for rule in profile["syscalls"]}


def _rule_faults(rule: Any) -> list[str]:
    wrong = []
    if _REASON.match(rule.get("comment", "")) is None:
        wrong.append("has no reason (`comment`: `<group>: <reason>`)")
    if rule.get("action") not in _ACTIONS:
        wrong.append("does something other than allowing or failing")
    if not rule.get("names"):
        wrong.append("names no call")
    return wrong


def _unusable(name: str, found: tuple[str, ...]) -> PlatformError:
    return PlatformError(
        "LAUNCH-012",
        f"the seccomp profile {name[:64]!r} cannot be used: {'; '.join(found)}",
        "restore policies/seccomp from the release; its README says what a profile must hold",
    )

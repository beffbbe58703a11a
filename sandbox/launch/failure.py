"""Sorts what a container engine says when it fails: platform fault, or a server that cannot be started; pure.

The theory: only the engine's words decide, never the server's. Engines quote what they were given (a program's name, a
path, an image), and whoever writes a driver chooses those texts; so the one rule that blames the server is anchored on
the engine's first words (:data:`EXEC_FAILED`), and before the others look at a message, everything quoted and
everything that came from the driver is taken out (:func:`skeleton`).

Messages were captured from Docker 20.10.24 with runc 1.1.5 (``tests/unit/launch/test_failure.py`` holds them).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sandbox.errors import PlatformError, SandboxError, ServerFault

Step = Literal["create", "attach", "start", "inspect"]

MAX_REASON: Final = 600
"""Characters of an engine's message that are repeated to people; runc's are long and repeat themselves."""

MIN_FOREIGN: Final = 6
"""Characters of a driver's text from which on it is taken out; the shortest word that a rule looks for has six."""

_ANY: Final[frozenset[str]] = frozenset({"create", "attach", "start", "inspect"})
_CREATE: Final[frozenset[str]] = frozenset({"create"})
_START: Final[frozenset[str]] = frozenset({"start"})
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_ELLIPSIS: Final = "…"


@dataclass(frozen=True, slots=True)
class Rule:
    """One known kind of failure.

    Attributes:
        id: error id.
        steps: where it may occur.
        pattern: searched in the message's skeleton.
        message: one sentence; ``mend`` what to do.
    """

    id: str
    steps: frozenset[str]
    pattern: re.Pattern[str]
    message: str
    mend: str


def _rule(id_: str, steps: frozenset[str], pattern: str, message: str, mend: str) -> Rule:
    return Rule(id_, steps, re.compile(pattern), message, mend)


EXEC_FAILED: Final = re.compile(
    r"\A(?:failed to create shim task: |failed to create task for container: )?OCI runtime create failed: "
    r"(?:runc create failed: )?"
    r"(?:unable to start container process|[a-z_]+\.go:[0-9]+: starting container process caused)"
    r': (?:error during container init: )?exec: "(?:[^"\\]|\\.)*": (?:stat .*: )?'
    r"(?:no such file or directory|permission denied|executable file not found in \$PATH|exec format error"
    r"|is a directory|not a directory)(?:: unknown)?\Z",
    re.DOTALL,
)
"""The one failure that is the server's. It is matched on the whole message from its first letter, which is the
engine's: a text of the driver's further on cannot imitate it, and the program's name is quoted with its own quotes
escaped."""

RULES: Final = (
    _rule(
        "LAUNCH-010",
        _CREATE,
        r"\ANo such image: ",
        "the planned image is not present in the engine",
        "run `mcp-sandbox install DRIVER.md`; nothing is pulled during a start",
    ),
    _rule(
        "LAUNCH-021",
        _ANY,
        r"\A(?:Unknown runtime specified|unknown or invalid runtime name)",
        "the engine does not know the planned runtime",
        "install it and register it in the engine's configuration, or change `sandbox.runtime`; it is never replaced",
    ),
    _rule(
        "LAUNCH-022",
        _CREATE,
        r"bind source path does not exist",
        "a planned mount's host path does not exist any more",
        "create it, or take the root out of `sandbox.fs`",
    ),
    _rule(
        "LAUNCH-024",
        _ANY,
        r"no space left on device|disk quota exceeded",
        "the host's disk is full",
        "free space on the engine's data directory; `docker system df` shows what uses it",
    ),
    _rule(
        "LAUNCH-025",
        _ANY,
        r"cannot allocate memory|resource temporarily unavailable|too many open files|fork/exec .*: out of memory",
        "the host has run out of memory, processes or descriptors",
        "stop something, or give the host more",
    ),
    _rule(
        "LAUNCH-026",
        _START,
        r"error setting rlimit",
        "a planned process limit is above what the engine itself may have",
        "lower `limits.nofile` (`mcp-sandbox doctor` shows the bound), or raise the engine's own limit",
    ),
    _rule(
        "LAUNCH-027",
        _ANY,
        r"Range of CPUs is from|Minimum memory|Minimum memoryswap|cgroup|systemd.*unit",
        "the engine or kernel cannot enforce a planned resource limit",
        "see `mcp-sandbox doctor` for what this host can enforce, and change `limits` accordingly",
    ),
    _rule(
        "LAUNCH-031",
        _START,
        r"[Ss]eccomp",
        "the engine refused the seccomp profile",
        "upgrade the engine and libseccomp; the profile is never left out",
    ),
    _rule(
        "LAUNCH-032",
        _START,
        r"\ANo such container|cannot join network|network … not found|network \S+ not found",
        "the network namespace that the server was to join is gone",
        "start the session again; the egress holder ended, and its own record says why",
    ),
    _rule(
        "LAUNCH-033",
        _START,
        r"unable to find (?:user|group)|no matching entries in (?:passwd|group) file",
        "the planned user does not exist in the image",
        "use a numeric user in the plan",
    ),
    _rule(
        "LAUNCH-034",
        _CREATE,
        r"\AConflict\. The container name",
        "a container of that name exists already",
        "run `mcp-sandbox reap`",
    ),
    _rule(
        "LAUNCH-023",
        _ANY,
        r"error mounting|invalid mount config|invalid tmpfs option|mkdir .*(?:not a directory|read-only file system)"
        r"|Duplicate mount point|Are you trying to mount a directory onto a file",
        "a planned mount cannot be made",
        "check the mount's target in `sandbox.fs`: a directory on a directory, a file on a file, none twice",
    ),
)


def classify(step: Step, status: int, reason: str, foreign: Iterable[str] = ()) -> SandboxError:
    """Return the error for an engine's refusal.

    Args:
        step: what was being done.
        status: HTTP status of the engine's answer.
        reason: the engine's message.
        foreign: texts that a driver or server chose and that the message may repeat.
    """
    shown = shorten(reason)
    if step == "start" and EXEC_FAILED.match(reason):
        return ServerFault(
            "LAUNCH-040",
            f"the server's program cannot be executed; the engine said: {shown}",
            "check `server` in DRIVER.md: the program must exist in the image, be executable and fit its architecture",
        )
    bare = skeleton(reason, foreign)
    for rule in RULES:
        if step in rule.steps and rule.pattern.search(bare):
            return PlatformError(rule.id, f"{rule.message}; the engine said: {shown}", rule.mend)
    return PlatformError(
        "LAUNCH-029" if status >= 500 else "LAUNCH-028",  # noqa: PLR2004 - RFC 9110 §15.6
        f"the container engine failed to {step} the container (HTTP {status}): {shown}",
        "run `mcp-sandbox doctor`; the engine's own log says more",
    )


def skeleton(reason: str, foreign: Iterable[str] = ()) -> str:
    """Return a message without foreign texts, longest first, and without what it quotes.

    Shorter texts than :data:`MIN_FOREIGN` stay: they cannot imitate a rule, and taking out every "e" could hide one.
    """
    bare = reason
    for text in sorted(set(foreign), key=len, reverse=True):
        if len(text) >= MIN_FOREIGN:
            bare = bare.replace(text, _ELLIPSIS)
    return _QUOTED.sub(_ELLIPSIS, bare)


def shorten(reason: str) -> str:
    """Return a message for people: one line, printable, bounded, the end kept (runc puts the cause last)."""
    line = "".join(char if char.isprintable() else " " for char in " ".join(reason.split()))
    return line if len(line) <= MAX_REASON else _ELLIPSIS + line[-MAX_REASON:]

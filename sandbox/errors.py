"""Every error the project raises, sorted by whose fault it is.

::

    SandboxError
    ├── UsageError          the caller's command line, arguments or request
    ├── SpecError           the author's driver folder (carries every problem found, not only the first)
    │   ├── CeilingError    the operator's policy file (the same)
    │   └── PolicyError     the operator's Cedar rules (the same)
    ├── Refused             somebody with the right to say no said no
    │   ├── PlanRefused     operator ceiling or host: the driver asks for what may not or cannot be given
    │   │   └── PlanProblems  the same, with every refusal at once
    │   ├── InstallRefused  what an install brings is not what the lock pins, or not safe to unpack
    │   ├── VetRefused      the live server does not fit its contract
    │   │   └── VetProblems   the same, with every finding at once
    │   └── CallRefused     one call: method, tool, arguments, resource or policy
    ├── ServerFault         the untrusted server misbehaved (never raised for a platform failure)
    │   └── ServerTimeout   it did not answer within its deadline
    ├── PlatformError       container engine, host or network failed (never raised for the server's own answer)
    │   └── ReadbackMismatch  what runs is not what was planned
    └── AuditUnavailable    evidence cannot be written, so the effect must not happen

Each error has an ``id`` (``STAGE-nnn``) with a line in ``docs/errors/``, one sentence of ``message`` with the place,
and a ``mend``: what the reader can do about it. ``exit_code`` is the process's exit status, ``rpc_code`` the JSON-RPC
error code; ours lie outside −32768 … −32000, which the protocol reserves (MCP 2026-07-28, error codes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one place of a driver folder or policy file.

    Attributes:
        id: stable identifier, ``SPEC-nnn`` or the stage's own prefix; documented in ``docs/errors/``.
        file: path as the user gave it.
        line: 1-based line, 0 when the whole file is meant.
        field: dotted path of the field, such as ``sandbox.fs.read[0]``; empty for the whole file.
        found: what stands there, shortened; empty when something is missing.
        allowed: what may stand there.
        mend: how to put it right, in the imperative.
        message: the one sentence a reader sees first.
        severity: ``error`` refuses the folder; ``warning`` does not.
    """

    id: str
    file: str
    line: int
    field: str
    message: str
    found: str = ""
    allowed: str = ""
    mend: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        """Return ``file:line: ID message (found …; allowed …) — mend``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        details = "; ".join(
            text
            for text in (
                f"found {self.found}" if self.found else "",
                f"allowed: {self.allowed}" if self.allowed else "",
            )
            if text
        )
        named = f" `{self.field}`" if self.field else ""
        return (
            f"{place}: {self.id}{named}: {self.message}"
            + (f" ({details})" if details else "")
            + (f" — {self.mend}" if self.mend else "")
        )


class SandboxError(Exception):
    """Root of the tree; not raised itself.

    Args:
        id: ``STAGE-nnn``, documented in ``docs/errors/``.
        message: one sentence, with the place, without a trailing full stop being required.
        mend: what to do about it.
    """

    exit_code: ClassVar[int] = 1
    rpc_code: ClassVar[int] = -31000

    def __init__(self, id: str, message: str, mend: str = "") -> None:  # noqa: A002 - the public word for it
        self.id = id
        self.message = message
        self.mend = mend
        super().__init__(id, message, mend)

    def __str__(self) -> str:
        """Return ``ID: message — mend``."""
        return f"{self.id}: {self.message}" + (f" — {self.mend}" if self.mend else "")


class UsageError(SandboxError):
    """The caller's command line, file name or request is not usable."""

    exit_code = 2
    rpc_code = -31030


class SpecError(SandboxError):
    """The driver folder is not valid; ``problems`` lists everything wrong with it at once."""

    exit_code = 1
    rpc_code = -31001

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.id, f"{first}{more}")

    def __str__(self) -> str:
        """Return one line for each problem."""
        return "\n".join(str(problem) for problem in self.problems)


class CeilingError(SpecError):
    """The operator's policy file is not valid; no driver is planned under it."""


class PolicyError(SpecError):
    """The operator's Cedar rules or their cases are not valid; no call is decided under them."""


class Refused(SandboxError):
    """Somebody with the right to refuse did so."""

    exit_code = 3
    rpc_code = -31002


class PlanRefused(Refused):
    """The driver asks for something that the operator's ceiling forbids or that this host cannot enforce."""


class PlanProblems(PlanRefused):
    """A plan refused for one or more reasons, all of them in ``problems``, each with the place in driver and policy."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.id, f"{first}{more}")

    def __str__(self) -> str:
        """Return one line for each refusal."""
        return "\n".join(str(problem) for problem in self.problems)


class InstallRefused(Refused):
    """What an install brings is not what the lock pins, not safe to unpack, or cannot run in its image."""


class VetRefused(Refused):
    """The live server does not fit the contracts that its driver binds."""

    rpc_code = -31003


class VetProblems(VetRefused):
    """A server refused for one or more findings, all of them in ``problems``, each with the place in the driver."""

    def __init__(self, id: str, problems: tuple[Problem, ...]) -> None:  # noqa: A002 - the public word for it
        self.problems = problems
        super().__init__(id, "\n".join(map(str, problems)))


class CallRefused(Refused):
    """One request was refused before it reached the server.

    Attributes:
        retry: seconds for which the same request will be refused too, 0 when that is not known.
    """

    rpc_code = -31004
    retry: float = 0.0


class ServerFault(SandboxError):
    """The untrusted server broke the protocol or a bound; never used for a failure of the platform."""

    exit_code = 4
    rpc_code = -31010


class ServerTimeout(ServerFault):
    """The server did not answer within its deadline."""

    rpc_code = -31011


class PlatformError(SandboxError):
    """The container engine, the host or the network failed; never used for the server's own behaviour."""

    exit_code = 5
    rpc_code = -31020


class ReadbackMismatch(PlatformError):
    """The engine runs something other than what was planned; the launch is stopped.

    Attributes:
        differences: every field that differs (:class:`sandbox.launch.interface.Difference`), not only those in the
            sentence.
    """

    rpc_code = -31022
    differences: tuple[Any, ...] = ()


class AuditUnavailable(SandboxError):
    """Evidence cannot be written durably, so the effect it would have described does not happen."""

    exit_code = 6
    rpc_code = -31021

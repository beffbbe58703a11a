"""Collects every problem of a driver folder, so that an author sees all of them at once (S0-62).

A :class:`Report` is one run of the loader; a :class:`Source` is one file of it and knows the line of every field.
Checks say what is wrong with which field, and nothing raises until the whole folder has been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.errors import Problem
from sandbox.limits import MAX_PROBLEMS

MAX_SHOWN: Final = 80
"""Characters of a found value that a message repeats; more hides the message."""

MAX_FIELD: Final = 200
"""Characters of a field's path that a message shows."""


def shorten(value: Any) -> str:
    """Return a value as one short printable line: control characters escaped, the middle of long text dropped."""
    safe = printable((value if isinstance(value, str) else _plain(value))[: 4 * MAX_SHOWN])
    if len(safe) > MAX_SHOWN:
        safe = safe[: MAX_SHOWN - 1] + "…"
    return f"`{safe}`"


def printable(text: str) -> str:
    """Return text in which every character that a terminal might act on, or not show, is escaped."""
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)


def _plain(value: Any) -> str:
    names: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    if type(value) in names:
        return names[type(value)]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def join(path: str, part: str | int) -> str:
    """Return the dotted path of a member: ``a.b`` for a key, ``a[0]`` for an item."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


@dataclass(slots=True)
class Report:
    """Every problem found so far; bounded by ``limits.MAX_PROBLEMS``."""

    problems: list[Problem] = field(default_factory=list)
    dropped: int = 0

    def add(self, problem: Problem) -> None:
        """Keep a problem, once; past the bound it is only counted."""
        if problem in self.problems:
            return
        if len(self.problems) >= MAX_PROBLEMS:
            self.dropped += 1
            return
        self.problems.append(problem)

    @property
    def failed(self) -> bool:
        """Whether anything refuses the folder. A dropped problem counts: it was not looked at."""
        return self.dropped > 0 or any(problem.severity == "error" for problem in self.problems)

    def ordered(self) -> tuple[Problem, ...]:
        """Return the problems by file in the order of reading, then by line, errors before warnings on one line."""
        files = {file: index for index, file in enumerate(dict.fromkeys(problem.file for problem in self.problems))}
        found = sorted(self.problems, key=lambda p: (files[p.file], p.line, p.severity, p.id, p.field))
        if self.dropped:
            found.append(
                Problem(
                    id="SPEC-001",
                    file=found[0].file,
                    line=0,
                    field="",
                    message=f"{self.dropped} further problems are not shown",
                    allowed=f"{MAX_PROBLEMS} problems in one report",
                    mend="mend those above and check again",
                )
            )
        return tuple(found)


@dataclass(slots=True)
class Source:
    """One manifest: its name for messages, the line of each field, and where problems go.

    Attributes:
        file: path as the user gave it.
        lines: dotted path → 1-based line.
        tainted: paths whose value is already known to be wrong; further problems below them would only confuse.
        written: path → text of a plain number or truth value, as the author wrote it.
    """

    report: Report
    file: str
    lines: dict[str, int] = field(default_factory=dict)
    tainted: set[str] = field(default_factory=set)
    written: Mapping[str, str] = field(default_factory=dict)

    def alias(self, path: str, written: str) -> None:
        """Let a field be found at the line of another one, which is where its author wrote it."""
        for known in [
            name for name in self.lines if name == written or name.startswith((f"{written}.", f"{written}["))
        ]:
            self.lines.setdefault(path + known[len(written) :], self.lines[known])

    def line(self, path: str) -> int:
        """Return the line of a field, or of its nearest parent that is written."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = parent(path)
        return self.lines.get("", 1)

    def error(
        self,
        id: str,  # noqa: A002
        path: str,
        message: str,
        *,
        found: Any = "",
        allowed: str = "",
        mend: str = "",
    ) -> None:
        """Record a problem that refuses the folder.

        Args:
            id: ``SPEC-nnn``.
            path: dotted path of the field.
            message: one sentence.
            found: the value that stands there; never given for values that may be secret.
            allowed: what may stand there.
            mend: how to put it right, in the imperative.
        """
        self._add("error", id, path, message, found, allowed, mend)

    def warn(
        self,
        id: str,  # noqa: A002
        path: str,
        message: str,
        *,
        found: Any = "",
        allowed: str = "",
        mend: str = "",
    ) -> None:
        """Record a problem that does not refuse the folder; arguments as for :meth:`error`."""
        self._add("warning", id, path, message, found, allowed, mend)

    def _add(self, severity: str, id: str, path: str, message: str, found: Any, allowed: str, mend: str) -> None:  # noqa: A002
        if any(path == bad or path.startswith((f"{bad}.", f"{bad}[")) for bad in self.tainted):
            return
        self.report.add(
            Problem(
                id=id,
                file=self.file,
                line=self.line(path),
                field=printable(path if len(path) <= MAX_FIELD else f"{path[:MAX_FIELD]}…"),
                message=printable(message),
                found=shorten(found) if found != "" else "",
                allowed=printable(allowed),
                mend=printable(mend),
                severity=severity,
            )
        )


def parent(path: str) -> str:
    """Return the path one step up: ``a`` for ``a.b`` and for ``a[0]``, empty at the top."""
    return path[: path.rindex("[")] if path.endswith("]") and "[" in path else path.rpartition(".")[0]

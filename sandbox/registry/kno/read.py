"""Reads one ``.kno`` file, and says everything that is wrong with it at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.errors import Problem
from sandbox.limits import MAX_MANIFEST_BYTES
from sandbox.registry.kno.fields import FIELDS, VERSIONS
from sandbox.registry.kno.rules import between
from sandbox.spec import frontmatter

_RELEASE: Final = re.compile(r"(?:[a-z0-9./:_-]*mcp-server(?:-schema)?)@(\d+\.\d+\.\d+)")
KNOWN: Final = "kno@0.0.9"


@dataclass(slots=True)
class Kno:
    """One entity.

    Attributes:
        file: as it was named.
        values: fields, those of a wrong form too.
        release: of the schema.
        problems: everything wrong with it.
    """

    file: str
    values: dict[str, Any] = field(default_factory=dict)
    release: str = VERSIONS[-1]
    problems: list[Problem] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether nothing forbids serving it."""
        return not any(problem.severity == "error" for problem in self.problems)


def read_kno(path: Path, *owned: str) -> Kno:
    """Return an entity with its problems.

    Args:
        path: of the file.
        owned: namespaces that names may be under; none stands for any.
    """
    kno = Kno(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        kno.problems.append(
            Problem("KNO-001", kno.file, 0, "", f"it cannot be read: {error.strerror}", mend="see the file")
        )
        return kno
    read_text(kno, data, owned)
    return kno


def read_text(kno: Kno, data: bytes, owned: tuple[str, ...] = ()) -> None:
    """Fill in what a file's bytes say."""
    if len(data) > MAX_MANIFEST_BYTES:
        kno.problems.append(Problem("KNO-001", kno.file, 0, "", "it is too large", mend="see that it is an entity"))
        return
    marked = data if data.startswith(b"---") else b"---\n" + data.rstrip() + b"\n---\n"
    shift = 0 if data.startswith(b"---") else 1
    try:
        document = frontmatter.parse(marked)
    except frontmatter.FrontMatterError as error:
        for fault in error.faults:
            kno.problems.append(_fault(kno.file, fault, shift))
        return
    kno.problems += [_fault(kno.file, fault, shift) for fault in document.faults]
    kno.values = document.values

    def at(name: str) -> tuple[str, int]:
        return kno.file, max(0, document.lines.get(name, shift) - shift)

    kno.release = _release(kno, at("$schema")[1])
    kno.problems += _forms(kno, at)
    wrong = {problem.field for problem in kno.problems if problem.severity == "error"}
    sound = {name: value for name, value in kno.values.items() if name not in wrong}
    kno.problems += between(sound, kno.release, owned, at, wrong)


def _fault(file: str, fault: frontmatter.Fault, shift: int) -> Problem:
    line = max(0, fault.line - shift)
    return Problem("KNO-001", file, line, fault.path, fault.message, found=fault.found, mend=fault.mend)


def _release(kno: Kno, line: int) -> str:
    """Return the release of the schema that an entity is written for; the newest when it does not say."""
    named = kno.values.get("$schema")
    if named is None or named == KNOWN:
        return VERSIONS[-1]
    found = _RELEASE.fullmatch(str(named))
    if found is not None and found[1] in VERSIONS:
        return found[1]
    allowed = f"{KNOWN}, or mcp-server-schema@ with one of {', '.join(VERSIONS)}"
    message = "the schema is not one that is known"
    kno.problems.append(
        Problem("KNO-003", kno.file, line, "$schema", message, str(named)[:80], allowed, "name one of them")
    )
    return VERSIONS[-1]


def _forms(kno: Kno, at: Any) -> Iterator[Problem]:
    for name, known in FIELDS.items():
        if known.required and name not in kno.values:
            yield Problem("KNO-002", kno.file, 0, name, "the field is missing", allowed=known.allowed, mend="add it")
    for name, value in kno.values.items():
        file, line = at(name)
        form = FIELDS.get(name)
        if form is None:
            yield Problem("KNO-008", file, line, name, "the field is not known", mend="correct its name or remove it")
            continue
        wrong = form.check(value)
        if wrong:
            shown = str(value)[:60]
            yield Problem(
                "KNO-003", file, line, name, f"the value does not fit: {wrong}", shown, form.allowed, "correct it"
            )
        elif form.since > kno.release:
            message = f"the field came with {form.since}, and the entity names {kno.release}"
            mend = "name a later release in `$schema`"
            yield Problem("KNO-015", file, line, name, message, mend=mend, severity="warning")

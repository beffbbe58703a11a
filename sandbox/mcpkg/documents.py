"""JSON documents of a package: strict, bounded, held against a published schema, every problem at once."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox import jsontext
from sandbox.errors import Problem, SpecError
from sandbox.resources import shipped

MAX_SHOWN: Final = 80
"""Characters of a wrong value that a message repeats."""


@dataclass(slots=True)
class Findings:
    """What is wrong with a package, in the order of finding."""

    problems: list[Problem] = field(default_factory=list)

    def error(self, id: str, file: str, place: str, message: str, mend: str = "") -> None:  # noqa: A002
        """Note what refuses the package."""
        self.problems.append(Problem(id, file, 0, place, message, mend=mend))

    def warn(self, id: str, file: str, place: str, message: str, mend: str = "") -> None:  # noqa: A002
        """Note what a person should look at."""
        self.problems.append(Problem(id, file, 0, place, message, mend=mend, severity="warning"))

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Return what refuses the package."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    def raise_errors(self) -> None:
        """Raise when something refuses the package.

        Raises:
            SpecError: with every error.
        """
        if self.errors:
            raise SpecError(self.errors)


def parse(data: bytes, file: str, most: int, findings: Findings) -> Any:
    """Return the value of a strict JSON document; ``None`` after noting ``PKG-010`` (comments are no JSON, S3-23)."""
    if len(data) > most:
        findings.error("PKG-010", file, "", f"it is larger than {most} bytes", "shorten it")
        return None
    try:
        return jsontext.parse(data)
    except jsontext.JsonTextError as error:
        mend = "write strict JSON: no comments, no trailing commas, no duplicate members"
        findings.error("PKG-010", file, "", f"this is not strict JSON: {error}", mend)
        return None


def check(value: Any, kind: str, file: str, findings: Findings) -> bool:
    """Return whether a document fits its schema; every place that does not is noted as ``PKG-011``.

    Args:
        value: the document.
        kind: ``manifest`` or ``test``.
        file: its path in the package.
        findings: where problems go.
    """
    good = True
    for error in _validator(kind).iter_errors(value):
        good = False
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
        message = error.message.replace("\n", " ")[: 4 * MAX_SHOWN]
        findings.error("PKG-011", file, place.lstrip("."), message, f"see docs/schemas/mcpkg-{kind}.schema.json")
    return good


@functools.cache
def _validator(kind: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415 - only commands of packages pay for it

    schema = jsontext.parse(shipped("schemas", f"mcpkg-{kind}.schema.json").read_bytes())
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True)

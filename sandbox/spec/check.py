"""What ``mcp-sandbox check`` says about a driver folder, as text for people and as JSON for programs.

The JSON form is stable: ``docs/schemas/problems.schema.json``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.errors import Problem, SpecError
from sandbox.spec.identity import identity_changes
from sandbox.spec.load import check_folder
from sandbox.spec.model import DriverSpec

FORMAT_VERSION: Final = 1
"""``version`` of the JSON form; raised when a reader of the old form would misunderstand the new one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check.

    Attributes:
        path: what was checked, as the user named it.
        spec: the driver, ``None`` when an error refuses it.
        problems: errors and warnings, by file and line.
    """

    path: str
    spec: DriverSpec | None
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> int:
        """Number of problems that refuse the folder."""
        return sum(problem.severity == "error" for problem in self.problems)

    @property
    def exit_code(self) -> int:
        """Exit status of the command: 0 without errors, else 1. Warnings do not count."""
        return 0 if self.spec is not None and not self.errors else SpecError.exit_code

    def to_json(self) -> dict[str, Any]:
        """Return the stable JSON form."""
        return problems_json(self.path, self.spec, self.problems)

    def to_text(self) -> str:
        """Return one line for each problem and one that sums up, without a line break at the end."""
        warnings = len(self.problems) - self.errors
        counts = ", ".join(
            f"{count} {word}{'s' if count != 1 else ''}"
            for count, word in ((self.errors, "error"), (warnings, "warning"))
            if count
        )
        lines = [f"{'warning: ' if problem.severity == 'warning' else ''}{problem}" for problem in self.problems]
        if self.spec is None:
            return "\n".join([*lines, f"{self.path}: refused: {counts}"])
        tools = f"{len(self.spec.bindings)} tool{'s' if len(self.spec.bindings) != 1 else ''}"
        summary = f"{self.spec.file}: {self.spec.id} {self.spec.version}, {tools}, good"
        return "\n".join([*lines, f"{summary}; {counts}" if counts else summary])


def check(path: Path, before: DriverSpec | None = None) -> Verdict:
    """Return everything that is wrong with a driver folder.

    Args:
        path: DRIVER.md (or MCP.md), or the folder that holds it.
        before: the driver as it was; a change that the new version does not tell is a problem (S0-50).
    """
    spec, problems = check_folder(path)
    if before is not None and spec is not None:
        problems = (*problems, *identity_changes(before, spec))
    return Verdict(str(path), spec, problems)


def problems_json(path: str, spec: DriverSpec | None, problems: tuple[Problem, ...]) -> dict[str, Any]:
    """Return problems in the stable JSON form.

    Args:
        path: what was looked at.
        spec: the driver, when it could be loaded.
        problems: errors and warnings.
    """
    errors = sum(problem.severity == "error" for problem in problems)
    driver = {"id": spec.id, "version": spec.version, "digest": spec.digest} if spec is not None else None
    return {
        "version": FORMAT_VERSION,
        "path": path,
        "ok": spec is not None and errors == 0,
        "errors": errors,
        "warnings": len(problems) - errors,
        "driver": driver,
        "problems": [dataclasses.asdict(problem) for problem in problems],
    }

"""Strict reading of one policy file: TOML with known keys only, each problem with its line.

TOML itself is parsed by ``tomllib``; the lines come from a small scanner of headers and keys (:func:`line_map`), which
decides nothing. Unknown keys, missing reasons, wrong types and impossible values are collected and raised together.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from sandbox.errors import CeilingError, Problem
from sandbox.limits import GIB, KIB, MIB

MAX_POLICY_BYTES: Final = 256 * KIB
"""The shipped file has 14 KB; a policy that nobody can read protects nobody."""

_SIZE: Final = re.compile(r"^(\d{1,15}) ?(B|KiB|MiB|GiB)$")
_TIME: Final = re.compile(r"^(\d{1,9}) ?(s|min|h)$")
_UNITS: Final = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "s": 1, "min": 60, "h": 3600}
_HEADER: Final = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-]+)\s*\]\]?")
_KEY: Final = re.compile(r"^\s*([A-Za-z0-9_\-]+)\s*=\s*(.*)$")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*')


class Reader:
    """One policy file while it is read: its values, the lines of its keys, and what is wrong with it.

    Args:
        data: the file's bytes.
        file: its name for messages.

    Raises:
        CeilingError: ``PLAN-080``, not UTF-8, not TOML or larger than :data:`MAX_POLICY_BYTES`.
    """

    def __init__(self, data: bytes, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        if len(data) > MAX_POLICY_BYTES:
            self._unreadable(0, f"the file has {len(data)} bytes, more than {MAX_POLICY_BYTES}")
        try:
            text = data.decode("utf-8")
            self.values: dict[str, Any] = tomllib.loads(text)
        except UnicodeDecodeError:
            self._unreadable(0, "the file is not UTF-8")
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            self._unreadable(int(found[1]) if found else 0, f"not TOML: {error}")
        self.lines = line_map(text)

    def _unreadable(self, line: int, message: str) -> None:
        problem = Problem("PLAN-080", self.file, line, "", message, mend="repair the policy file")
        raise CeilingError((problem,))

    def line(self, path: str) -> int:
        """Return the line of a dotted path or of its nearest written parent; 0 when none is written."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[: path.rindex("[")] if path.endswith("]") else path.rpartition(".")[0]
        return 0

    def source(self, path: str) -> str:
        """Return ``file:line`` of a path."""
        line = self.line(path)
        return f"{self.file}:{line}" if line else self.file

    def bad(self, id_: str, path: str, message: str, *, found: str = "", allowed: str = "", mend: str = "") -> None:
        """Note one problem."""
        self.problems.append(Problem(id_, self.file, self.line(path), path, message, found, allowed, mend))

    def finish(self) -> None:
        """Raise everything that was noted.

        Raises:
            CeilingError: at least one problem.
        """
        if self.problems:
            raise CeilingError(tuple(sorted(self.problems, key=lambda problem: (problem.line, problem.field))))

    def table(self, path: str, value: Any, known: tuple[str, ...]) -> dict[str, Any]:
        """Return a table, noting ``PLAN-081`` for every key that is not known."""
        if not isinstance(value, dict):
            self.wrong(path, value, "a table")
            return {}
        for key in value:
            if key not in known:
                where = f"{path}.{key}" if path else key
                self.bad(
                    "PLAN-081", where, "unknown key", found=key, allowed=", ".join(known), mend="remove or correct it"
                )
        return value

    def wrong(self, path: str, value: Any, expected: str) -> None:
        """Note ``PLAN-082``: a value of the wrong type or form."""
        self.bad("PLAN-082", path, "wrong value", found=repr(value)[:80], allowed=expected, mend=f"write {expected}")

    def text(self, path: str, table: Mapping[str, Any], key: str) -> str:
        """Return a non-empty one-line string."""
        value = table.get(key)
        if isinstance(value, str) and value.strip() and value.isprintable():
            return value
        if key == "reason":
            self.bad(
                "PLAN-083", f"{path}.reason", "an allow without a reason", mend="say in one sentence why it is allowed"
            )
        else:
            self.wrong(f"{path}.{key}", value, "a non-empty string")
        return ""

    def flag(self, path: str, table: Mapping[str, Any], key: str) -> bool:
        """Return a boolean; absent is false."""
        value = table.get(key, False)
        if not isinstance(value, bool):
            self.wrong(f"{path}.{key}", value, "true or false")
            return False
        return value

    def items(self, path: str, value: Any, read: Callable[[str, Any], Any]) -> tuple[Any, ...]:
        """Return the entries of a list of tables, read one by one."""
        if not isinstance(value, list):
            self.wrong(path, value, "a list of tables")
            return ()
        return tuple(read(f"{path}[{index}]", item) for index, item in enumerate(value))

    def amount(self, path: str, table: Mapping[str, Any], key: str, unit: str) -> float:
        """Return a bound: ``size`` in bytes, ``time`` in seconds, ``count`` or ``cores``; always above zero.

        Zero is refused because container engines read it as "no limit".
        """
        value = table.get(key)
        amount = _amount(value, unit)
        if amount is None or amount <= 0:
            forms = {"size": 'a size such as "512MiB"', "time": 'a time such as "24h"'}
            self.wrong(f"{path}.{key}", value, forms.get(unit, "a number above zero"))
            return 0
        return amount


def _amount(value: Any, unit: str) -> float | None:
    """Return the number a bound stands for, or ``None`` when it is not of its form."""
    if unit in {"size", "time"}:
        found = (_SIZE if unit == "size" else _TIME).match(value) if isinstance(value, str) else None
        return int(found[1]) * _UNITS[found[2]] if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if unit == "count" and not isinstance(value, int):
        return None
    return value if isfinite(value) else None


def line_map(text: str) -> dict[str, int]:
    """Return dotted path → 1-based line of every header, key and element of a multi-line list."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    table, open_key, depth, element = "", "", 0, 0
    for number, line in enumerate(text.splitlines(), 1):
        bare = _QUOTED.sub("", line)
        if depth > 0:
            if line.lstrip().startswith(("{", '"')):
                lines[f"{open_key}[{element}]"] = number
                element += 1
            depth += bare.count("[") - bare.count("]")
        elif header := _HEADER.match(line):
            table = header[2]
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = f"{table}[{counts[table]}]"
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            open_key, element = (f"{table}.{key[1]}" if table else key[1]), 0
            lines[open_key] = number
            depth = _QUOTED.sub("", key[2]).count("[") - _QUOTED.sub("", key[2]).count("]")
    return lines

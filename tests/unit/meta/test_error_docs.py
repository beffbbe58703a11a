"""Every message id that the code can show has exactly one line in docs/errors/, and the reverse."""

from __future__ import annotations

import re
from collections import Counter

from tests.shared import ROOT

IN_CODE = re.compile(r"[\"'](?P<id>(?!ECMA)[A-Z]{2,6}-\d{3})[\"':]")
IN_DOCS = re.compile(r"^\| `?(?P<id>[A-Z]{2,6}-\d{3})`? \|")


def used() -> set[str]:
    """Return the ids that stand in the package's code."""
    files = (ROOT / "sandbox").rglob("*.py")
    return {match["id"] for path in files for match in IN_CODE.finditer(path.read_text())}


def documented() -> Counter[str]:
    """Return how often each id has a row in docs/errors/."""
    lines = (line for path in (ROOT / "docs" / "errors").glob("*.md") for line in path.read_text().splitlines())
    return Counter(match["id"] for line in lines if (match := IN_DOCS.match(line)))


def test_every_id_is_documented() -> None:
    """A reader who meets an id finds its line."""
    assert set() == used() - set(documented())


def test_every_documented_id_exists() -> None:
    """No line describes a message that cannot appear."""
    assert set() == set(documented()) - used()


def test_no_id_has_two_lines() -> None:
    """An id means one thing."""
    assert [] == [name for name, count in documented().items() if count > 1]

"""Names of tools of several drivers: unified, and never given to another tool once they were shown.

A tool keeps its name while only one driver has it; where several do, each is called ``label__tool``. A name that was
once shown means the same tool for good: a driver that joins or changes later cannot take it over, since a model that
read the earlier list would call the wrong one.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from sandbox.errors import UsageError

SEPARATOR: Final = "__"

MAX_NAMES: Final = 10_000
"""Names that are remembered; as many as one server may offer."""

Place = tuple[str, str]
"""Label of a driver, and the tool's own name there."""


class Names:
    """The names that were shown."""

    def __init__(self) -> None:
        self._shown: dict[str, Place] = {}

    def given(self, places: list[Place]) -> dict[str, Place]:
        """Return name → tool for a new list, and remember it.

        Raises:
            UsageError: ``MCS-012``, two tools cannot be told apart, or too many names were shown.
        """
        if len(set(places)) != len(places):
            twice = next(place for place, number in Counter(places).items() if number > 1)
            raise UsageError("MCS-012", f"the driver {twice[0]} lists `{twice[1][:80]}` twice", "correct that driver")
        earlier = {place: name for name, place in self._shown.items()}
        count = Counter(name for _, name in places)
        found: dict[str, Place] = {}
        for place in places:
            name = earlier.get(place) or self._fresh(place, alone=count[place[1]] == 1)
            if found.get(name, place) != place or self._shown.get(name, place) != place:
                raise UsageError("MCS-012", f"two tools would be called `{name[:80]}`", "use another label")
            found[name] = place
        if len(self._shown | found) > MAX_NAMES:
            raise UsageError("MCS-012", f"more than {MAX_NAMES} names of tools were shown", "look at which driver")
        self._shown |= found
        return found

    def _fresh(self, place: Place, *, alone: bool) -> str:
        label, tool = place
        return tool if alone and self._shown.get(tool, place) == place else f"{label}{SEPARATOR}{tool}"

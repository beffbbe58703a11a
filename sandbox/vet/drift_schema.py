"""How a changed schema relates to the approved one: same, narrowing, widening, other words, or undecided.

Inputs and outputs have one order: less is narrower. A tool that accepts less can be asked less (whether the contract
still fits is asked again, :mod:`sandbox.vet.directions`); a tool that promises more about its results surprises less.
No schema at all is the schema that accepts everything.

1. ``after`` is not contained in ``before``: *widening*, with a value that only the new one accepts;
2. it cannot be decided: *undecided*;
3. it is contained and says something new (:mod:`sandbox.vet.drift_words`): *text*;
4. it is contained and accepts less: *narrowing*;
5. it accepts the same values: *same*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sandbox.vet.containment import No, Options, Unknown, Yes, contained, shown
from sandbox.vet.drift_words import News, TooManyPlacesError, news, pointer

Kind = Literal["same", "noted", "narrowing", "widening", "text", "undecided"]
"""``same``: other bytes, equal meaning. ``noted``: nobody depends on it. ``narrowing``: less, provably. The others wait
for a person: ``widening`` with a counterexample, ``text``: it says something else, ``undecided``."""

NO_WITNESS: Any = object()
"""Marks that there is no witness; ``None`` is JSON's null."""


@dataclass(frozen=True, slots=True)
class SchemaDrift:
    """How one schema has changed.

    Attributes:
        kind: see :data:`Kind`.
        why: one sentence for a person; empty when there is nothing to say.
        witness: value that only one of the two accepts, or :data:`NO_WITNESS`.
        news: what it says now and did not, in the order of its places.
    """

    kind: Kind
    why: str = ""
    witness: Any = NO_WITNESS
    news: tuple[News, ...] = ()


def compare(before: Any, after: Any, options: Options) -> SchemaDrift:
    """Return how ``after`` relates to the approved ``before``."""
    try:
        said = tuple(news(before, after))
    except (TooManyPlacesError, RecursionError, TypeError, ValueError) as error:
        return SchemaDrift("undecided", f"it cannot be read: {error}")
    forth = contained(after, before, options=options)
    if isinstance(forth, No):
        why = f"`{shown(forth.witness)}` is valid now and was not: {forth.message}"
        return SchemaDrift("widening", why, forth.witness, said)
    if isinstance(forth, Unknown):
        return SchemaDrift("undecided", f"whether it accepts more is not decided: {forth.reason}", news=said)
    back = contained(before, after, options=options)
    narrower = isinstance(back, No)
    telling = [one for one in said if not (narrower and one.narrowed_only)]
    if telling:
        return SchemaDrift("text", _told(telling), back.witness if isinstance(back, No) else NO_WITNESS, said)
    if isinstance(back, No):
        return SchemaDrift("narrowing", f"`{shown(back.witness)}` is no longer valid: {back.message}", back.witness)
    return SchemaDrift("same" if isinstance(back, Yes) else "narrowing")


def _told(said: list[News]) -> str:
    first = said[0]
    more = f", and {len(said) - 1} more" if len(said) > 1 else ""
    return f"{first.what} at {pointer(first.place) or 'the top'}{more}"

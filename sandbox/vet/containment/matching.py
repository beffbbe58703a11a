"""A system of distinct representatives: one element of each pool, no element twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def distinct(pools: Sequence[Sequence[T]]) -> list[T] | None:
    """Return one element for each pool, all different, or ``None`` when there is no such choice.

    Augmenting paths (Kuhn). Pools may be cut to as many elements as there are pools: a pool that large never runs out.
    """
    owner: dict[T, int] = {}

    def assign(index: int, seen: set[T]) -> bool:
        for element in pools[index]:
            if element in seen:
                continue
            seen.add(element)
            if element not in owner or assign(owner[element], seen):
                owner[element] = index
                return True
        return False

    for index in range(len(pools)):
        if not assign(index, set()):
            return None
    chosen = {index: element for element, index in owner.items()}
    return [chosen[index] for index in range(len(pools))]

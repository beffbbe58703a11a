"""Searching and ranking packages: by words, capability, language and platform (MCPKG §10.3), by what tests measured."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.mcpkg.model import LocalEndpoint, Manifest


@dataclass(frozen=True, slots=True)
class Query:
    """What is looked for; everything that is given must hold.

    Attributes:
        words: each must stand in id, name, description, capabilities or tags.
        capabilities: all of them.
        language: of some implementation.
        platform: of some implementation, such as ``linux-x64``; one that names no platform runs on all.
    """

    words: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    language: str = ""
    platform: str = ""


def matches(manifest: Manifest, query: Query) -> bool:
    """Return whether a package is what is looked for."""
    if not set(map(str.lower, query.capabilities)) <= set(map(str.lower, manifest.capabilities)):
        return False
    if relevance(manifest, query.words) == 0:
        return False
    if not query.language and not query.platform:
        return True
    return any(
        (not query.language or one.language.lower() == query.language.lower())
        and (not query.platform or not one.platforms or query.platform in one.platforms)
        for one in manifest.implementations
    )


def relevance(manifest: Manifest, words: Iterable[str]) -> int:
    """Return how well words fit: 0 when one stands nowhere; a word of id or capabilities counts three, others one."""
    strong = _words(" ".join([manifest.tool_id, manifest.name, *manifest.capabilities]))
    weak = _words(" ".join([manifest.description, *map(str, manifest.meta.get("tags", []))]))
    total = 1
    for word in words:
        parts = _words(word)
        if parts <= strong:
            total += 3
        elif parts <= strong | weak:
            total += 1
        else:
            return 0
    return total


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.lower()))


def describe(manifest: Manifest) -> str:
    """Return how a package does its work, in a few words."""
    if manifest.chain:
        return f"chain of {len(manifest.chain)} steps"
    ways = {
        one.language or one.runtime or ("command" if isinstance(one.endpoint, LocalEndpoint) else one.endpoint.origin)
        for one in manifest.implementations
    }
    return ", ".join(sorted(ways))

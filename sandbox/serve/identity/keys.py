"""The public keys of an issuer, fetched when they are needed and again when the issuer rotates them (RFC 7517).

A key that is not known makes one new fetch, at most every :data:`REFETCH_LEAST` seconds, however many tokens name it.
When a fetch fails, keys that were fetched before go on for :data:`STALE_MOST` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import jwt

from sandbox.serve.identity.model import Unauthorized

FRESH: Final = 600.0
"""Seconds after which keys are fetched again: an issuer that withdraws a key is believed within them."""

REFETCH_LEAST: Final = 15.0
"""Seconds between two fetches for the sake of unknown keys."""

STALE_MOST: Final = 3600.0
"""Seconds for which keys go on while their issuer does not answer."""

MAX_KEYS: Final = 64
"""Keys of one issuer that are looked at."""

Fetch = Callable[[], Awaitable[Mapping[str, Any]]]
"""Returns a JWK set; raises ``OSError`` or ``ValueError`` when there is none to be had."""


class KeySource:
    """The keys of one issuer.

    Args:
        fetch: gets the JWK set.
        clock: seconds that never go back.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._turn = asyncio.Lock()

    async def key(self, kid: str) -> jwt.PyJWK:
        """Return a key by its id; the only one there is when a token names none.

        Raises:
            Unauthorized: ``GATE-026`` there is none, ``GATE-027`` (503) the issuer cannot be asked.
        """
        if self._clock() - self._fetched > FRESH or self._find(kid) is None:
            async with self._turn:
                if self._clock() - self._fetched > FRESH or self._find(kid) is None:
                    await self._refresh()
        if self._clock() - self._fetched > STALE_MOST:
            text = "the keys of the issuer cannot be had"
            raise Unauthorized("GATE-027", text, "try again later", error="temporarily_unavailable", status=503)
        found = self._find(kid)
        if found is None:
            raise Unauthorized(
                "GATE-026", "the token is signed with a key that its issuer does not have", "get a new one"
            )
        return found

    def _find(self, kid: str) -> jwt.PyJWK | None:
        if not kid:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    async def _refresh(self) -> None:
        now = self._clock()
        if now - self._tried < REFETCH_LEAST:
            return
        self._tried = now
        try:
            found = read_keys(await self._fetch())
        except (OSError, ValueError):
            return
        self._keys, self._fetched = found, now


def read_keys(body: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """Return the signature keys of a JWK set by id; symmetric ones and those for encryption are no keys here.

    Raises:
        ValueError: it is no JWK set.
    """
    entries = body.get("keys")
    if not isinstance(entries, list):
        raise ValueError("no JWK set")  # noqa: TRY004 - a value of the wrong form, from outside
    found: dict[str, jwt.PyJWK] = {}
    for entry in entries[:MAX_KEYS]:
        if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        if entry.get("use", "sig") != "sig":
            continue
        public = {name: value for name, value in entry.items() if name not in {"d", "p", "q", "dp", "dq", "qi", "oth"}}
        try:
            found[str(entry.get("kid", ""))] = jwt.PyJWK(public)
        except Exception:  # noqa: BLE001, S112 - whatever is wrong with one key, the others go on
            continue
    return found

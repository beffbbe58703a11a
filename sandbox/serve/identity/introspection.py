"""Asks an issuer whether a token still counts (RFC 7662), so that one that was revoked does not until it expires.

It comes after everything else: only tokens whose signature, audience and times hold are asked about. An answer counts
for :data:`FRESH` seconds; an issuer that does not answer lets nobody in.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sandbox.serve.identity.certificates import bound_to
from sandbox.serve.identity.model import Identity, Unauthorized, Verifier

FRESH: Final = 10.0
"""Seconds for which an answer counts: a revoked token works no longer than this."""

MAX_KEPT: Final = 10_000
"""Answers that are kept."""

Ask = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Sends a token to its issuer and returns the answer; raises ``OSError`` or ``ValueError`` when there is none."""


class IntrospectingVerifier:
    """A verifier in front of which revoked tokens stop.

    Args:
        inner: verifies the token itself.
        asks: issuer → how it is asked; issuers that are not here are not.
        clock: seconds that never go back.
    """

    def __init__(self, inner: Verifier, asks: Mapping[str, Ask], clock: Callable[[], float]) -> None:
        self._inner = inner
        self._asks = asks
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Mapping[str, Any]]] = OrderedDict()

    async def verify(self, token: str, audiences: frozenset[str]) -> Identity:
        """Return who holds a token that still counts.

        Raises:
            Unauthorized: as the inner verifier; ``GATE-040`` (401) revoked, ``GATE-041`` (503) nobody can say,
                ``GATE-072`` as for the claims of a token.
        """
        identity = await self._inner.verify(token, audiences)
        ask = self._asks.get(identity.tenant.claims.get("iss", ""))
        if ask is None:
            return identity
        answer = await self._answer(token, ask)
        if answer.get("active") is not True:
            raise Unauthorized("GATE-040", "the token was revoked", "sign in again")
        bound = bound_to(answer)  # RFC 8705 §3.2: an issuer may say it here as well
        if bound and identity.bound not in ("", bound):
            raise Unauthorized("GATE-072", "the token and its issuer name two certificates", "get a new one")
        return replace(identity, bound=bound) if bound else identity

    async def _answer(self, token: str, ask: Ask) -> Mapping[str, Any]:
        key, now = hashlib.sha256(token.encode()).hexdigest(), self._clock()
        found = self._known.get(key)
        if found is not None and now - found[0] < FRESH:
            return found[1]
        try:
            answer = await ask(token)
        except (OSError, ValueError):
            text = "nobody can say whether the token still counts"
            raise Unauthorized(
                "GATE-041", text, "try again later", error="temporarily_unavailable", status=503
            ) from None
        kept = {name: answer[name] for name in ("active", "cnf") if name in answer}
        self._known[key] = (now, kept)
        self._known.move_to_end(key)
        while len(self._known) > MAX_KEPT:
            self._known.popitem(last=False)
        return kept

"""The token of one remote server: kept fresh, one renewal at a time, also among processes.

A renewal is a task of its own that callers wait for: a request that is cancelled meanwhile must not lose the refresh
token that an issuer has just exchanged for the old one. A token that the server refuses is renewed once; one that was
issued a moment ago is not, for the server would refuse the next one as well.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from sandbox.errors import PlanRefused, PlatformError, SandboxError, ServerFault
from sandbox.plan.model import OAuthPlan, SandboxPlan
from sandbox.transport.remote.oauth import challenge, metadata, register, tokens
from sandbox.transport.remote.oauth.asking import Asking
from sandbox.transport.remote.oauth.metadata import Issuer
from sandbox.transport.remote.oauth.store import Binding, Login, Store
from sandbox.transport.remote.oauth.tokens import Client, TokenRefused, Tokens

JUST_NOW: Final = 10.0
"""Seconds within which a token that is refused is not the one that is at fault."""

LOGIN: Final = "run `mcp-sandbox login` with the driver, and the same --tenant"

_ENDED: Final = "invalid_grant"
"""What an issuer says of a refresh token that is worth nothing any more (RFC 6749 §5.2)."""


class Source(Protocol):
    """Where tokens come from."""

    async def current(self, refused: str) -> Tokens | None:
        """Return tokens that are fresh, and others than the one that was refused; ``None``: there will be none."""


class TokenBearer:
    """See :class:`~sandbox.transport.remote.http.Bearer`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tokens: Tokens | None = None
        self._work: asyncio.Task[None] | None = None

    async def token(self) -> str:
        """Return an access token that is good as far as is known."""
        if self._tokens is None or not self._tokens.fresh:
            await self._renew("")
        if self._tokens is None:
            raise ServerFault("OAU-033", "the server refuses the token that it is given", "log in again")
        return self._tokens.access

    async def renewed(self, refused: str) -> bool:
        """Return whether there is another token than the refused one."""
        if self._tokens is not None and self._tokens.access == refused:
            await self._renew(refused)
        return self._tokens is not None and self._tokens.access != refused

    def insufficient(self, challenges: tuple[str, ...]) -> SandboxError | None:
        """Return what to say of an answer that asks for more scopes."""
        said = challenge.bearer(challenges)
        if said.get("error") != "insufficient_scope":
            return None
        message = f"the server asks for more than the token may do: scopes {said.get('scope', '')[:200]!a}"
        return ServerFault("OAU-034", message, "add them to server.auth.scopes, if they are right, and log in again")

    async def _renew(self, refused: str) -> None:
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._renewal(refused))
            self._work.add_done_callback(_heard)
        await asyncio.shield(self._work)

    async def _renewal(self, refused: str) -> None:
        found = await self._source.current(refused)
        if found is not None:
            self._tokens = found


def _heard(task: asyncio.Task[None]) -> None:
    """Take note of how a renewal ended; whoever waits for it is told."""
    if not task.cancelled():
        task.exception()


class MachineSource:
    """Tokens for a client's own id and secret (client credentials): in memory only, asked for when needed."""

    def __init__(self, asking: Asking, plan: SandboxPlan, auth: OAuthPlan, secrets: Mapping[str, str]) -> None:
        self._asking, self._url, self._auth, self._secrets = asking, plan.remote_url, auth, dict(secrets)
        self._who: tuple[Issuer, Client] | None = None
        self._got: Tokens | None = None

    async def current(self, refused: str) -> Tokens | None:
        """Return a token; see :class:`Source`."""
        if refused and self._got is not None and time.time() - self._got.got_at < JUST_NOW:
            return None
        if self._who is None:
            self._who = await self._discovered()
        issuer, client = self._who
        form = {"grant_type": "client_credentials"}
        if self._auth.scopes:
            form["scope"] = " ".join(self._auth.scopes)
        self._got = await tokens.request(self._asking, issuer, client, self._auth.resource, self._auth.scopes, form)
        return self._got

    async def _discovered(self) -> tuple[Issuer, Client]:
        resource = await metadata.resource_of(self._asking, self._url, self._auth)
        issuer = await metadata.issuer_of(self._asking, resource.issuer, login=False)
        client = register.configured(issuer, self._auth, self._secrets)
        if client is None:
            raise PlanRefused("OAU-040", "client credentials need the id of a client", "see server.auth.client_id")
        return issuer, client


class LoginSource:
    """Tokens of somebody who has logged in (:mod:`.login`), renewed by their refresh token, kept in the store."""

    def __init__(self, asking: Asking, auth: OAuthPlan, store: Store, binding: Binding) -> None:
        self._asking, self._auth, self._store, self._binding = asking, auth, store, binding

    async def current(self, refused: str) -> Tokens | None:
        """Return a token; see :class:`Source`."""
        found = self._read()
        if found.tokens.fresh and found.tokens.access != refused:
            return found.tokens
        async with self._store.locked(self._binding):
            found = self._read()  # as another process may have left it
            if found.tokens.access != refused and found.tokens.fresh:
                return found.tokens
            if refused and time.time() - found.tokens.got_at < JUST_NOW:
                return None
            return await self._refreshed(found, refused)

    def _read(self) -> Login:
        found = self._store.read(self._binding)
        if found is None or (self._auth.issuer and found.issuer != self._auth.issuer):
            message = f"nobody has logged in to {self._binding.url} for this driver as it is now"
            raise PlanRefused("OAU-001", message, LOGIN)
        for value in (found.client.secret, found.tokens.access, found.tokens.refresh):
            if value:
                self._asking.known(value)
        return found

    async def _refreshed(self, found: Login, refused: str) -> Tokens:
        old = found.tokens
        if not old.refresh:
            raise PlanRefused("OAU-032", f"the login to {self._binding.url} has ended", LOGIN)
        try:
            issuer = await metadata.issuer_of(self._asking, found.issuer, login=False)
            form = {"grant_type": "refresh_token", "refresh_token": old.refresh}
            fresh = await tokens.request(
                self._asking, issuer, found.client, self._auth.resource, old.scopes, form
            )  # fmt: skip
        except TokenRefused as error:
            if error.code != _ENDED:
                raise
            self._store.remove(self._binding)
            raise PlanRefused("OAU-032", f"the login to {self._binding.url} has ended", LOGIN) from None
        except PlatformError:
            if not refused and time.time() < old.expires_at:
                return replace(old, renew_at=min(time.time() + JUST_NOW, old.expires_at))  # it is good for a while yet
            raise
        kept = replace(fresh, refresh=fresh.refresh or old.refresh)
        self._store.write(self._binding, replace(found, tokens=kept))
        return kept

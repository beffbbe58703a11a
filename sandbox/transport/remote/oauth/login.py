"""Logging in at the issuer of a remote server, and out (MCP basic/authorization; RFC 6749, 7636, 8252, 8707, 9207).

Steps of a login, the same numbers in the code:

1. *Who.* The server's issuer and its metadata, checked (:mod:`.metadata`).
2. *What for.* The driver's scopes; without any, those that the person has confirmed.
3. *As whom.* The driver's client, or one that is registered for this login (:mod:`.register`).
4. *Ask.* A fresh ``state`` and PKCE verifier; the person opens the address, which names the resource.
5. *Answer.* It has the state; if it names an issuer, or the issuer always does, it is the one of step 1 (mix-up).
   Before that, nothing of it is looked at or shown.
6. *Exchange.* The code, with the verifier, at the token endpoint of step 1 and nowhere else.
7. *Keep.* For this driver as it is reviewed, this server and this tenant (:mod:`.store`).
"""

from __future__ import annotations

import base64
import hashlib
import secrets as randomness
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from sandbox.errors import PlanRefused, SandboxError, ServerFault
from sandbox.limits import LOGIN_TIMEOUT, MAX_TOKEN
from sandbox.plan.model import OAuthPlan
from sandbox.transport.remote.oauth import callback, metadata, register, tokens
from sandbox.transport.remote.oauth.asking import Asking
from sandbox.transport.remote.oauth.metadata import Issuer, Resource
from sandbox.transport.remote.oauth.store import Binding, Login, Store
from sandbox.transport.remote.oauth.tokens import Client

_BYTES: Final = 32
"""Of randomness in a state and a verifier (RFC 7636 §7.1)."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the person who logs in says.

    Attributes:
        scopes: confirmed, for a driver that declares none.
        port: of the address to come back to; 0: a free one.
        timeout: seconds until they must be back.
        show: is given the address to open.
    """

    show: Callable[[str], None]
    scopes: tuple[str, ...] = ()
    port: int = 0
    timeout: float = LOGIN_TIMEOUT


async def log_in(
    asking: Asking, auth: OAuthPlan, secrets: Mapping[str, str], store: Store, binding: Binding, choices: Choices
) -> Login:
    """Have somebody log in; return the login, which is kept.

    Raises:
        SandboxError: ``OAU-…``; nothing was kept.
    """
    resource = await metadata.resource_of(asking, binding.url, auth)  # 1
    issuer = await metadata.issuer_of(asking, resource.issuer, login=True)
    scopes = _scopes(auth, resource, choices.scopes)  # 2
    state, verifier = randomness.token_urlsafe(_BYTES), randomness.token_urlsafe(_BYTES)
    for value in (state, verifier):
        asking.known(value)
    async with callback.listening(state, choices.port) as back:
        client = register.configured(issuer, auth, dict(secrets))  # 3
        if client is None:
            client = await register.registered(asking, issuer, back.url, scopes)
        choices.show(_address(issuer, client, auth.resource, scopes, state, verifier, back.url))  # 4
        code = _code(await back.answer(choices.timeout), issuer)  # 5
        redirect = back.url
    asking.known(code)
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
    got = await tokens.request(asking, issuer, client, auth.resource, scopes, form)  # 6
    login = Login(issuer.issuer, client, got)
    async with store.locked(binding):
        store.write(binding, login)  # 7
    asking.scope.fact(
        "oauth.login", issuer=issuer.issuer, resource=auth.resource, scopes=list(got.scopes), refresh=bool(got.refresh)
    )
    return login


def _scopes(auth: OAuthPlan, resource: Resource, confirmed: tuple[str, ...]) -> tuple[str, ...]:
    """Return what is asked for: the driver's, or what a person confirmed of what the server wants.

    Raises:
        PlanRefused: ``OAU-042``, nobody has confirmed it, or something else was confirmed.
    """
    if auth.scopes or not (resource.scopes or confirmed):
        if confirmed and set(confirmed) != set(auth.scopes):
            message = f"the driver declares the scopes {' '.join(auth.scopes)}, and no others are asked for"
            raise PlanRefused("OAU-042", message, "change server.auth.scopes, or leave --scope out")
        return auth.scopes
    if not confirmed:
        wanted = " ".join(resource.scopes)
        message = f"the driver declares no scopes, and the server wants: {wanted}"
        mend = "write those that it needs into server.auth.scopes, or confirm them with --scope, one by one"
        raise PlanRefused("OAU-042", message, mend)
    return confirmed


def _address(
    issuer: Issuer, client: Client, resource: str, scopes: tuple[str, ...], state: str, verifier: str, redirect: str
) -> str:
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": client.id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": resource,
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    return f"{issuer.authorization}{'&' if '?' in issuer.authorization else '?'}{urlencode(query)}"


def _code(answer: Mapping[str, str], issuer: Issuer) -> str:
    """Return the code of an answer whose state is right; step 5.

    Raises:
        ServerFault: ``OAU-020``, it comes from another issuer; ``OAU-021``, the issuer says no; ``OAU-023``.
    """
    named = answer.get("iss")
    if named != issuer.issuer and (named is not None or issuer.says_iss):
        message = f"the answer to the login does not come from {issuer.issuer}, where it was asked for"
        raise ServerFault("OAU-020", message, "somebody mixes issuers up: do not log in; report it to the server")
    if "error" in answer:
        code = tokens.error_code(answer["error"]) or "an error without a name"
        raise ServerFault("OAU-021", f"{issuer.issuer} refuses the login: {code}", "see what it said in the browser")
    code = answer.get("code", "")
    if not code or len(code) > MAX_TOKEN:
        raise ServerFault("OAU-023", "the answer to the login has no code", "log in again; report it to the issuer")
    return code


async def log_out(asking: Asking, store: Store, binding: Binding) -> list[tuple[str, bool]]:
    """Forget every login of a driver, server and tenant, then have their tokens taken back.

    Returns:
        Issuer of each, and whether it says that the tokens are worth nothing now.

    Raises:
        PlanRefused: ``OAU-002``.
    """
    found = list(store.all_of(binding))
    told = []
    for own, login in found:
        for value in (login.client.secret, login.tokens.access, login.tokens.refresh):
            if value:
                asking.known(value)
        async with store.locked(own):
            store.remove(own)
        revoked = await _revoked(asking, login)
        asking.scope.fact("oauth.logout", issuer=login.issuer, revoked=revoked)
        told.append((login.issuer, revoked))
    return told


async def _revoked(asking: Asking, login: Login) -> bool:
    """Have the tokens of a login taken back; a failure is told, and hinders nothing."""
    try:
        issuer = await metadata.issuer_of(asking, login.issuer, login=False)
        done = [await tokens.revoke(asking, issuer, login.client, login.tokens.access, "access_token")]
        if login.tokens.refresh:
            done.append(await tokens.revoke(asking, issuer, login.client, login.tokens.refresh, "refresh_token"))
    except SandboxError:
        return False
    return all(done)

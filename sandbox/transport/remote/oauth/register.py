"""Which client asks (MCP basic/authorization, client registration): the driver's, else one that is registered now.

The order: the id that the driver names, which may be the https address of a metadata document where the issuer takes
those; dynamic registration (RFC 7591) as the fall-back. A registration belongs to the issuer that gave it, and to one
login.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sandbox.errors import PlanRefused, SandboxError, ServerFault
from sandbox.limits import MAX_TOKEN
from sandbox.plan.model import OAuthPlan
from sandbox.transport.remote.oauth.asking import JSON, Asking
from sandbox.transport.remote.oauth.metadata import Issuer
from sandbox.transport.remote.oauth.tokens import Client, error_code, method_of

NAME: Final = "mcp-sandbox"
MAX_CLIENT_ID: Final = 2048
"""Characters; it stands in the address that a person opens."""

_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
_DOCUMENT: Final = "https://"


def configured(issuer: Issuer, auth: OAuthPlan, secrets: dict[str, str]) -> Client | None:
    """Return the client that the driver names, or ``None``.

    Raises:
        PlanRefused: ``OAU-040``, it is a metadata document, and the issuer takes none.
        ServerFault: ``OAU-041``.
    """
    name = secrets[auth.client_id_secret] if auth.client_id_secret else auth.client_id
    if not name:
        return None
    if name.startswith(_DOCUMENT) and not issuer.documents:
        message = f"{issuer.issuer} takes no client that is the address of a metadata document"
        raise PlanRefused("OAU-040", message, "register a client there, and name its id")
    secret = secrets[auth.client_secret] if auth.client_secret else ""
    return Client(name, secret, method_of(issuer, secret))


async def registered(asking: Asking, issuer: Issuer, redirect: str, scopes: tuple[str, ...]) -> Client:
    """Register a client for one login.

    Args:
        asking: sends the requests.
        issuer: where.
        redirect: the address at which this login's answer is awaited.
        scopes: all that it will ask for.

    Raises:
        PlanRefused: ``OAU-040``, the issuer registers nobody.
        ServerFault: ``OAU-041``, it refused, or answered with something that is no client.
    """
    if not issuer.registration:
        message = f"{issuer.issuer} registers no clients by itself"
        raise PlanRefused("OAU-040", message, "register a client there, and name its id in server.auth.client_id")
    asked: dict[str, Any] = {
        "client_name": NAME,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    asking.scope.intent("oauth.register", issuer=issuer.issuer)
    try:
        answer = await asking.send(
            "POST", issuer.registration, {"Content-Type": JSON}, json.dumps(asked).encode()
        )  # fmt: skip
        secret = answer.body.get("client_secret") or ""
        if isinstance(secret, str) and secret:
            asking.known(secret)
        found = _read(answer.body if answer.good else {}, issuer, answer.status, error_code(answer.body.get("error")))
    except SandboxError as error:
        asking.scope.outcome("oauth.register", issuer=issuer.issuer, error=error.id)
        raise
    asking.scope.outcome("oauth.register", issuer=issuer.issuer, client=found.id[:200])
    return found


def _read(body: Any, issuer: Issuer, status: int, code: str) -> Client:
    name, secret = body.get("client_id"), body.get("client_secret") or ""
    method = body.get("token_endpoint_auth_method") or ("client_secret_basic" if secret else "none")
    fine = all(isinstance(one, str) and one.isascii() and one.isprintable() for one in (name, secret))
    known = method in _METHODS and (bool(secret) or method == "none")
    if not fine or not name or len(name) > MAX_CLIENT_ID or len(secret) > MAX_TOKEN or not known:
        why = f"status {status}{', ' if code else ''}{code}"
        message = f"{issuer.issuer} did not register a client that can be used ({why})"
        raise ServerFault("OAU-041", message, "register a client there, and name its id in server.auth.client_id")
    return Client(name, secret if method != "none" else "", method)

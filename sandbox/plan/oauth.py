"""What of ``server.auth`` enters the plan of a remote server: OAuth 2.1 towards it (MCP, basic/authorization).

A driver may say which authorization server, which scopes and which client; it may not widen what a token is for beyond
its own server's origin, nor have a secret sent to an issuer that it does not name: the server, which is not trusted,
would name one of its own and be given the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sandbox.plan.model import HeaderEntry, NetworkPlan, OAuthPlan
from sandbox.policy.destinations import HTTPS_PORT, match
from sandbox.policy.hosts import canonical_name

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft

_SECRET: Final = re.compile(r"\$\{secrets\.(?P<slug>[A-Za-z0-9_./-]{1,128})\}")


def oauth(draft: Draft, destinations: NetworkPlan, headers: tuple[HeaderEntry, ...]) -> OAuthPlan | None:
    """Return how tokens are got, or ``None`` when the driver asks for none; what may not be is refused.

    Args:
        draft: of the plan.
        destinations: what may be reached; a named issuer must be among them.
        headers: of the driver.
    """
    server = draft.spec.server
    written: Mapping[str, Any] | None = getattr(server, "auth", None)
    if not written or written.get("type") != "oauth2":
        return None
    url = str(getattr(server, "url", ""))
    client_id, id_secret = _value(draft, "client_id", written)
    found = OAuthPlan(
        grant=written.get("grant", "authorization_code"),
        resource=written.get("resource") or url,
        issuer=written.get("issuer") or "",
        scopes=tuple(dict.fromkeys(written.get("scopes", ()))),
        client_id=client_id,
        client_id_secret=id_secret,
        client_secret=_value(draft, "client_secret", written)[1],
    )
    _addresses(draft, found, url, destinations)
    _client(draft, found)
    if any(entry.name.lower() == "authorization" for entry in headers):
        message = "the token of server.auth and a header field of the driver would be the same field"
        draft.refuse("PLAN-067", "server.headers.Authorization", message, mend="keep one of them")
    draft.because("auth", found.grant, "how a token is got", draft.at("server.auth"))
    return found


def covers(resource: str, url: str) -> bool:
    """Return whether a URL is a resource or lies in it: a part of the path ends where the resource ends."""
    whole, part = urlsplit(url), urlsplit(resource)
    if (whole.scheme, whole.netloc) != (part.scheme, part.netloc) or part.fragment:
        return False
    base = resource.rstrip("/")
    return url in {resource, base} or url.startswith((base + "/", base + "?"))


def _value(draft: Draft, name: str, written: Mapping[str, Any]) -> tuple[str, str]:
    """Return a value as written, or the slug of its secret."""
    text = str(written.get(name) or "")
    secret = _SECRET.fullmatch(text)
    if secret is None:
        return text, ""
    if secret["slug"] not in {one.slug for one in draft.spec.secrets}:
        path = f"server.auth.{name}"
        draft.refuse("PLAN-045", path, "the secret is not declared", found=secret["slug"], mend="add it to SECRETS.md")
    return "", secret["slug"]


def _addresses(draft: Draft, found: OAuthPlan, url: str, destinations: NetworkPlan) -> None:
    if urlsplit(url).scheme != "https":
        message = "a token would be sent in the clear; no operator can allow that"
        draft.refuse("PLAN-066", "server.url", message, found=url, allowed="https", mend="use https")
    if not covers(found.resource, url):
        message = "tokens would be for something else than the server"
        mend = "leave it out, or name the beginning of server.url that the server calls its resource"
        draft.refuse("PLAN-068", "server.auth.resource", message, found=found.resource, allowed=url, mend=mend)
    if not found.issuer:
        return
    parts = urlsplit(found.issuer)
    if parts.scheme != "https" or parts.query or parts.fragment:
        message = "an issuer is an https address without query (RFC 8414)"
        draft.refuse("PLAN-066", "server.auth.issuer", message, found=found.issuer, allowed="https", mend="correct it")
    host, port = _canonical(parts.hostname or ""), parts.port or HTTPS_PORT
    if destinations.rules and match(destinations.rules, host, port) is None:
        mend = f'add "{host}:{port}" to network.egress' if port != HTTPS_PORT else f'add "{host}" to network.egress'
        message = "network.egress does not reach the authorization server"
        draft.refuse("PLAN-061", "server.auth.issuer", message, found=f"{host}:{port}", mend=mend)


def _client(draft: Draft, found: OAuthPlan) -> None:
    known = found.client_id or found.client_id_secret
    if found.grant == "client_credentials" and not (known and found.client_secret):
        message = "client credentials are an id and a secret"
        mend = "write client_id, and client_secret as `${secrets.NAME}`"
        draft.refuse("PLAN-069", "server.auth", message, mend=mend)
    if found.client_secret and not known:
        draft.refuse("PLAN-069", "server.auth.client_id", "a secret without the id of its client", mend="name the id")
    if known and not found.issuer and not found.client_id.startswith("https://"):  # documents are nobody's secret
        message = "a client is known to one issuer, and no other may be sent its id and secret"
        draft.refuse("PLAN-069", "server.auth.issuer", message, mend="name the issuer that registered it")


def _canonical(host: str) -> str:
    try:
        return canonical_name(host)
    except ValueError:
        return host  # an address

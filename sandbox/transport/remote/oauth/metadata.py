"""Who gives out tokens for a server: RFC 9728 of the server, then RFC 8414 or OpenID Connect Discovery of the issuer.

Steps, the same numbers in the code:

1. The server is asked without a token; its 401 may name its metadata, which lie at its own origin.
2. Else the well-known addresses: with the server's path, then without.
3. The metadata are of exactly the resource that tokens are for: a server cannot have a token made for another one.
4. The issuer is the one that the driver names, or else the only one that the server names. Where the driver names one
   and the server has no metadata, the driver's word is enough.
5. The issuer's metadata name the issuer itself, letter by letter, or are not used (mix-up).
6. They offer PKCE with S256, or nobody logs in (downgrade); the endpoints are https.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.errors import ServerFault
from sandbox.plan.model import OAuthPlan
from sandbox.transport.remote.address import Target, target_of
from sandbox.transport.remote.oauth import challenge
from sandbox.transport.remote.oauth.asking import Answer, Asking, secure

MAX_NAMES: Final = 256
"""Scopes, methods or issuers of one document that are looked at; the longest known list has 100."""

_PROBE: Final = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
"""Asks for nothing, and begins no session where no token is wanted."""

_RESOURCE: Final = "/.well-known/oauth-protected-resource"
_UNAUTHORIZED: Final = 401
_SLASHES: Final = 3
"""Of an address with an empty path."""

_REPORT: Final = "report it to the server's author"


@dataclass(frozen=True, slots=True)
class Resource:
    """What the server says of itself.

    Attributes:
        issuer: that is used.
        scopes: that it wants for a beginning.
    """

    issuer: str
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Issuer:
    """What an authorization server says of itself; endpoints are https addresses, or empty.

    Attributes:
        methods: how clients prove at the token endpoint who they are.
        says_iss: answers to logins name the issuer (RFC 9207).
        documents: a client may be the https address of its metadata.
    """

    issuer: str
    token: str
    authorization: str = ""
    registration: str = ""
    revocation: str = ""
    methods: tuple[str, ...] = ("client_secret_basic",)
    says_iss: bool = False
    documents: bool = False


async def resource_of(asking: Asking, url: str, auth: OAuthPlan) -> Resource:
    """Return the issuer of a server and the scopes that it wants; steps 1 to 4.

    Raises:
        SandboxError: ``OAU-010`` to ``OAU-012``, or as :meth:`~.asking.Asking.send`.
    """
    home = secure(url)
    # 1
    fields = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    said: Mapping[str, str] = {}
    first = await _probe(asking, url, fields)
    if first is not None and first.status == _UNAUTHORIZED:
        said = challenge.bearer(first.challenges)
    found = await _described(asking, home, said.get("resource_metadata", ""), auth)
    if not found:
        if auth.issuer:
            return Resource(auth.issuer, _words(said.get("scope", "").split()))
        message = f"{home} does not say who issues its tokens (RFC 9728)"
        raise ServerFault("OAU-010", message, "name the issuer in server.auth.issuer, or report it to its author")
    # 3
    if not _same(found.get("resource"), auth.resource):
        message = f"the metadata of {home} are of another resource than {auth.resource}"
        mend = "name its resource in server.auth.resource, if it is the beginning of server.url; else report it"
        raise ServerFault("OAU-011", message, mend)
    scopes = _words(said["scope"].split()) if said.get("scope") else _words(found.get("scopes_supported"))
    return Resource(_chosen(found, home, auth.issuer), scopes)  # 4


async def _probe(asking: Asking, url: str, fields: Mapping[str, str]) -> Answer | None:
    try:
        return await asking.send("POST", url, fields, _PROBE)
    except ServerFault:  # a long or odd answer says nothing of tokens
        return None


async def _described(asking: Asking, home: Target, named: str, auth: OAuthPlan) -> Mapping[str, Any]:
    """Return the metadata of a server, empty when it has none; steps 1 and 2."""
    if named:
        place = secure(named)
        if place.origin != home.origin:
            message = f"{home} names metadata of another origin, {place}"
            raise ServerFault("OAU-010", message, _REPORT)
        answer = await asking.get(named)
        if not answer.good:
            message = f"{home} names metadata at {place}, where there are none (status {answer.status})"
            raise ServerFault("OAU-010", message, _REPORT)
        return answer.body
    # 2
    base = f"https://{home.authority}"
    paths = (home.path.rstrip("/"), target_of(auth.resource).path.rstrip("/"), "")
    for place_ in dict.fromkeys(base + _RESOURCE + path for path in paths):
        answer = await asking.get(place_)
        if answer.good:
            return answer.body
    return {}


def _chosen(found: Mapping[str, Any], home: Target, wanted: str) -> str:
    issuers = _words(found.get("authorization_servers"))
    if wanted and wanted in issuers:
        return wanted
    if wanted:
        message = f"{home} takes tokens of another issuer than {wanted}"
        raise ServerFault("OAU-012", message, "see who issues its tokens now, and review server.auth.issuer")
    if len(issuers) != 1:
        message = f"{home} names {len(issuers)} issuers of its tokens, not one"
        raise ServerFault("OAU-012", message, "choose one in server.auth.issuer")
    return issuers[0]


async def issuer_of(asking: Asking, issuer: str, *, login: bool) -> Issuer:
    """Return what an authorization server says of itself; steps 5 and 6.

    Args:
        asking: sends the requests.
        issuer: its identifier.
        login: whether somebody is to log in, rather than a token to be asked for.

    Raises:
        SandboxError: ``OAU-013`` to ``OAU-016``, or as :meth:`~.asking.Asking.send`.
    """
    for place in _places(issuer):
        answer = await asking.get(place)
        if answer.good:
            return _read(answer.body, issuer, login=login)
    message = f"{secure(issuer)} has no metadata of an authorization server"
    raise ServerFault("OAU-013", message, "see the issuer's address")


def _places(issuer: str) -> tuple[str, ...]:
    """Return where an issuer's metadata may lie, in the order in which they are looked for."""
    where = secure(issuer)
    if "?" in issuer:
        raise ServerFault("OAU-013", f"{where} is no issuer: it has a query (RFC 8414)", _REPORT)
    base, path = f"https://{where.authority}", where.path.rstrip("/")
    oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
    if not path:
        return (base + oauth, base + openid)
    return (base + oauth + path, base + openid + path, base + path + openid)


def _read(found: Mapping[str, Any], issuer: str, *, login: bool) -> Issuer:
    # 5
    if found.get("issuer") != issuer:
        message = f"the metadata at {secure(issuer)} are those of another issuer"
        raise ServerFault("OAU-014", message, "do not trust it; report it to the server's author")
    # 6
    if login:
        _check_login(found, issuer)
    return Issuer(
        issuer,
        token=_endpoint(found, "token_endpoint", issuer, needed=True),
        authorization=_endpoint(found, "authorization_endpoint", issuer, needed=login),
        registration=_endpoint(found, "registration_endpoint", issuer),
        revocation=_endpoint(found, "revocation_endpoint", issuer),
        methods=_words(found.get("token_endpoint_auth_methods_supported")) or ("client_secret_basic",),
        says_iss=found.get("authorization_response_iss_parameter_supported") is True,
        documents=found.get("client_id_metadata_document_supported") is True,
    )


def _check_login(found: Mapping[str, Any], issuer: str) -> None:
    """Refuse an issuer without the parts that make a login safe."""
    kinds = _words(found.get("response_types_supported"))
    if "S256" not in _words(found.get("code_challenge_methods_supported")) or (kinds and "code" not in kinds):
        message = f"{secure(issuer)} does not offer authorization codes with PKCE (S256)"
        raise ServerFault("OAU-015", message, "nobody logs in without it; report it to the issuer")


def _endpoint(found: Mapping[str, Any], name: str, issuer: str, *, needed: bool = False) -> str:
    value = found.get(name)
    if isinstance(value, str) and value:
        secure(value)
        return value
    if needed:
        raise ServerFault("OAU-013", f"the metadata of {secure(issuer)} have no {name}", "see the issuer's address")
    return ""


def _words(value: Any) -> tuple[str, ...]:
    """Return the plain words of a list, a bounded number of them."""
    if not isinstance(value, list):
        return ()
    words = [one for one in value[:MAX_NAMES] if isinstance(one, str) and one.isascii() and one.isprintable()]
    return tuple(dict.fromkeys(one for one in words if one and " " not in one))


def _same(named: Any, wanted: str) -> bool:
    """Return whether a resource is the one that is wanted; only the slash of an empty path may differ."""
    return isinstance(named, str) and (named == wanted or _bare(named) == _bare(wanted))


def _bare(url: str) -> str:
    return url[:-1] if url.endswith("/") and url.count("/") == _SLASHES else url

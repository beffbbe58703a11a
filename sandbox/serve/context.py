"""Who a call is for: declared per tool, verified by us, put into the call, never taken from the client (S0-71).

``metadata.mcp.context`` of a driver says which server argument carries which fact::

    context: { user_id: user.sub, tenant: tenant.id, proof: user.assertion }

- The arguments are hidden from the schema that callers see (:func:`hide`).
- A call that brings one of them is refused (:class:`Forbidden`): at any depth, and in any spelling that a server might
  take for the same name. Refused rather than overwritten, so that a client which tries is seen to have tried.
- The facts are added after the arguments were mapped to the server's names (:func:`inject`). A fact that is not known
  is an error, never an empty string.
- ``_meta`` loses what the protocol and we reserve, and everything that names an identity (:func:`clean_meta`).

Two names are the same name here when they agree after NFKC, case folding, look-alike letters mapped to Latin ones and
all of ``_ - . : / [ ] $ @`` and space dropped; of a dotted or bracketed name, each part counts too. So ``tenantId``,
``TENANT-ID``, ``ctx[tenant_id]``, ``tenant.id`` and a Cyrillic ``tеnant_id`` are all ``tenant_id``.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox import jsontext
from sandbox.errors import CallRefused
from sandbox.policy.hiding import hide
from sandbox.policy.types import member_names
from sandbox.spec.model import Binding
from sandbox.tenant import TenantContext
from sandbox.wire import meta as protocol_meta

ASSERTION: Final = "user.assertion"
"""The fact that is not a value but a proof: a signed statement of all facts, for servers that verify it."""

ASSERTION_SECONDS: Final = 60
"""Life of a signed context: longer than a call waits in a queue, shorter than a stolen one is worth."""

OUR_META: Final = "io.mcp-sandbox/"
"""Prefix of our own ``_meta`` keys; no peer may set them."""

_SEPARATORS: Final = re.compile(r"[\s_\-.:/\[\]$@]+")
_PARTS: Final = re.compile(r"[.:/\[\]]+")
_POLLUTING: Final = frozenset(("__proto__", "constructor", "prototype"))
_IDENTITY: Final = frozenset(
    [
        "tenant",
        "tenantid",
        "tenantname",
        "user",
        "userid",
        "username",
        "usersub",
        "sub",
        "subject",
        "principal",
        "principalid",
        "identity",
        "account",
        "accountid",
        "org",
        "orgid",
        "organization",
        "organizationid",
        "organisation",
        "organisationid",
        "workspace",
        "workspaceid",
        "customer",
        "customerid",
        "actas",
        "onbehalfof",
        "impersonate",
        "impersonateuser",
        "runas",
        "role",
        "roles",
        "scope",
        "scopes",
        "groups",
        "claims",
        "auth",
        "authcontext",
        "authorization",
        "token",
        "accesstoken",
        "idtoken",
        "bearer",
        "apikey",
        "session",
        "sessionid",
        "xtenant",
        "xtenantid",
        "xuser",
        "xuserid",
        "xforwardeduser",
        "xforwardedemail",
        "xremoteuser",
        "remoteuser",
    ]
)
"""Folded ``_meta`` names that say who somebody is; such a claim is ours to make."""

_CYRILLIC: Final = dict(
    zip(
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d",
        "aeopcyxijshdqw",
        strict=True,
    )
)
_CYRILLIC_CAPITALS: Final = dict(zip("\u043a\u043c\u043d\u0442\u0432\u04cf", "kmhtbl", strict=True))
_GREEK: Final = dict(
    zip("\u03b1\u03bf\u03b9\u03bd\u03c1\u03c4\u03c5\u03ba\u03b5\u03c7\u03b7", "aoivptukexn", strict=True)
)
_PHONETIC: Final = dict(zip("\u0131\u0251\u0261\u0269\u1d04\u1d0f\u1d07", "iagicoe", strict=True))
_LATIN: Final = str.maketrans({**_CYRILLIC, **_CYRILLIC_CAPITALS, **_GREEK, **_PHONETIC})
"""Letters of other scripts that look like Latin ones, small or capital; both are compared in small letters."""

KNOWN_NAMES: Final = 4096
MAX_KNOWN_CHARS: Final = 64
"""Names whose spellings are remembered: real argument names are few and short."""


def folded_name(name: str) -> str:
    """Return what a name is compared as."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    bare = "".join(c for c in unicodedata.normalize("NFKD", plain) if unicodedata.category(c) not in ("Mn", "Cf"))
    return _SEPARATORS.sub("", bare.translate(_LATIN))


def spellings(name: str) -> frozenset[str]:
    """Return the folded forms of a name: of the whole, and of each part of a dotted or bracketed one."""
    return _remembered(name) if len(name) <= MAX_KNOWN_CHARS else _spellings(name)


def _spellings(name: str) -> frozenset[str]:
    parts = _PARTS.split(name)
    return frozenset(filter(None, (folded_name(name), *(folded_name(part) for part in parts))))


_remembered: Final = lru_cache(KNOWN_NAMES)(_spellings)


class Forbidden:
    """The names that a client must not send to one tool.

    Args:
        binding: the driver's entry. Names that the contract itself declares below the top level are not forbidden
            there: a person reviewed them.
    """

    def __init__(self, binding: Binding) -> None:
        mapping = binding.argument_mapping
        contract_names = {name for name, argument in mapping.items() if argument in binding.context}
        self._names = {folded_name(name): name for name in (*contract_names, *binding.context)}
        declared = member_names(binding.contract.inputs)
        self._declared = frozenset(name for name in declared if self._names.keys().isdisjoint(spellings(name)))
        self._declared_below = _declared_below(binding.contract.inputs)

    def refuse_supplied(self, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that bring injected context (step 6).

        Raises:
            CallRefused: ``CALL-010``.
        """
        if self._names:
            self._walk(arguments, self._declared)

    def _walk(self, value: Any, declared: Iterable[str]) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                if name not in declared:
                    self._refuse(name)
                if isinstance(item, Mapping | list):
                    self._walk(item, self._declared_below)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping | list):
                    self._walk(item, self._declared_below)

    def _refuse(self, name: str) -> None:
        if name in _POLLUTING or not self._names.keys().isdisjoint(spellings(name)):
            shown = name[:64].encode("unicode_escape").decode()
            raise CallRefused(
                "CALL-010",
                f"the argument `{shown}` says who the call is for, which is not the caller's to say",
                "leave it out",
            )


def strip_and_refuse(arguments: Mapping[str, Any], binding: Binding) -> Mapping[str, Any]:
    """Return arguments that bring no injected context; :class:`Forbidden` for a single call.

    Raises:
        CallRefused: ``CALL-010``.
    """
    Forbidden(binding).refuse_supplied(arguments)
    return arguments


def inject(
    arguments: Mapping[str, Any],
    context: Mapping[str, str],
    caller: TenantContext,
    assertion: Callable[[Mapping[str, Any]], str] | None = None,
) -> dict[str, Any]:
    """Return arguments, already under the server's names, with the declared facts added (step 11).

    Args:
        arguments: what will be sent.
        context: server argument → fact.
        caller: verified facts.
        assertion: signs the arguments (:func:`sign_context`); needed for ``user.assertion``.

    Raises:
        CallRefused: ``CALL-010``, an argument is there already; ``CALL-011``, a fact is not known.
    """
    sent = dict(arguments)
    for argument, name in context.items():
        if argument in sent:
            raise CallRefused("CALL-010", f"the argument `{argument}` says who the call is for", "leave it out")
        if name != ASSERTION:
            sent[argument] = fact(name, caller)
    for argument, name in context.items():
        if name == ASSERTION:
            if assertion is None:
                raise CallRefused(
                    "CALL-011", "no key signs the context of calls", "configure one, or inject plain facts"
                )
            sent[argument] = assertion(sent)
    return sent


def fact(name: str, caller: TenantContext) -> str:
    """Return a verified fact: ``tenant.id``, ``user.sub``, or a claim as ``tenant.<claim>`` or ``user.<claim>``.

    Raises:
        CallRefused: ``CALL-011``, it is not known of this caller.
    """
    _, _, claim = name.partition(".")
    value = {"tenant.id": caller.tenant, "user.sub": caller.user}.get(name, caller.claims.get(claim, ""))
    if not value:
        message = f"the tool needs `{name}` of its caller, which is not known"
        raise CallRefused("CALL-011", message, "sign in with an identity that has it, or set it with a flag")
    return str(value)


def clean_meta(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``_meta`` without protocol keys, our own, and names of identity at any depth."""
    kept = protocol_meta.cleaned(given)
    return {key: _without_identity(value) for key, value in kept.items() if not _claims_identity(key)}


def _claims_identity(key: str) -> bool:
    if key.casefold().startswith(OUR_META) or "mcp-sandbox" in key.casefold():
        return True
    return not _IDENTITY.isdisjoint(spellings(key.rpartition("/")[2]))


def _without_identity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_identity(item) for key, item in value.items() if not _claims_identity(key)}
    return [_without_identity(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs contexts for one driver.

    Attributes:
        key: Ed25519 private key.
        key_id: how verifiers find the public key.
        issuer: this supervisor.
        audience: the driver's id: a statement for one server is worth nothing to another.
    """

    key: Ed25519PrivateKey
    key_id: str
    issuer: str
    audience: str


def sign_context(
    signer: Signer, caller: TenantContext, tool: str, arguments: Mapping[str, Any], now: float, id_: str
) -> str:
    """Return a compact JWS (RFC 7515, EdDSA of RFC 8037) that binds caller, tool and arguments.

    Claims: ``iss``, ``aud``, ``sub``, ``tenant``, ``tool``, ``args`` (``sha256:…`` of the canonical JSON of the other
        arguments),
    ``iat``, ``exp``, ``jti``. A server that verifies must compare ``args`` with what it received, and refuse a ``jti``
    twice.

    Args:
        signer: key and names.
        caller: verified facts.
        tool: the server's name of the tool.
        arguments: everything that is sent beside the statement.
        now: Unix time, seconds.
        id_: unique for each call.
    """
    header = {"alg": "EdDSA", "kid": signer.key_id, "typ": "mcp-context+jwt"}
    claims = {
        "iss": signer.issuer,
        "aud": signer.audience,
        "sub": caller.user,
        "tenant": caller.tenant,
        "tool": tool,
        "args": jsontext.digest(dict(arguments)),
        "iat": int(now),
        "exp": int(now) + ASSERTION_SECONDS,
        "jti": id_,
    }
    signed = b".".join(_base64url(orjson.dumps(part)) for part in (header, claims))
    return (signed + b"." + _base64url(signer.key.sign(signed))).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _declared_below(inputs: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of members that a contract declares below its top level, in any schema of the document."""
    names: set[str] = set()
    pending: list[tuple[Any, bool]] = [(inputs, True)]
    while pending:
        schema, top = pending.pop()
        if isinstance(schema, list):
            pending += [(item, top) for item in schema]
        elif isinstance(schema, Mapping):
            if not top:
                names.update(schema.get("properties") or ())
            for key, value in schema.items():
                if key in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
                    pending += [(item, False) for item in (value.values() if isinstance(value, Mapping) else ())]
                elif isinstance(value, Mapping | list):
                    pending.append((value, top and key in ("allOf", "anyOf", "oneOf", "if", "then", "else")))
    return frozenset(names)


__all__ = [
    "ASSERTION",
    "Forbidden",
    "Signer",
    "clean_meta",
    "fact",
    "folded_name",
    "hide",
    "inject",
    "sign_context",
    "spellings",
    "strip_and_refuse",
]

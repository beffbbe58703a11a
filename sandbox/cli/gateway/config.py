"""The operator's ``gateway.toml``: strict, every key known, every default the closed one."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec

from sandbox.cli import options
from sandbox.dialect.bounds import TASK_AFTER
from sandbox.errors import UsageError
from sandbox.serve.identity.certificates import PIN, PinnedClient, is_pin
from sandbox.serve.identity.tokens import ALGORITHMS, usable
from sandbox.serve.ratelimit import BURST, RATE
from sandbox.serve.shared.team import LEASE

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Path_ = Annotated[str, msgspec.Meta(pattern=r"^/mcp/[a-z0-9-]{1,64}$")]
Scope_ = Annotated[str, msgspec.Meta(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,128}$")]

LOOPBACK: Final = frozenset(("127.0.0.1", "::1", "localhost"))


class IssuerConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[[issuer]]``: an OAuth authorization server whose tokens count here.

    Attributes:
        url: exactly as its tokens write ``iss``.
        jwks_uri: its keys; found through its metadata (RFC 8414) when left out.
        tenant_claim: claim that names the tenant.
        user_claim: claim that names the user.
        algorithms: signatures that are accepted.
        introspection: where revoked tokens are asked about (RFC 7662); empty does not ask.
        client_id: of this gateway at the issuer.
        client_secret_env: name of the variable with its secret; never the secret itself.
    """

    url: Text
    jwks_uri: str = ""
    tenant_claim: Text = "tenant"
    user_claim: Text = "sub"
    algorithms: tuple[str, ...] = ALGORITHMS
    introspection: str = ""
    client_id: str = ""
    client_secret_env: str = ""


class TlsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[tls]``: TLS that ends at the gateway itself.

    Attributes:
        certificate: PEM file with the chain; read again when it changes.
        key: PEM file with its private key, which nobody else on this machine may read.
        client_certificates: ask every client for a certificate, for the sake of bound tokens (RFC 8705); where there
            are ``[[client]]`` entries it is asked for anyway.
    """

    certificate: Text
    key: Text
    client_certificates: bool = False


class ClientConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[[client]]``: who holds a key is let in without a token.

    Attributes:
        key: ``sha256/`` and the Base64 of the SHA-256 of the public key (SubjectPublicKeyInfo).
        tenant: of its calls.
        user: within the tenant.
        scopes: what it may do.
    """

    key: Text
    tenant: Text
    user: str = ""
    scopes: tuple[Scope_, ...] = ()


class DriverConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[driver.ID]``: what the gateway adds to one driver; a ``.kno`` entity beside DRIVER.md may say the same.

    Attributes:
        path: endpoint; ``/mcp/ID`` when neither says.
        auth: ``bearer``, or ``none`` for everybody.
        visibility: where it is told of.
        scopes: what a token needs.
        root: where the driver declares it → folder; ``{tenant}`` in it stands for the tenant's own.
        warm: instances that wait for a tenant.
        legacy_sse: offer the HTTP+SSE transport of 2024-11-05 at ``PATH/sse`` too.
        stateless: the server keeps nothing in its process between calls, so that every gateway of ``[state]`` may run
            one for the same tenant.
        names: expose tools under their contract's id, or under the server's own names.
    """

    path: Path_ | Literal[""] = ""
    auth: Literal["", "none", "bearer"] = ""
    visibility: Literal["", "public", "authenticated", "internal", "restricted"] = ""
    scopes: tuple[Scope_, ...] = ()
    root: dict[str, str] = {}
    warm: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    legacy_sse: bool = False
    stateless: bool = False
    names: Literal["contract", "server"] = "contract"


class StateConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[state]``: what several gateways share; without it one gateway keeps everything in its memory.

    Attributes:
        url: of the store, without a password.
        url_env: name of the variable with the URL, where it has a password.
        address: where other gateways reach this one; ``http://LISTEN`` when left out.
        peers: addresses of all gateways that requests may be forwarded to; empty forwards none.
        lease: seconds after a gateway's last heartbeat until others take over from it.
        unsafe_clear: go to the store and to other gateways on other machines in the clear.
    """

    url: str = ""
    url_env: str = ""
    address: str = ""
    peers: tuple[Text, ...] = ()
    lease: Annotated[float, msgspec.Meta(ge=12, le=600)] = LEASE
    unsafe_clear: bool = False


class LimitConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[limits]``: of one tenant.

    Attributes:
        calls_per_second: of one tool, sustained.
        calls_at_once: of one tool, after a pause.
        requests_per_second: of one endpoint, whatever is asked.
        requests_at_once: the same after a pause.
        in_progress: requests at the same time.
        sessions: handshake sessions.
        session_idle: seconds until an unused one ends.
        drain: seconds for what is in progress after SIGTERM.
        task_after: seconds that a call may last until it becomes a task, where jobs are kept and its client can have
            one.
    """

    calls_per_second: Annotated[float, msgspec.Meta(gt=0)] = RATE
    calls_at_once: Annotated[int, msgspec.Meta(ge=1)] = BURST
    requests_per_second: Annotated[float, msgspec.Meta(gt=0)] = 200.0
    requests_at_once: Annotated[int, msgspec.Meta(ge=1)] = 1000
    in_progress: Annotated[int, msgspec.Meta(ge=1, le=2048)] = 256
    sessions: Annotated[int, msgspec.Meta(ge=1)] = 500
    session_idle: Annotated[float, msgspec.Meta(gt=0)] = 1800.0
    drain: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    task_after: Annotated[float, msgspec.Meta(gt=0)] = TASK_AFTER


class PreferenceConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """What is wanted of the drivers that carry a tool that several bind.

    Attributes:
        region: of which a driver has to serve one; empty for any.
        require_tags: policy tags that it needs.
        allow_tags: policy tags that it may have; left out for any.
        pin: contract id → the one driver that may carry it.
    """

    region: tuple[Text, ...] = ()
    require_tags: tuple[Text, ...] = ()
    allow_tags: tuple[Text, ...] | None = None
    pin: dict[str, str] = {}


class RoutingConfig(PreferenceConfig, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """``[routing]``: tools that several drivers bind alike are offered once at ``/mcp``, and each call is resolved.

    Attributes:
        tenant: what holds for a tenant instead; keys that it leaves out are those of everybody.
    """

    tenant: dict[str, PreferenceConfig] = {}


class GatewayConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename="kebab"):
    """The whole file.

    Attributes:
        public_url: as clients write it; where TLS ends in front of the gateway it begins with ``https://``.
        allowed_hosts: further values of ``Host``.
        allowed_origins: pages whose requests are taken.
        namespace: reverse-DNS name that entries of the registry are under.
        aggregate: serve ``/mcp`` with the tools of every driver.
        unsafe_tenant: whoever sends no credential is this tenant; on loopback only.
        tls: the gateway's own certificate; without it TLS ends in front, or nobody but this machine comes in.
        issuer: whose tokens count.
        client: whose keys count.
        driver: by id.
        limits: of one tenant.
        state: what several gateways share.
        routing: among drivers that bind the same tools; without it every tool is named with its driver.
    """

    public_url: str = ""
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    namespace: Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9.-]{1,150}$")] = "local.mcp-sandbox"
    aggregate: bool = True
    unsafe_tenant: str = ""
    tls: TlsConfig | None = None
    issuer: tuple[IssuerConfig, ...] = ()
    client: tuple[ClientConfig, ...] = ()
    driver: dict[str, DriverConfig] = {}
    limits: LimitConfig = LimitConfig()
    routing: RoutingConfig | None = None
    state: StateConfig | None = None


def load_config(path: Path | None) -> GatewayConfig:
    """Return the operator's choices; without a file, nobody but those who sign in comes in, and no issuer is trusted.

    Raises:
        UsageError: ``CLI-180``, the file is not valid; the message has the place.
    """
    if path is None:
        return GatewayConfig()
    try:
        body = tomllib.loads(options.read_file(path).decode("utf-8"))
        config = msgspec.convert(body, GatewayConfig)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UsageError("CLI-180", f"{path}: {error}", "see docs/serve.md for its keys") from None
    _check(config, path)
    return config


def _check(config: GatewayConfig, path: Path) -> None:
    for issuer in config.issuer:
        wrong = [name for name in issuer.algorithms if name not in ALGORITHMS]
        if wrong:
            raise _invalid(
                path, f"`{wrong[0]}` is no signature with a public key", f"use some of {', '.join(ALGORITHMS)}"
            )
        for url in filter(None, (issuer.url, issuer.jwks_uri, issuer.introspection)):
            _check_url(url, path)
        if issuer.introspection and not os.environ.get(issuer.client_secret_env):
            text = f"`introspection` of {issuer.url} needs `client-id` and a variable named in `client-secret-env`"
            raise _invalid(path, text, "set them")
    if config.public_url:
        _check_url(config.public_url, path)
        if config.public_url.endswith("/") or urlsplit(config.public_url).path:
            raise _invalid(path, "`public-url` has a path", "write scheme and host only")
    if config.tls and config.public_url and not config.public_url.startswith("https://"):
        raise _invalid(path, "`public-url` is not https, though the gateway speaks TLS", "write https://…")
    _check_clients(config, path)
    if config.unsafe_tenant:
        options.tenant(config.unsafe_tenant)


def _check_clients(config: GatewayConfig, path: Path) -> None:
    """Refuse clients that could never come, or whom two entries would tell apart differently."""
    if config.client and config.tls is None:
        text = "`[[client]]` needs `[tls]`: only where TLS ends here is it known whose key a connection has"
        raise _invalid(path, text, "let TLS end at the gateway, or use tokens")
    if len({client.key for client in config.client}) != len(config.client):
        raise _invalid(path, "one key stands in two `[[client]]` entries", "keep one of them")
    for client in config.client:
        if not is_pin(client.key):
            mend = "write what `openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER | "
            mend += "openssl dgst -sha256 -binary | base64` prints, after `sha256/`"
            raise _invalid(path, f"{client.key[:80]!r} is no pin of a key (`{PIN}…`)", mend)
        if not usable(client.tenant) or not (client.user == "" or usable(client.user)):
            raise _invalid(path, f"a client has no usable tenant or user: {client.tenant!r}", "use a plain name")


def pinned(config: GatewayConfig) -> Mapping[str, PinnedClient]:
    """Return whom the holder of each key calls for, by pin."""
    return {one.key: PinnedClient(one.tenant, one.user, frozenset(one.scopes)) for one in config.client}


def asks_for_certificates(config: GatewayConfig) -> bool:
    """Return whether clients are asked for a certificate."""
    return config.tls is not None and (config.tls.client_certificates or bool(config.client))


def _check_url(url: str, path: Path) -> None:
    """Refuse what is not HTTPS, but for names of this machine: keys and tokens must not travel in the clear."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname and not parts.query and not parts.fragment:
        return
    if parts.scheme == "http" and parts.hostname in LOOPBACK:
        return
    raise _invalid(path, f"{url[:100]!r} is no https URL", "write https://…")


def _invalid(path: Path, text: str, mend: str) -> UsageError:
    return UsageError("CLI-180", f"{path}: {text}", mend)


def listen_of(text: str) -> tuple[str, int]:
    """Return address and port of ``--listen``.

    Raises:
        UsageError: ``CLI-181``.
    """
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:  # noqa: PLR2004 - the largest port
        raise UsageError("CLI-181", f"{text[:80]!r} is no address and port", "write 127.0.0.1:8080 or [::1]:8080")
    return found[1] or found[2], int(found[3])


def check_exposure(config: GatewayConfig, listen: tuple[str, int]) -> None:
    """Refuse to take tokens in the clear from other machines, and strangers at all.

    Raises:
        UsageError: ``CLI-182`` no TLS, or no name that clients use; ``CLI-183`` everybody would be one tenant.
    """
    if listen[0] in LOOPBACK:
        return
    if config.unsafe_tenant:
        raise UsageError("CLI-183", "`unsafe-tenant` lets everybody in, on other machines too", "listen on 127.0.0.1")
    if not config.public_url.startswith("https://"):
        text = f"{listen[0]} is reached from other machines, and nothing says that TLS ends in front of it"
        mend = "listen on 127.0.0.1, or write in `public-url` the https URL of the proxy, or of `[tls]` here"
        raise UsageError("CLI-182", text, mend)

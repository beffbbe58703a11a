"""The channel to a plan's remote server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandbox.errors import PlanRefused, PlatformError
from sandbox.events import Scope
from sandbox.limits import MAX_HEADER_VALUE
from sandbox.plan.model import SandboxPlan
from sandbox.transport.remote.address import target_of
from sandbox.transport.remote.channel import RemoteChannel
from sandbox.transport.remote.dial import Dialer, Resolver, system_resolver
from sandbox.transport.remote.http import Bearer, HttpClient
from sandbox.transport.remote.legacy import LegacyChannel
from sandbox.transport.remote.streamable import StreamableChannel

PLAIN: Final = "unsafe_plain_http:"


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where logins lie, and who is told of tokens before they are used: they are kept out of records and results."""

    folder: Path
    known: Callable[[str], None]


def dialer_of(
    plan: SandboxPlan, scope: Scope, resolve: Resolver = system_resolver, calls: Callable[[], list[str]] = list
) -> Dialer:
    """Return what opens the connections of a remote server's plan."""
    plain = frozenset(name.removeprefix(PLAIN) for name in plan.unsafe if name.startswith(PLAIN))
    return Dialer(plan.network, plain, plan.authorities, scope, resolve, calls)


def open_remote(
    plan: SandboxPlan,
    secrets: Mapping[str, str],
    scope: Scope,
    resolve: Resolver = system_resolver,
    calls: Callable[[], list[str]] = list,
    keeping: Keeping | None = None,
) -> RemoteChannel:
    """Return a channel to the server; the first request dials.

    Args:
        plan: of a remote server.
        secrets: slug → value, for its header fields; never recorded.
        scope: where connections are recorded.
        resolve: names → addresses.
        calls: spans of the calls in flight, for the record.
        keeping: of tokens, where the plan asks for them.

    Raises:
        ServerFault: ``WIRE-062``, its URL is not usable.
        PlanRefused: ``SEC-010``, a secret cannot stand in a header field.
        PlatformError: ``OAU-006``, the plan asks for tokens, and there is nowhere to keep them.
    """
    home = target_of(plan.remote_url)
    dialer = dialer_of(plan, scope, resolve, calls)
    fields = {entry.name: entry.value + _usable(entry.secret, secrets) for entry in plan.headers}
    client = HttpClient(dialer, home, fields, _bearer(plan, secrets, scope, dialer, keeping))
    return LegacyChannel(client, home) if plan.transport == "sse" else StreamableChannel(client, home)


def _bearer(
    plan: SandboxPlan, secrets: Mapping[str, str], scope: Scope, dialer: Dialer, keeping: Keeping | None
) -> Bearer | None:
    """Return what has the tokens of a plan, ``None`` where it asks for none."""
    if plan.auth is None:
        return None
    if keeping is None:
        raise PlatformError("OAU-006", "tokens are asked for where none can be kept out of records", "report it")
    # Few drivers log in, and the others do not wait for these modules.
    from sandbox.transport.remote.oauth.asking import Asking  # noqa: PLC0415
    from sandbox.transport.remote.oauth.bearer import LoginSource, MachineSource, TokenBearer  # noqa: PLC0415
    from sandbox.transport.remote.oauth.store import Binding, Store  # noqa: PLC0415

    asking = Asking(dialer, scope, keeping.known)
    if plan.auth.grant == "client_credentials":
        return TokenBearer(MachineSource(asking, plan, plan.auth, secrets))
    return TokenBearer(LoginSource(asking, plan.auth, Store(keeping.folder), Binding.of(plan, scope.tenant)))


def _usable(slug: str, secrets: Mapping[str, str]) -> str:
    value = secrets[slug] if slug else ""
    if not value.isascii() or not value.isprintable() or value != value.strip() or len(value) > MAX_HEADER_VALUE:
        message = (
            f"secret `{slug}` cannot be sent in a header field: one line of at most {MAX_HEADER_VALUE} ASCII characters"
        )
        raise PlanRefused("SEC-010", message, "see what its source gives")
    return value

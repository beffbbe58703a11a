"""The channel to a plan's remote server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sandbox.errors import PlanRefused
from sandbox.events import Scope
from sandbox.limits import MAX_HEADER_VALUE
from sandbox.plan.model import SandboxPlan
from sandbox.transport.remote.address import target_of
from sandbox.transport.remote.channel import RemoteChannel
from sandbox.transport.remote.dial import Dialer, Resolver, system_resolver
from sandbox.transport.remote.http import HttpClient
from sandbox.transport.remote.legacy import LegacyChannel
from sandbox.transport.remote.streamable import StreamableChannel

PLAIN: Final = "unsafe_plain_http:"


def open_remote(
    plan: SandboxPlan,
    secrets: Mapping[str, str],
    scope: Scope,
    resolve: Resolver = system_resolver,
    calls: Callable[[], list[str]] = list,
) -> RemoteChannel:
    """Return a channel to the server; the first request dials.

    Args:
        plan: of a remote server.
        secrets: slug → value, for its header fields; never recorded.
        scope: where connections are recorded.
        resolve: names → addresses.
        calls: spans of the calls in flight, for the record.

    Raises:
        ServerFault: ``WIRE-062``, its URL is not usable.
        PlanRefused: ``SEC-010``, a secret cannot stand in a header field.
    """
    home = target_of(plan.remote_url)
    plain = frozenset(name.removeprefix(PLAIN) for name in plan.unsafe if name.startswith(PLAIN))
    dialer = Dialer(plan.network, plain, plan.authorities, scope, resolve, calls)
    fields = {entry.name: entry.value + _usable(entry.secret, secrets) for entry in plan.headers}
    client = HttpClient(dialer, home, fields)
    return LegacyChannel(client, home) if plan.transport == "sse" else StreamableChannel(client, home)


def _usable(slug: str, secrets: Mapping[str, str]) -> str:
    value = secrets[slug] if slug else ""
    if not value.isascii() or not value.isprintable() or value != value.strip() or len(value) > MAX_HEADER_VALUE:
        message = (
            f"secret `{slug}` cannot be sent in a header field: one line of at most {MAX_HEADER_VALUE} ASCII characters"
        )
        raise PlanRefused("SEC-010", message, "see what its source gives")
    return value

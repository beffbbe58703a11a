# ruff: noqa: ASYNC109 - the deadline of a request is part of the protocol: the server is told when it passes
"""Which era and version a server speaks; settled once for each process, before any client is served.

Steps (MCP 2026-07-28, basic/transports/stdio, backward compatibility):

1. A version that the driver names is used, and nothing else: it is part of what was reviewed.
2. Otherwise ``server/discover`` is sent with the newest stateless version.
3. A discovery result, or an error that only the stateless era has, makes the server stateless; a version both speak is
   chosen from the ones it lists.
4. Any other error, an answer that is no discovery result, or silence means the handshake: ``initialize`` with the
  newest
   handshake version. No particular error code is looked for.
5. A probe that is answered after step 4 began still counts when ``initialize`` is refused: the server was slow to
  start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.errors import SandboxError, ServerFault, ServerTimeout, UsageError
from sandbox.limits import PROBE_TIMEOUT
from sandbox.transport.outcomes import RemoteError
from sandbox.wire import meta
from sandbox.wire.codes import MODERN_ERRORS
from sandbox.wire.versions import (
    HANDSHAKE_VERSIONS,
    LATEST_HANDSHAKE,
    LATEST_STATELESS,
    VERSIONS,
    Era,
    era_of,
    newest_stateless,
)

_NAME_IT = "name the version in DRIVER.md: `protocol_version`"


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides settled on, and what the server said about itself; all of it untrusted.

    Attributes:
        version: protocol version; empty until it is settled.
        era: era of the version; the handshake era until it is settled.
    """

    version: str
    server_info: Mapping[str, Any] = field(default_factory=dict)
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    instructions: str = ""
    era: Era = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "era", era_of(self.version) or "handshake")


class Asker(Protocol):
    """The part of a peer that negotiation needs."""

    async def ask(self, method: str, params: dict[str, Any], *, timeout: float) -> dict[str, Any]:
        """Send a request as it stands and return the result as it stands."""

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification as it stands."""


async def negotiate(
    peer: Asker, *, client_info: Mapping[str, Any], capabilities: Mapping[str, Any], wanted: str, timeout: float
) -> Agreement:
    """Settle era and version.

    Args:
        peer: how to ask the server.
        client_info: how we introduce ourselves.
        capabilities: what we offer to the server.
        wanted: version of the driver, empty to find out.
        timeout: for everything, seconds.

    Raises:
        UsageError: ``WIRE-052``, a version that we do not speak.
        ServerFault: ``WIRE-053`` no common version, ``WIRE-054`` an answer that is none; ServerTimeout ``WIRE-043``.
    """
    own = (client_info, capabilities)
    if wanted and wanted not in VERSIONS:
        message = f"protocol version {wanted!r} is not spoken here"
        raise UsageError("WIRE-052", message, f"use one of {', '.join(VERSIONS)}")
    if era_of(wanted) == "handshake":  # 1
        return await _initialize(peer, own, wanted, exact=True, timeout=timeout)
    if era_of(wanted) == "stateless":
        return _discovered(await _discover(peer, own, wanted, timeout), wanted)
    return await _find_out(peer, own, timeout)


async def _find_out(peer: Asker, own: tuple[Mapping[str, Any], Mapping[str, Any]], timeout: float) -> Agreement:
    """Steps 2 to 5."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    probe = asyncio.ensure_future(_discover(peer, own, LATEST_STATELESS, timeout))
    try:
        await asyncio.wait((probe,), timeout=min(PROBE_TIMEOUT, timeout / 2))
        if probe.done() and (agreement := await _stateless(peer, own, probe, timeout)) is not None:  # 3
            return agreement
        try:
            return await _initialize(peer, own, LATEST_HANDSHAKE, exact=False, timeout=deadline - loop.time())  # 4
        except RemoteError as error:
            if error.code in MODERN_ERRORS:  # the probe has settled the era already; its answer is on its way
                await asyncio.wait((probe,), timeout=deadline - loop.time())
            if probe.done() and (agreement := await _stateless(peer, own, probe, timeout)) is not None:  # 5
                return agreement
            message = f"the server refuses both `server/discover` and `initialize`: {error.text}"
            raise ServerFault("WIRE-053", message, _NAME_IT) from None
    finally:
        probe.cancel()


async def _stateless(
    peer: Asker,
    own: tuple[Mapping[str, Any], Mapping[str, Any]],
    probe: asyncio.Future[dict[str, Any]],
    timeout: float,
) -> Agreement | None:
    """Return the agreement that the probe's answer leads to, or ``None`` when it means the handshake."""
    try:
        result = probe.result()
    except RemoteError as error:
        if error.code not in MODERN_ERRORS:
            return None
        supported = error.data.get("supported") if isinstance(error.data, Mapping) else None
        version = newest_stateless(supported)
        if version is not None:
            return _discovered(await _discover(peer, own, version, timeout), version)
        _check_handshake(supported)
        return None
    except ServerTimeout:
        return None
    supported = result.get("supportedVersions")
    if not isinstance(supported, list):
        return None
    version = newest_stateless(supported)
    if version is not None:
        return _discovered(result, version)
    _check_handshake(supported)
    return None


def _check_handshake(supported: Any) -> None:
    """Return when the server lists a version of the handshake era, which leads there; else raise."""
    if isinstance(supported, list) and any(version in HANDSHAKE_VERSIONS for version in supported):
        return
    raise _no_common(supported)


def _no_common(offered: Any) -> ServerFault:
    said = f"{offered!r:.120}"
    return ServerFault("WIRE-053", f"no common protocol version: the server offers {said}", f"use {VERSIONS[-1]}")


async def _discover(
    peer: Asker, own: tuple[Mapping[str, Any], Mapping[str, Any]], version: str, timeout: float
) -> dict[str, Any]:
    return await peer.ask("server/discover", {"_meta": request_meta(version, *own)}, timeout=timeout)


def request_meta(version: str, client_info: Mapping[str, Any], capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the per-request fields of the stateless era."""
    return {meta.PROTOCOL_VERSION: version, meta.CLIENT_INFO: client_info, meta.CLIENT_CAPABILITIES: capabilities}


def _discovered(result: Mapping[str, Any], version: str) -> Agreement:
    supported = result.get("supportedVersions")
    if not isinstance(supported, list) or version not in supported:
        raise _no_common(supported)
    return _agreement(version, result, meta.of(result).get(meta.SERVER_INFO))


async def _initialize(
    peer: Asker, own: tuple[Mapping[str, Any], Mapping[str, Any]], version: str, *, exact: bool, timeout: float
) -> Agreement:
    params = {"protocolVersion": version, "capabilities": dict(own[1]), "clientInfo": dict(own[0])}
    result = await peer.ask("initialize", params, timeout=timeout)
    answered = result.get("protocolVersion")
    if not isinstance(answered, str) or answered not in HANDSHAKE_VERSIONS or (exact and answered != version):
        raise _no_common(answered)
    agreement = _agreement(answered, result, result.get("serverInfo"))
    peer.tell("notifications/initialized", {})
    return agreement


def _agreement(version: str, result: Mapping[str, Any], info: Any) -> Agreement:
    capabilities, instructions = result.get("capabilities"), result.get("instructions", "")
    if not isinstance(capabilities, dict) or not isinstance(instructions, str):
        message = "the server introduced itself without `capabilities`, or with `instructions` that are not text"
        raise ServerFault("WIRE-054", message, "report it to the server's author")
    return Agreement(version, info if isinstance(info, dict) else {}, capabilities, instructions)


def explain_loss(error: SandboxError) -> SandboxError:
    """Return the error of a server that ended while it was probed, with what may be the remedy."""
    if error.id != "WIRE-040":
        return error
    message = "the server ended before it answered `server/discover` or `initialize`"
    return ServerFault("WIRE-055", message, f"read its stderr; if it ends on unknown requests, {_NAME_IT}")

"""A thin asynchronous client of the container engine's HTTP API over its unix socket: what a session needs.

The ``docker`` package is used where nobody waits (:mod:`sandbox.launch.doctor`, images): importing it costs 200 ms,
two thirds of a container's start (ADR 0030). Here a request is one connection, one bounded answer, one deadline;
nothing is retried, because a request that changes something must not be sent twice by accident.

Only unix sockets: over plain TCP the engine's API is root access for whoever can reach the port.

The loop's ``sock_*`` methods are used rather than streams, because the attached socket is handed on raw: they work the
same on asyncio's own loop and on uvloop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.launch import http1
from sandbox.limits import ENGINE_TIMEOUT, MIB

MAX_ANSWER_BYTES: Final = 16 * MIB
"""One answer of the engine. A list of a thousand containers has about 1 MB."""

READ_BYTES: Final = 64 * 1024
"""Of one read from the engine's socket; its answers to a start fit in one."""

API_NEWEST: Final = (1, 47)
"""Newest API version whose semantics were read; a newer engine is spoken to in this one."""

API_OLDEST: Final = (1, 41)
"""First with ``CgroupnsMode`` (Docker 20.10), which the baseline needs."""

_ATTACH: Final = {"stream": "1", "stdin": "1", "stdout": "1", "stderr": "1"}
_UPGRADE: Final = {"Connection": "Upgrade", "Upgrade": "tcp"}
_NEVER: Final = "0001-01-01T"
"""The zero of Go's clock: no sample was taken."""


class EngineError(PlatformError):
    """The engine answered with an error status.

    Attributes:
        status: HTTP status.
        message: in ``reason``, the engine's own words, for :mod:`sandbox.launch.failure`.
    """

    def __init__(self, status: int, reason: str, what: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(
            "LAUNCH-029" if status >= 500 else "LAUNCH-028",  # noqa: PLR2004 - RFC 9110 §15.6
            f"the container engine refused to {what} (HTTP {status}): {reason}",
            "run `mcp-sandbox doctor`; the engine's own log says more",
        )


@dataclass(frozen=True, slots=True)
class Identity:
    """What ``/_ping`` says: which engine, and the API version that is spoken with it."""

    kind: Literal["docker", "podman"]
    api_version: str


def no_engine(where: str, why: str = "") -> PlatformError:
    """Return ``LAUNCH-001`` for the places that were tried."""
    return PlatformError(
        "LAUNCH-001",
        f"no container engine answers at {where}" + (f" ({why})" if why else ""),
        "start Docker (or Podman's API socket) and let this user use its socket; `mcp-sandbox doctor` explains",
    )


class Engine:
    """A client of one engine.

    Args:
        socket_path: path of the engine's unix socket.
    """

    def __init__(self, socket_path: str | Path) -> None:
        self.socket_path = str(socket_path)
        self.identity: Identity | None = None

    async def identify(self) -> Identity:
        """Ask once which engine this is and agree on an API version.

        Raises:
            PlatformError: ``LAUNCH-001`` nothing answers, ``LAUNCH-003`` the engine is too old.
        """
        if self.identity is None:
            head, _ = await self._exchange("GET", "/_ping", None, ENGINE_TIMEOUT)
            self.identity = _identity(head)
        return self.identity

    async def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: float | None = ENGINE_TIMEOUT,  # noqa: ASYNC109 - one deadline for connect, send and answer
    ) -> Any:
        """Send one request and return the JSON value of its answer, ``None`` when it has no body.

        Args:
            method: HTTP method.
            path: below the API version, percent-encoded.
            what: the purpose in the infinitive, for messages (``start the container``).
            query: query parameters.
            body: JSON value.
            timeout: seconds; ``None`` waits for as long as the engine takes (``wait``).

        Raises:
            EngineError: the engine answered with an error.
            PlatformError: ``LAUNCH-001`` … ``LAUNCH-006``: it did not answer properly.
        """
        identity = await self.identify()
        data = None if body is None else jsontext.dump(body)
        full = f"/v{identity.api_version}{http1.target(path, query)}"
        head, answer = await self._exchange(method, full, data, timeout)
        value = _json(answer, head, what)
        if head.status >= 400:  # noqa: PLR2004 - RFC 9110 §15.5
            message = value.get("message") or value.get("cause") if isinstance(value, dict) else None
            raise EngineError(head.status, str(message or "no reason given")[:2000], what)
        return value

    async def create(self, body: Mapping[str, Any], name: str) -> tuple[str, tuple[str, ...]]:
        """Create a container; return its id and the engine's warnings."""
        what = "create the container"
        answer = _object(
            await self.call("POST", "/containers/create", what=what, query={"name": name}, body=body), what
        )
        return str(answer["Id"]), tuple(answer.get("Warnings") or ())

    async def attach(self, container: str) -> socket.socket:
        """Return the connected, non-blocking socket of a container's stdio, in the engine's framing.

        Attach before the start, so that no byte of the server is lost.
        """
        identity = await self.identify()
        target = http1.target(f"/v{identity.api_version}/containers/{container}/attach", _ATTACH)
        sock = await self._open()
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT):
                await _upgrade(sock, http1.request("POST", target, headers=_UPGRADE))
        except TimeoutError:
            sock.close()
            raise _too_slow("attach to the container") from None
        except BaseException:
            sock.close()
            raise
        return sock

    async def start(self, container: str) -> None:
        """Start a created container."""
        await self.call("POST", f"/containers/{container}/start", what="start the container")

    async def inspect(self, container: str) -> dict[str, Any]:
        """Return the engine's description of a container."""
        what = "inspect the container"
        return _object(await self.call("GET", f"/containers/{container}/json", what=what), what)

    async def wait(self, container: str) -> dict[str, Any]:
        """Return ``StatusCode`` (and ``Error``) when the container is no longer running; without a deadline."""
        what = "wait for the container"
        return _object(await self.call("POST", f"/containers/{container}/wait", what=what, timeout=None), what)

    async def pause(self, container: str) -> None:
        """Freeze a container."""
        await self.call("POST", f"/containers/{container}/pause", what="pause the container")

    async def unpause(self, container: str) -> None:
        """Thaw a container."""
        await self.call("POST", f"/containers/{container}/unpause", what="unpause the container")

    async def kill(self, container: str, signal: str) -> None:
        """Send a signal to a container's first process."""
        await self.call("POST", f"/containers/{container}/kill", what="signal the container", query={"signal": signal})

    async def stats(self, container: str) -> dict[str, Any]:
        """Return one sample of a container's resource figures; empty when it does not run, or ended meanwhile.

        Docker takes a sample once a second and lets who asks wait for it. When the container ends in that second, the
        answer is 200 without a body (20.10); for one that does not run, it is a form whose time is zero and whose
        figures are zeros that nobody measured.
        """
        what, query = "measure the container", {"stream": "false", "one-shot": "true"}
        value = await self.call("GET", f"/containers/{container}/stats", what=what, query=query)
        if value is None:
            return {}
        sample = _object(value, what)
        return {} if str(sample.get("read", "")).startswith(_NEVER) else sample

    async def remove(self, container: str) -> bool:
        """Remove a container, running or not, with its anonymous volumes; return whether it was there."""
        query = {"force": "1", "v": "1"}
        return await self._delete(f"/containers/{container}", "remove the container", query)

    async def remove_network(self, network: str) -> bool:
        """Remove a network; return whether it was there."""
        return await self._delete(f"/networks/{network}", "remove the network", None)

    async def remove_volume(self, volume: str) -> bool:
        """Remove a volume; return whether it was there."""
        return await self._delete(f"/volumes/{http1.segment(volume)}", "remove the volume", {"force": "1"})

    async def labelled(self, kind: Literal["containers", "networks", "volumes"], label: str) -> list[dict[str, Any]]:
        """Return the engine's list of what carries ``label`` (a name, or ``name=value``)."""
        query = {"filters": jsontext.dump({"label": [label]}).decode()}
        if kind == "containers":
            query["all"] = "1"
        path = "/containers/json" if kind == "containers" else f"/{kind}"
        value = await self.call("GET", path, what=f"list {kind}", query=query)
        rows = value.get("Volumes") if isinstance(value, dict) else value
        return list(rows or ())

    async def image(self, reference: str) -> dict[str, Any] | None:
        """Return the engine's description of a present image, or ``None``; never pulls."""
        try:
            value = await self.call("GET", f"/images/{http1.segment(reference)}/json", what="inspect the image")
        except EngineError as error:
            if error.status == 404:  # noqa: PLR2004 - RFC 9110 §15.5.5
                return None
            raise
        return _object(value, "inspect the image")

    async def info(self) -> dict[str, Any]:
        """Return the engine's ``/info``."""
        what = "describe itself"
        return _object(await self.call("GET", "/info", what=what), what)

    async def version(self) -> dict[str, Any]:
        """Return the engine's ``/version``."""
        what = "tell its version"
        return _object(await self.call("GET", "/version", what=what), what)

    async def _delete(self, path: str, what: str, query: Mapping[str, str] | None) -> bool:
        try:
            await self.call("DELETE", path, what=what, query=query)
        except EngineError as error:
            if error.status == 404:  # noqa: PLR2004 - RFC 9110 §15.5.5
                return False
            raise
        return True

    async def _exchange(
        self, method: str, target: str, body: bytes | None, seconds: float | None
    ) -> tuple[http1.Head, bytes]:
        """Send one request on a connection of its own and return its complete answer."""
        sock = await self._open()
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_sendall(sock, http1.request(method, target, body))
                return http1.parse_response(await _read_to_end(sock))
        except TimeoutError:
            raise _too_slow(f"{method} {target[:120]}") from None
        except OSError as error:
            raise _lost(str(error)) from None
        except http1.HttpError as error:
            raise _lost(str(error)) from None
        finally:
            sock.close()

    async def _open(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT):
                await asyncio.get_running_loop().sock_connect(sock, self.socket_path)
        except OSError as error:  # TimeoutError included
            sock.close()
            raise no_engine(self.socket_path, error.strerror or "no answer") from None
        except BaseException:
            sock.close()
            raise
        return sock


async def _upgrade(sock: socket.socket, request: bytes) -> None:
    """Send an upgrade request; return when the stream is open. Nothing may follow the head before the start."""
    loop = asyncio.get_running_loop()
    data = b""
    try:
        await loop.sock_sendall(sock, request)
        while http1.HEAD_END not in data and len(data) <= http1.MAX_HEAD_BYTES:
            piece = await loop.sock_recv(sock, READ_BYTES)
            if not piece:
                break
            data += piece
        head, _, rest = data.partition(http1.HEAD_END)
        status = http1.parse_head(head).status
    except (OSError, http1.HttpError) as error:
        raise _lost(str(error)) from None
    if status not in {101, 200} or rest:
        raise EngineError(status, rest[:500].decode("utf-8", "replace"), "attach to the container")


async def _read_to_end(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    pieces: list[bytes] = []
    size = 0
    while piece := await loop.sock_recv(sock, READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise PlatformError(
                "LAUNCH-004",
                f"the container engine answered with more than {MAX_ANSWER_BYTES} bytes",
                "see what makes its lists so long; `docker ps -a` and `docker system df` tell",
            )
    return b"".join(pieces)


def _identity(head: http1.Head) -> Identity:
    offered = head.headers.get("api-version", "")
    try:
        major, minor = (int(part) for part in offered.split("."))
    except ValueError:
        raise PlatformError(
            "LAUNCH-004", "what answers on the engine's socket is no container engine", "check DOCKER_HOST"
        ) from None
    if (major, minor) < API_OLDEST:
        raise PlatformError(
            "LAUNCH-003",
            f"the container engine speaks API {offered}; {API_OLDEST[0]}.{API_OLDEST[1]} is the oldest that can be held"
            " to the baseline",
            "upgrade to Docker 20.10 or later, or Podman 4.3 or later",
        )
    chosen = min((major, minor), API_NEWEST)
    kind: Literal["docker", "podman"] = "podman" if "libpod-api-version" in head.headers else "docker"
    return Identity(kind, f"{chosen[0]}.{chosen[1]}")


def _json(data: bytes, head: http1.Head, what: str) -> Any:
    if not data.strip():
        return None
    try:
        return jsontext.parse(data)
    except jsontext.JsonTextError as error:
        if head.status >= 400:  # noqa: PLR2004 - an error page is quoted as it stands
            return {"message": data[:500].decode("utf-8", "replace")}
        raise PlatformError(
            "LAUNCH-004", f"the container engine's answer to {what} is not JSON: {error}", "check DOCKER_HOST"
        ) from None


def _object(value: Any, what: str) -> dict[str, Any]:
    """Return an answer that has to be an object; an engine that shuts down may end one before its first byte."""
    if not isinstance(value, dict):
        raise PlatformError(
            "LAUNCH-004",
            f"the container engine's answer to {what} is {'empty' if value is None else 'no object'}",
            "see whether the engine was stopped; check DOCKER_HOST",
        )
    return value


def _too_slow(what: str) -> PlatformError:
    return PlatformError(
        "LAUNCH-005",
        f"the container engine did not answer within {ENGINE_TIMEOUT:.0f} s ({what})",
        "see whether the host is overloaded or the engine hangs; restart the engine if it does",
    )


def _lost(why: str) -> PlatformError:
    return PlatformError(
        "LAUNCH-006",
        f"the connection to the container engine was lost ({why})",
        "the engine was stopped or restarted; start the session again when it is up",
    )

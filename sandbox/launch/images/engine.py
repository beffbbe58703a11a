"""The one module of this package that speaks to a container engine: images, and the containers that builds run in.

Blocking, over the engine's unix socket, one connection for each request (:mod:`sandbox.launch.http1`); callers that
have an event loop run it in a thread. It exists beside the asynchronous client of :mod:`sandbox.launch.engine`
because loading an image streams hundreds of megabytes *to* the engine and a build runs for minutes. Everything else
of this package asks for an :class:`ImageEngine`, so another engine, or a fake, takes its place.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from sandbox import jsontext
from sandbox.errors import PlatformError
from sandbox.launch import discover, http1
from sandbox.launch.engine import no_engine
from sandbox.launch.images.archive import Image, write_archive
from sandbox.limits import ENGINE_TIMEOUT, MIB

LOAD_TIMEOUT: Final = 600.0
"""One image being loaded or pulled (seconds): 500 MB on a slow disk."""

MAX_ANSWER_BYTES: Final = 16 * MIB
"""One answer of the engine; the progress lines of a load stay below 1 MB."""

API: Final = "v1.41"
"""Docker 20.10, the oldest engine that can be held to the baseline; every newer one and Podman speak it."""

_READ: Final = 256 * 1024
_ERROR: Final = 400
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REMOVING: Final = 0.1
"""Between two looks at a container that somebody else removes (seconds)."""


class ImageEngine(Protocol):
    """What images and installs need from a container engine. Every method raises ``PlatformError`` when it fails.

    Attributes:
        path: its unix socket.
    """

    path: str

    def inspect(self, reference: str) -> dict[str, Any] | None:
        """Return the description of a present image, or ``None``; never pulls."""

    def load(self, image: Image, tags: Collection[str], absent: Collection[str] = ()) -> None:
        """Give an image to the engine, leaving out the layers whose digests are in ``absent``."""

    def tag(self, reference: str, name: str) -> None:
        """Name a present image ``repository:tag``."""

    def remove_image(self, reference: str) -> bool:
        """Remove an image or a name of it; return whether it was there."""

    def pull(self, repository: str, digest: str) -> None:
        """Fetch an image by digest from its registry."""

    def create(self, body: Mapping[str, Any], name: str) -> str:
        """Create a container and return its id."""

    def attach(self, container: str) -> socket.socket:
        """Return the blocking socket of a container's stdio, in the engine's framing."""

    def start(self, container: str) -> None:
        """Start a created container."""

    def wait(self, container: str) -> int:
        """Return the exit status when the container has ended."""

    def remove(self, container: str) -> None:
        """End and remove a container; idempotent."""


class SocketEngine:
    """A client of the engine at one unix socket.

    Args:
        path: the socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def inspect(self, reference: str) -> dict[str, Any] | None:
        """Return the description of a present image, or ``None``; never pulls."""
        status, answer = self._call("GET", f"/images/{http1.segment(reference)}/json", what="inspect an image")
        return None if status == _NOT_FOUND else dict(_value(answer))

    def load(self, image: Image, tags: Collection[str], absent: Collection[str] = ()) -> None:
        """Give an image to the engine, leaving out the layers whose digests are in ``absent``."""
        head = {"Content-Type": "application/x-tar", "Transfer-Encoding": "chunked"}
        with self._connected("load an image", LOAD_TIMEOUT) as sock:
            sock.sendall(_head("POST", f"/{API}/images/load?quiet=1", head))
            sink = _ChunkedSink(sock)
            try:
                write_archive(image, tags, sink, absent)
                sink.finish()
            except (BrokenPipeError, ConnectionResetError):
                pass  # the engine refused early and has already said why
            status, answer = _answer(sock, "load an image")
        _check(status, answer, "load an image")

    def tag(self, reference: str, name: str) -> None:
        """Name a present image ``repository:tag``."""
        repository, _, tag = name.rpartition(":")
        query = {"repo": repository, "tag": tag}
        self._done("POST", f"/images/{http1.segment(reference)}/tag", what="name an image", query=query)

    def remove_image(self, reference: str) -> bool:
        """Remove an image or a name of it; return whether it was there."""
        status, _ = self._call("DELETE", f"/images/{http1.segment(reference)}", what="remove an image")
        return status != _NOT_FOUND

    def pull(self, repository: str, digest: str) -> None:
        """Fetch an image by digest from its registry."""
        query = {"fromImage": repository, "tag": digest}
        self._done("POST", "/images/create", what=f"pull {repository}@{digest}", query=query, timeout=LOAD_TIMEOUT)

    def create(self, body: Mapping[str, Any], name: str) -> str:
        """Create a container and return its id."""
        answer = self._done(
            "POST", "/containers/create", what="create a build container", query={"name": name}, body=body
        )
        return str(_value(answer)["Id"])

    def attach(self, container: str) -> socket.socket:
        """Return the blocking socket of a container's stdio, in the engine's framing."""
        what = "attach to a build container"
        sock = self._connected(what, ENGINE_TIMEOUT)
        target = http1.target(
            f"/{API}/containers/{container}/attach", {"stream": "1", "stdin": "1", "stdout": "1", "stderr": "1"}
        )
        sock.sendall(_head("POST", target, {"Connection": "Upgrade", "Upgrade": "tcp"}))
        data = b""
        while http1.HEAD_END not in data and (piece := sock.recv(1)):  # not a byte beyond: that belongs to the caller
            data += piece
        try:
            status = http1.parse_head(data.removesuffix(http1.HEAD_END)).status
        except http1.HttpError as error:
            sock.close()
            raise _broken(what, str(error)) from None
        if status not in {101, 200}:
            sock.close()
            raise _broken(what, f"HTTP {status}")
        return sock

    def start(self, container: str) -> None:
        """Start a created container."""
        self._done("POST", f"/containers/{container}/start", what="start a build container")

    def wait(self, container: str) -> int:
        """Return the exit status when the container has ended."""
        return int(_value(self._done("POST", f"/containers/{container}/wait", what="wait for a build"))["StatusCode"])

    def remove(self, container: str) -> None:
        """End and remove a container; idempotent, also while somebody else removes it."""
        deadline = time.monotonic() + ENGINE_TIMEOUT
        query = {"force": "1", "v": "1"}
        while time.monotonic() < deadline:
            status, _ = self._call("DELETE", f"/containers/{container}", what="remove a build container", query=query)
            if status != _CONFLICT:
                return
            time.sleep(_REMOVING)
        raise _broken("remove a build container", "its removal does not end")

    def _done(self, method: str, path: str, *, what: str, **more: Any) -> bytes:
        """Send a request whose every error status is a failure, and return the answer's body."""
        status, answer = self._call(method, path, what=what, **more)
        if status == _NOT_FOUND:
            raise _broken(what, _reason(answer))
        return answer

    def _call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: float = ENGINE_TIMEOUT,
    ) -> tuple[int, bytes]:
        """Send a request; a status of 404 is returned, any other error raised."""
        data = None if body is None else jsontext.dump(body)
        with self._connected(what, timeout) as sock:
            sock.sendall(http1.request(method, f"/{API}{http1.target(path, query)}", data))
            status, answer = _answer(sock, what)
        removing = method == "DELETE" and status == _CONFLICT and b"already in progress" in answer
        if status != _NOT_FOUND and not removing:
            _check(status, answer, what)
        return status, answer

    def _connected(self, what: str, timeout: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(self.path)
        except OSError as error:
            sock.close()
            raise no_engine(self.path, f"{error.strerror or error}, to {what}") from None
        return sock


def connect(environ: Mapping[str, str]) -> SocketEngine:
    """Return a client of the first engine whose socket is there.

    Raises:
        PlatformError: ``LAUNCH-001``, none is; ``LAUNCH-002`` for a DOCKER_HOST that is no unix socket.
    """
    tried = discover.candidates(environ)
    for path in tried:
        if discover.is_socket(path):
            return SocketEngine(path)
    raise no_engine(", ".join(dict.fromkeys(tried)))


class _ChunkedSink(io.RawIOBase):
    """A write-only file that sends each piece as a chunk (RFC 9112 §7.1)."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if len(data):
            self._sock.sendall(b"%x\r\n" % len(data))
            self._sock.sendall(data)
            self._sock.sendall(b"\r\n")
        return len(data)

    def finish(self) -> None:
        self._sock.sendall(b"0\r\n\r\n")


def _head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = {"Host": "engine", "Connection": "close", "User-Agent": "mcp-sandbox", **headers}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("ascii")


def _answer(sock: socket.socket, what: str) -> tuple[int, bytes]:
    pieces, size = [], 0
    try:
        while piece := sock.recv(_READ):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise _broken(what, f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        head, body = http1.parse_response(b"".join(pieces))
    except TimeoutError:
        raise _broken(what, "no answer in time") from None
    except (OSError, http1.HttpError) as error:
        raise _broken(what, str(error)) from None
    return head.status, body


def _check(status: int, answer: bytes, what: str) -> None:
    """Raise for an error status, and for an error that a stream of progress lines reports after a good one."""
    if status >= _ERROR or b'"error"' in answer:
        raise _broken(what, f"HTTP {status}: {_reason(answer)}")


def _reason(answer: bytes) -> str:
    for line in reversed(answer.splitlines()):
        try:
            value = jsontext.parse(line)
        except jsontext.JsonTextError:
            continue
        if isinstance(value, dict) and (text := value.get("error") or value.get("message")):
            return str(text)[:500]
    return answer[-500:].decode("utf-8", "replace").strip() or "no reason given"


def _value(answer: bytes) -> Any:
    try:
        return jsontext.parse(answer)
    except jsontext.JsonTextError as error:
        raise _broken("answer", f"no JSON: {error}") from None


def _broken(what: str, why: str) -> PlatformError:
    return PlatformError(
        "IMG-002",
        f"the container engine did not {what}: {why}",
        "run `mcp-sandbox doctor`; the engine's own log says more",
    )

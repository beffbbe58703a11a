"""The engine client against a scripted engine: errors are sorted, answers bounded, nothing is sent twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sandbox.errors import PlatformError
from sandbox.launch import discover, engine, usage
from sandbox.launch.engine import Engine, EngineError
from sandbox.launch.interface import Usage

PING = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 2\r\n\r\nOK"

pytestmark = pytest.mark.anyio


class ScriptedEngine:
    """Listens on a unix socket and answers each request from a script; keeps the requests it saw."""

    def __init__(self, answer: Callable[[str], bytes | None]) -> None:
        self.answer = answer
        self.seen: list[str] = []
        self.silent: list[asyncio.Task[object]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line = head.splitlines()[0]
        self.seen.append(line)
        answer = PING if "/_ping" in line else self.answer(line)
        try:
            if answer is None:
                self.silent.append(asyncio.current_task())
                await asyncio.Event().wait()
            writer.write(answer or b"")
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def scripted(
    tmp_path: Path, answer: Callable[[str], bytes | None]
) -> AsyncIterator[tuple[Engine, ScriptedEngine]]:
    """Yield a client and the scripted engine behind it."""
    script = ScriptedEngine(answer)
    path = tmp_path / "engine.sock"
    async with await asyncio.start_unix_server(script.serve, path):
        yield Engine(path), script
        for task in script.silent:
            task.cancel()
        await asyncio.gather(*script.silent)


def reply(body: bytes, status: str = "200 OK") -> bytes:
    """Return an answer with a length."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_an_answer_is_its_json_value(tmp_path: Path) -> None:
    """A request goes to the agreed API version and returns the answer's value."""
    async with scripted(tmp_path, lambda _: reply(b'{"Id":"x"}')) as (client, script):
        found = await client.inspect("x")

        assert ({"Id": "x"}, "GET /v1.41/containers/x/json HTTP/1.1") == (found, script.seen[-1])


async def test_an_engine_error_keeps_status_and_reason(tmp_path: Path) -> None:
    """The engine's own words reach the classifier."""
    async with scripted(tmp_path, lambda _: reply(b'{"message":"no such thing"}', "404 Not Found")) as (client, _):
        with pytest.raises(EngineError) as caught:
            await client.inspect("x")

        assert (404, "no such thing", "LAUNCH-028") == (caught.value.status, caught.value.reason, caught.value.id)


async def test_an_error_page_that_is_not_json_is_quoted(tmp_path: Path) -> None:
    """A proxy's or a crashed engine's text is shown, bounded, instead of a parser's complaint."""
    async with scripted(tmp_path, lambda _: reply(b"<html>" + b"x" * 9000, "502 Bad Gateway")) as (client, _):
        with pytest.raises(EngineError) as caught:
            await client.inspect("x")

        assert ("LAUNCH-029", True) == (caught.value.id, len(caught.value.reason) <= 500)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "LAUNCH-006"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "LAUNCH-006"),
        (b"SSH-2.0-x\r\n\r\n", "LAUNCH-006"),
        (reply(b"not json"), "LAUNCH-004"),
        (reply(b'{"a":1,"a":2}'), "LAUNCH-004"),
    ],
)
async def test_a_broken_answer_is_a_platform_error(tmp_path: Path, answer: bytes, expected: str) -> None:
    """An engine that dies or speaks nonsense is never taken for a container's state."""
    async with scripted(tmp_path, lambda _: answer) as (client, script):
        with pytest.raises(PlatformError) as caught:
            await client.start("x")

        assert (expected, 1) == (caught.value.id, sum("start" in line for line in script.seen))


FORM = b'{"name":"/x","read":"0001-01-01T00:00:00Z","cpu_stats":{"cpu_usage":{"total_usage":0}},"memory_stats":{}}'
"""What Docker says of a container that does not run."""


@pytest.mark.parametrize("answer", [b"", b"null", FORM], ids=["no body", "null", "a form without a sample"])
async def test_a_container_that_ends_while_it_is_measured_has_no_figures(tmp_path: Path, answer: bytes) -> None:
    """No answer, and zeros that nobody measured, are no figures and no error; real ones are handed on."""
    sample = b'{"read":"2026-01-01T00:00:00Z","memory_stats":{"usage":7}}'
    async with scripted(tmp_path, lambda line: reply(sample if "/live/" in line else answer)) as (client, _):
        figures = usage.from_stats(await client.stats("ended"))
        control = usage.from_stats(await client.stats("live"))

    assert Usage() == figures
    assert 7 == control.memory_bytes


@pytest.mark.parametrize("answer", [b"", b"null", b"[]", b"3"])
@pytest.mark.parametrize("method", ["inspect", "wait", "image", "create"])
async def test_an_answer_that_is_no_object_is_a_platform_error(tmp_path: Path, method: str, answer: bytes) -> None:
    """An engine that shuts down may end an answer before its first byte: callers see whose fault it is."""
    asked = {"inspect": ("x",), "wait": ("x",), "image": ("x",), "create": ({}, "x")}[method]
    async with scripted(tmp_path, lambda _: reply(answer)) as (client, _):
        with pytest.raises(PlatformError) as caught:
            await getattr(client, method)(*asked)

    assert "LAUNCH-004" == caught.value.id


async def test_an_endless_answer_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded whatever the engine sends."""
    monkeypatch.setattr(engine, "MAX_ANSWER_BYTES", 1000)
    async with scripted(tmp_path, lambda _: reply(b"[" + b"1," * 5000 + b"1]")) as (client, _):
        with pytest.raises(PlatformError) as caught:
            await client.inspect("x")

        assert "LAUNCH-004" == caught.value.id


async def test_a_silent_engine_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request has a deadline."""
    async with scripted(tmp_path, lambda _: None) as (client, _):
        await client.identify()
        with pytest.raises(PlatformError) as caught:
            await client.call("GET", "/info", what="wait", timeout=0.05)

        assert "LAUNCH-005" == caught.value.id


async def test_nothing_listens(tmp_path: Path) -> None:
    """No engine is LAUNCH-001, with the place."""
    with pytest.raises(PlatformError) as caught:
        await Engine(tmp_path / "absent.sock").identify()

    assert ("LAUNCH-001", True) == (caught.value.id, "absent.sock" in caught.value.message)


async def test_attach_refuses_bytes_before_the_start(tmp_path: Path) -> None:
    """A stream that carries something before the container runs is not the container's."""
    upgraded = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\nearly"
    async with scripted(tmp_path, lambda _: upgraded) as (client, _):
        with pytest.raises(EngineError):
            await client.attach("x")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.40", "LAUNCH-003"), ("", "LAUNCH-004"), ("x.y", "LAUNCH-004"), ("1.41.0", "LAUNCH-004")],
)
async def test_an_engine_that_cannot_be_held_to_the_baseline_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, expected: str
) -> None:
    """An engine too old for a private cgroup namespace, or no engine at all, is refused at once."""
    monkeypatch.setitem(
        globals(), "PING", f"HTTP/1.1 200 OK\r\nApi-Version: {version}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    async with scripted(tmp_path, lambda _: b"") as (client, _):
        with pytest.raises(PlatformError) as caught:
            await client.identify()

        assert expected == caught.value.id


async def test_a_newer_engine_is_spoken_to_in_the_newest_known_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version whose semantics nobody read is not used."""
    ping = b"HTTP/1.1 200 OK\r\nApi-Version: 1.99\r\nLibpod-Api-Version: 5.0\r\nContent-Length: 0\r\n\r\n"
    monkeypatch.setitem(globals(), "PING", ping)
    async with scripted(tmp_path, lambda _: b"") as (client, _):
        identity = await client.identify()

        assert ("podman", "1.47") == (identity.kind, identity.api_version)


@pytest.mark.parametrize("host", ["tcp://127.0.0.1:2375", "ssh://someone@host", "npipe://x", "unix://relative", "/a/b"])
async def test_plain_tcp_and_other_ways_to_an_engine_are_refused(host: str) -> None:
    """An engine's API over TCP is root access for whoever reaches the port."""
    with pytest.raises(PlatformError) as caught:
        discover.candidates({"DOCKER_HOST": host})

    assert "LAUNCH-002" == caught.value.id


async def test_docker_host_alone_counts_when_it_is_set(tmp_path: Path) -> None:
    """A socket that was named is not replaced by another one."""
    with pytest.raises(PlatformError) as caught:
        await discover.connect({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})

    assert ("LAUNCH-001", False) == (caught.value.id, "/var/run/docker.sock" in caught.value.message)


async def test_podman_is_the_fallback() -> None:
    """Docker's sockets come first, Podman's after them."""
    found = discover.candidates({"XDG_RUNTIME_DIR": "/run/user/7"})

    assert [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/user/7/docker.sock",
        "/run/user/7/podman/podman.sock",
        "/run/podman/podman.sock",
    ] == list(found)

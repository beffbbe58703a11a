"""A client of the dialect in front of a real gateway: descriptors kept by ETag, arguments checked, jobs waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.cache import MAX_BYTES, ManifestCache
from sandbox.dialect.client import Client, Notice
from sandbox.dialect.links import HttpLink, Reply
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.validate import Asked, validate
from sandbox.errors import CallRefused, ServerFault
from tests.dialect_lab import OPEN, dialect_lab

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def client(folder: Path, **more: Any) -> AsyncIterator[tuple[Client, Any, list[Notice]]]:
    """Yield a client of a gateway, the laboratory, and what the client tells."""
    told: list[Notice] = []
    async with dialect_lab(folder) as lab:
        link = HttpLink(lab.stage.url + OPEN, http=lab.stage.client)
        yield Client(link, notice=told.append, **more), lab, told


async def test_a_client_calls_a_tool_and_tells_each_step(tmp_path: Path) -> None:
    """Handshake, descriptor, call, each timed; the server was called once with the arguments."""
    async with client(tmp_path) as (one, lab, told):
        agreed = await one.connect()
        result = await one.call("tool", {"a": 1})

    assert ("2025-11", "same", 1) == (agreed.version, agreed.how, result["a"])
    assert [{"a": 1}] == lab.stage.server.calls
    assert ["handshake", "descriptor", "call"] == [one.what for one in told]
    assert all(one.ok and one.milliseconds > 0 for one in told)


async def test_a_job_is_waited_for(tmp_path: Path) -> None:
    """An asynchronous call gives what the synchronous one gives, and can be resumed by its id in another client."""
    async with client(tmp_path) as (one, lab, told):
        await one.connect()
        result = await one.call("tool", {"a": 2}, mode="async")
        handle = await one.submit("tool", {"a": 3}, mode="async")
        other = Client(HttpLink(lab.stage.url + OPEN, http=lab.stage.client))
        later = await other.resume(str(handle.job_id))

    assert (2, 3) == (result["a"], later["a"])
    assert "poll" in {one.what for one in told}


async def test_a_kept_descriptor_is_asked_for_by_its_etag(tmp_path: Path) -> None:
    """A second run sends the ETag, gets 304 without a body, and uses what is kept; the file is private."""
    place = tmp_path / "cache" / "descriptors.json"
    seen: list[Reply] = []

    class Watching(HttpLink):
        async def file(self, path: str, etag: str = "") -> Reply:
            reply = await super().file(path, etag)
            seen.append(reply)
            return reply

    async with dialect_lab(tmp_path) as lab:
        for _ in range(2):
            one = Client(Watching(lab.stage.url + OPEN, http=lab.stage.client), cache=ManifestCache(place))
            await one.connect()
            await one.descriptor("tools/tool.json")

    assert [(200, True), (304, False)] == [(reply.status, bool(reply.data)) for reply in seen]
    assert 0o600 == place.stat().st_mode & 0o777


@pytest.mark.parametrize("how", ["writable", "link", "damaged", "odd"])
async def test_a_cache_that_somebody_else_could_write_is_not_used(tmp_path: Path, how: str) -> None:
    """What is not this user's private file, or no cache, keeps nothing; the same file in order does."""
    place = tmp_path / "descriptors.json"
    ManifestCache(place).keep("s", "p", '"e"', {"tool_id": "t"})
    assert ManifestCache(place).find("s", "p") is not None
    if how == "writable":
        place.chmod(0o666)
    elif how == "link":
        place.rename(tmp_path / "elsewhere")
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.write_text("{" if how == "damaged" else '{"s\\np": {"etag": 1}}')

    assert ManifestCache(place).find("s", "p") is None


async def test_arguments_that_do_not_fit_are_not_sent() -> None:
    """The descriptor's schema decides before anything goes out; what fits is sent."""
    described = Reply(200, {"tool_id": "t", "input_schema": {"required": ["a"]}}, {"etag": '"e"'})
    link = Scripted(described, described, Reply(200, {"request_id": None, "status": "success"}))
    with pytest.raises(CallRefused, match="DIA-051"):
        await Client(link).call("t", {})
    with pytest.raises(ServerFault, match="another request"):
        await Client(link).call("t", {"a": 1})

    assert [("tools/t.json", ""), ("tools/t.json", "")] == link.sent[:2]
    assert {"a": 1} == link.sent[2]["arguments"]


async def test_a_tool_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The server's refusal of a descriptor arrives in its words."""
    async with client(tmp_path) as (one, _, _told):
        await one.connect()
        with pytest.raises(DialectRefused, match="no such file"):
            await one.call("nothing", {})


class Scripted:
    """A link that answers from a list, for what a good server does not do."""

    transport = "http"

    def __init__(self, *replies: Reply) -> None:
        self.replies, self.sent = list(replies), []  # type: ignore[var-annotated]

    async def handshake(self, body: Any) -> Reply:
        """Answer with the next reply."""
        self.sent.append(body)
        return self.replies.pop(0)

    invoke = handshake

    async def job(self, job: str) -> Reply:
        """Answer with the next reply."""
        return await self.handshake(job)

    async def file(self, path: str, etag: str = "") -> Reply:
        """Answer with the next reply."""
        return await self.handshake((path, etag))


def apart(*supported: str) -> Reply:
    """Return the refusal of a handshake that names what is spoken."""
    return Reply(400, {"status": "error", "error": {"message": "apart", "supported": list(supported)}})


async def test_a_client_steps_down_to_what_an_old_server_speaks() -> None:
    """A server two releases back is asked again in a release that it names; a client that rejects says why."""
    old = Reply(200, {"version": "2025-03", "capabilities": []})
    link = Scripted(apart("2024-11", "2025-03"), old)
    agreed = await Client(link).connect()
    with pytest.raises(DialectRefused, match="apart"):
        await Client(Scripted(apart("2024-11", "2025-03")), on_mismatch="reject").connect()

    assert (("2025-03", "downgraded"), ["2025-11", "2025-03"]) == (
        (agreed.version, agreed.how),
        [one["version"] for one in link.sent],
    )


async def test_a_client_keeps_to_the_servers_limit() -> None:
    """With nothing remaining, the next call waits for the window that the server named, or fails where that is long."""
    answer = {"status": "success", "result": 1, "metadata": {"duration_ms": 0, "tokens_used": 0}}

    class Echo(Scripted):
        async def handshake(self, body: Any) -> Reply:
            self.sent.append(body)
            return Reply(200, {**answer, "request_id": body["request_id"]}, {"x-mcp-limit": self.replies[0]})

        invoke = handshake

    told: list[Notice] = []
    brief = Client(Echo("limit=1;window=1;remaining=0"), notice=told.append)  # type: ignore[arg-type]
    for _ in range(2):
        await brief.submit("t", {})
    long = Client(Echo("limit=1;window=600;remaining=0"))  # type: ignore[arg-type]
    await long.submit("t", {})
    with pytest.raises(CallRefused, match="DIA-052"):
        await long.submit("t", {})

    assert ["call", "wait", "call"] == [one.what for one in told]


async def test_an_answer_to_another_request_is_not_taken() -> None:
    """A server that mixes up requests is told apart from one that answers."""
    other = {"request_id": "00000000-0000-4000-8000-000000000000", "status": "success", "result": 1}
    with pytest.raises(ServerFault, match="DIA-053"):
        await Client(Scripted(Reply(200, other))).submit("t", {})


async def test_our_own_server_passes_every_check(tmp_path: Path) -> None:
    """`validate` finds nothing wrong with this gateway over HTTP, a call and a job among the checks."""
    async with dialect_lab(tmp_path) as lab:
        link = HttpLink(lab.stage.url + OPEN, http=lab.stage.client)
        found = await asyncio.wait_for(validate(link, Asked(tool="tool", arguments={"a": 1})), 60)

    assert {"arguments": "no schema refuses anything"} == {
        one.check: one.message for one in found if one.outcome != "pass"
    }


def test_a_place_that_others_can_foresee_is_not_written_through(tmp_path: Path) -> None:
    """Attack: somebody puts files where the cache is about to be written; none is filled, and the cache is private."""
    place = tmp_path / "mcp_cache.json"
    foreseen = place.with_name(f".{place.name}.{os.getpid()}")
    foreseen.touch(mode=0o644)
    with foreseen.open("rb") as watching:  # by whoever put it there
        ManifestCache(place).keep("server", "tools/a.json", '"1"', {"secret": "plan"})
        overheard = watching.read()

    assert (b"", 0o600) == (overheard, stat.S_IMODE(place.stat().st_mode))
    assert ('"1"', {"secret": "plan"}) == ManifestCache(place).find("server", "tools/a.json")
    assert {place.name, foreseen.name} == {one.name for one in tmp_path.iterdir()}


def test_a_cache_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """Attack: a FIFO in the cache's place; nothing is kept of it, and nobody waits."""
    place = tmp_path / "mcp_cache.json"
    os.mkfifo(place)
    made: list[ManifestCache] = []
    thread = threading.Thread(target=lambda: made.append(ManifestCache(place)), daemon=True)
    thread.start()
    thread.join(30)
    assert [None] == [one.find("server", "tools/a.json") for one in made]


def test_a_cache_never_grows_beyond_what_is_read_again(tmp_path: Path) -> None:
    """Attack: a server with endless large descriptors; the file stays within its bound and has the newest."""
    place = tmp_path / "mcp_cache.json"
    cache = ManifestCache(place)
    big = {"text": "x" * (3 * 1024 * 1024)}
    for number in range(12):
        cache.keep("server", f"tools/{number}.json", '"1"', big)

    assert place.stat().st_size <= MAX_BYTES
    assert ('"1"', big) == ManifestCache(place).find("server", "tools/11.json")

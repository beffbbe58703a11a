"""The registry of the dialect: whose a registration is, how long it holds, and that nothing of it is ever used."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sandbox.cli.gateway import dialect as wiring
from sandbox.cli.gateway.dialect import Dialect, speaking
from sandbox.cli.gateway.registering import TOKEN, add_registry, own_entries, publishing
from sandbox.dialect import registrations as module
from sandbox.dialect.bounds import MAX_MESSAGE
from sandbox.dialect.links import HttpLink
from sandbox.dialect.registrar import Registrar, address
from sandbox.dialect.registrations import SCOPE, Registrations
from sandbox.dialect.site import Site
from sandbox.errors import UsageError
from sandbox.serve.ratelimit import Rate
from tests.dialect_lab import ALL, CLOSED, OPEN, DialectLab, invocation, shake, until
from tests.gateway_lab import lab

pytestmark = pytest.mark.anyio

PLACE = CLOSED + "/registry/"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def hub(folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock | None = None) -> AsyncIterator[DialectLab]:
    """Open a gateway that keeps registrations."""

    def add(site: Site) -> Registrations:
        return add_registry(site, Registrations(site.app.gateway.scope, clock) if clock else None)

    monkeypatch.setattr(wiring, "add_registry", add)
    known = Dialect("com.hub", folder / "hub.sqlite", Rate(1000, 1000), lambda _name: True, registry=True)
    async with lab(speaks=lambda app: speaking(app, known), sockets=MAX_MESSAGE) as stage:
        yield DialectLab(stage)


def entry(name: str = "org.example/files", **more: Any) -> dict[str, Any]:
    """Return a registration."""
    return {
        "server_id": name, "version": "1.0.0", "endpoint": "https://files.example.org/mcp", "tools": ["read"],
        "auth": "bearer", "capabilities": ["async"], "ttl": 60, "visibility": "public", **more,
    }  # fmt: skip


def token(at: DialectLab, who: str = "alice", scope: str = SCOPE, **more: Any) -> str:
    """Return a token, by default one with which servers may be registered."""
    return at.stage.token(sub=who, scope=scope, **more)


async def names(at: DialectLab, holder: str) -> list[str]:
    """Return the names that a holder sees."""
    return [one["server_id"] for one in (await at.send("GET", PLACE, token=holder)).json()["servers"]]


async def test_a_registration_is_told_as_unreviewed_until_it_is_not_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what was sent, renewed by sending it again, and gone with its time; first word and end are recorded."""
    clock = Clock()
    async with hub(tmp_path, monkeypatch, clock) as at:
        alice = token(at)
        first = await at.send("POST", PLACE, entry(), alice)
        clock.now += 50
        await at.send("PUT", PLACE + "org.example/files", entry(), alice)
        clock.now += 50
        still = await at.send("GET", PLACE + "org.example/files", token=alice)
        clock.now += 10
        gone = await at.send("GET", PLACE + "org.example/files", token=alice)
        offered = (await at.send("GET", CLOSED + "/metadata", token=alice)).json()["capabilities"]
        facts = [fact.name for fact in at.stage.recorder.facts if fact.name.startswith("registry.")]

    assert (200, {**entry(), "review": "unreviewed", "expires_in": 60}) == (first.status_code, first.json())
    assert 10 == still.json()["expires_in"]
    assert (404, "DIA-074") == (gone.status_code, gone.json()["error"]["id"])
    assert ["registry.register", "registry.expire"] == facts
    assert "registry" in offered


@pytest.mark.claim("P-DIA-21")
@pytest.mark.parametrize("other", [{"who": "mallory"}, {"who": "alice", "tenant": "other"}], ids=["subject", "tenant"])
async def test_nobody_touches_or_sees_what_is_another_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    """A private one does not exist for others and a public one can only be read; its holder may do each of it."""
    async with hub(tmp_path, monkeypatch) as at:
        alice, mallory = token(at), token(at, **other)
        await at.send("POST", PLACE, entry(), alice)
        await at.send("POST", PLACE, entry("org.example/own", visibility="private"), alice)
        false = entry(endpoint="https://false.example")
        replaced = await at.send("PUT", PLACE + "org.example/files", false, mallory)
        removed = await at.send("DELETE", PLACE + "org.example/files", token=mallory)
        hidden = await at.send("GET", PLACE + "org.example/own", token=mallory)
        beside = await at.send("POST", PLACE, entry("org.example/own", visibility="private", tools=[]), mallory)
        seen = await names(at, mallory)
        kept = (await at.send("GET", PLACE + "org.example/files", token=mallory)).json()
        own = (await at.send("GET", PLACE + "org.example/own", token=alice)).json()
        both = await names(at, alice)
        control = await at.send("DELETE", PLACE + "org.example/files", token=alice)

    assert (409, "DIA-073") == (replaced.status_code, replaced.json()["error"]["id"])
    assert [(404, "DIA-074")] * 2 == [(one.status_code, one.json()["error"]["id"]) for one in (removed, hidden)]
    assert (200, ["org.example/files", "org.example/own"]) == (beside.status_code, seen)
    assert ("https://files.example.org/mcp", ["read"]) == (kept["endpoint"], own["tools"])
    assert (["org.example/files", "org.example/own"], 200) == (both, control.status_code)


async def test_registering_needs_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has another scope may look, a stranger may look where the endpoint is open, and neither may register."""
    async with hub(tmp_path, monkeypatch) as at:
        other = token(at, scope="mcp-sandbox:admin")
        refused = [
            await at.send("POST", PLACE, entry(), other),
            await at.send("DELETE", PLACE + "org.example/files", token=other),
            await at.send("POST", OPEN + "/registry/", entry()),
        ]
        nobody = await at.send("POST", PLACE, entry())
        looked = await at.send("GET", OPEN + "/registry/")
        allowed = await at.send("POST", PLACE, entry(), token(at))

    assert [(403, "DIA-070")] * 3 == [(one.status_code, one.json()["error"]["id"]) for one in refused]
    assert (401, {"servers": []}, 200) == (nobody.status_code, looked.json(), allowed.status_code)


WRONG: list[dict[str, Any]] = [
        {"endpoint": "file:///etc/passwd"}, {"endpoint": "javascript:alert(1)"}, {"endpoint": "https://a:b@c/"},
        {"endpoint": "https://x/\u202egpj"}, {"endpoint": "https://x/\n"}, {"endpoint": ""}, {"endpoint": "https://[x"},
        {"endpoint": "https://x/" + "a" * 3000}, {"tools": ["a\u200bb"]}, {"tools": ["a b"]}, {"tools": ["x"] * 257},
        {"tools": ["x" * 128] * 200}, {"server_id": "../x"}, {"server_id": "a/b/c"}, {"server_id": "ünï"},
        {"version": ""}, {"auth": "basic"}, {"ttl": 1}, {"ttl": 10**9}, {"ttl": 60.5}, {"more": 1}, {"version": None},
]  # fmt: skip


async def test_what_does_not_fit_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden text, other schemes, sizes and unknown members are refused; the same entry in order is kept."""
    async with hub(tmp_path, monkeypatch) as at:
        alice = token(at)
        refused = [await at.send("POST", PLACE, {**entry(), **wrong}, alice) for wrong in WRONG]
        elsewhere = await at.send("PUT", PLACE + "another/name", entry(), alice)
        left = await names(at, alice)
        await at.send("POST", PLACE, entry(), alice)
        control = await names(at, alice)

    assert [] == [wrong for wrong, one in zip(WRONG, refused, strict=True) if one.status_code != 400]
    assert {"DIA-004", "DIA-071"} == {one.json()["error"]["id"] for one in refused}
    assert "DIA-071" == elsewhere.json()["error"]["id"]
    assert ([], ["org.example/files"]) == (left, control)


async def test_registrations_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant at its bound renews what it has and adds nothing; another tenant adds until all are full."""
    monkeypatch.setattr(module, "MAX_OF_TENANT", 2)
    monkeypatch.setattr(module, "MAX_REGISTRATIONS", 3)
    async with hub(tmp_path, monkeypatch) as at:
        alice, other = token(at), token(at, tenant="other")
        said = [await at.send("POST", PLACE, entry(f"a/{n}"), alice) for n in (1, 2, 3, 1)]
        said += [await at.send("POST", PLACE, entry(f"b/{n}"), other) for n in (1, 2)]

    assert [200, 200, 429, 200, 200, 429] == [one.status_code for one in said]


@pytest.mark.claim("P-DIA-21")
async def test_nothing_that_was_registered_is_ever_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of this very machine is only text: nobody connects to it, and its tools are none of ours."""
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.setblocking(False)
        where = f"http://127.0.0.1:{inner.getsockname()[1]}/latest/meta-data"
        async with hub(tmp_path, monkeypatch) as at:
            alice = token(at)
            before = (await at.send("GET", ALL + "/tools/")).json()
            kept = await at.send("POST", PLACE, entry(endpoint=where, tools=["stolen"]), alice)
            told = await at.send("GET", PLACE + "org.example/files", token=alice)
            session = (await at.send("POST", CLOSED + "/handshake", shake(), alice)).json()["session"]
            called = await at.send("POST", CLOSED + "/invoke", invocation(session, tool="stolen"), alice)
            after = (await at.send("GET", ALL + "/tools/")).json()
            register = await at.send("GET", "/v0.1/servers")
            started = at.stage.server.starts
        with pytest.raises(BlockingIOError):
            inner.accept()
        with socket.create_connection(inner.getsockname()):  # the control: a connection would have been seen
            inner.accept()[0].close()

    assert (200, where) == (kept.status_code, told.json()["endpoint"])
    assert ("DIA-012", before) == (called.json()["error"]["id"], after)
    assert "org.example" not in register.text
    assert started <= 2


async def test_what_cannot_be_recorded_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the trail there is no registration; with it the same one is taken."""
    async with hub(tmp_path, monkeypatch) as at:
        alice = token(at)
        at.stage.recorder.fails_at = frozenset(("registry.register",))
        refused = await at.send("POST", PLACE, entry(), alice)
        at.stage.recorder.fails_at = frozenset()
        left = await names(at, alice)
        taken = await at.send("POST", PLACE, entry(), alice)

    assert (500, [], 200) == (refused.status_code, left, taken.status_code)


async def test_without_the_switch_there_is_no_registry(tmp_path: Path) -> None:
    """Neither the path nor the capability."""
    known = Dialect("com.hub", tmp_path / "jobs.sqlite", Rate(1000, 1000), lambda _name: True)
    async with lab(speaks=lambda app: speaking(app, known), sockets=MAX_MESSAGE) as stage:
        at = DialectLab(stage)
        none = await at.send("POST", PLACE, entry(), token(at))
        agreed = await at.send("POST", OPEN + "/handshake", shake())

    assert (404, False) == (none.status_code, "registry" in agreed.json()["capabilities"])


# --- the other side -------------------------------------------------------------------------------------------------
async def test_a_gateway_registers_what_it_tells_strangers_and_removes_it_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its public server appears at the other gateway with its address, and is gone after an orderly end."""
    said: list[str] = []
    async with hub(tmp_path, monkeypatch) as at, lab() as own:
        monkeypatch.setenv(TOKEN, token(at))
        given = argparse.Namespace(register=at.stage.url + PLACE)
        monkeypatch.setattr("sandbox.cli.gateway.registering.say", said.append)
        async with publishing(given, own.app, "com.example", own.url, lambda _door: ("stream",)):
            await until(lambda: bool(said))
            (found,) = (await at.send("GET", PLACE, token=token(at, "reader", ""))).json()["servers"]
        left = await names(at, token(at))
        recorded = [fact for fact in own.recorder.facts if fact.name == "registry.publish"]

    assert ("com.example/open", f"{own.url}{OPEN}", ["tool"], "none", ["stream"], "unreviewed") == tuple(
        found[name] for name in ("server_id", "endpoint", "tools", "auth", "capabilities", "review")
    )
    assert ([], ["ok"]) == (left, [fact.attrs["status"] for fact in recorded])


async def test_a_killed_registrar_s_entries_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it renews, nothing expires; when it says nothing any more, all of it does."""
    clock, rounds = Clock(), 0
    async with hub(tmp_path, monkeypatch, clock) as at, lab() as own:
        holder = token(at)
        stopped = asyncio.Event()

        async def wait(seconds: float) -> None:
            nonlocal rounds
            rounds += 1
            clock.now += seconds
            if rounds == 4:
                stopped.set()
                await asyncio.Event().wait()

        async with HttpLink(at.stage.url + PLACE, holder) as link:
            entries = own_entries(own.app, "com.example", own.url, lambda _door: ())
            registrar = Registrar(link, lambda: entries, own.app.gateway.scope, lambda _text: None, wait)
            task = asyncio.create_task(registrar._rounds())
            await asyncio.wait_for(stopped.wait(), 15)
            renewed = await names(at, holder)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            clock.now += 300
            left = await names(at, holder)

    assert (["com.example/open"], []) == (renewed, left)


async def test_a_failing_registry_is_told_once_and_tried_ever_later(tmp_path: Path) -> None:
    """Silence, refusals and nonsense are one line and one record; what works again is told too; nothing is raised."""
    answers = [httpx2.ConnectError("down"), 403, 500, b"nonsense", 200, 200]
    said: list[str] = []
    pauses: list[float] = []
    done = asyncio.Event()

    def answer(request: httpx2.Request) -> httpx2.Response:
        one = answers.pop(0)
        if isinstance(one, Exception):
            raise one
        return httpx2.Response(502, content=one) if isinstance(one, bytes) else httpx2.Response(one, json={})

    async def wait(seconds: float) -> None:
        pauses.append(seconds)
        if not answers:
            done.set()
            await asyncio.Event().wait()

    async with lab() as own, httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        entries = own_entries(own.app, "com.example", own.url, lambda _door: ())
        link = HttpLink("https://hub.example/registry", "t", http)
        registrar = Registrar(link, lambda: entries, own.app.gateway.scope, said.append, wait)
        task = asyncio.create_task(registrar._rounds())
        await asyncio.wait_for(done.wait(), 15)
        running = not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        recorded = [fact.attrs["status"] for fact in own.recorder.facts if fact.name == "registry.publish"]

    assert (True, ["failed", "ok"], 2) == (running, recorded, len(said))
    assert all(0.8 * most <= pause <= most for most, pause in zip((2, 4, 8, 16, 150, 150), pauses, strict=True)), pauses


async def test_no_token_goes_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses without TLS beyond this machine, with users or no hosts are refused at the start, as is no token."""
    for url in (
        "http://hub.example/r",
        "ftp://hub.example",
        "https://u:p@hub.example/",
        "https://",
        "",
        "https://h/?a",
    ):
        with pytest.raises(UsageError, match="DIA-075"):
            address(url)
    assert ["https://hub.example/r", "http://127.0.0.1:1/r"] == [
        address(url) for url in ("https://hub.example/r/", "http://127.0.0.1:1/r")
    ]
    monkeypatch.delenv(TOKEN, raising=False)
    async with lab() as own:
        given = argparse.Namespace(register="https://hub.example/r")
        with pytest.raises(UsageError, match="DIA-075"):
            await publishing(given, own.app, "com.example", own.url, lambda _door: ()).__aenter__()

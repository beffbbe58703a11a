"""TLS that ends at the gateway: what it speaks, what its files must be, and what happens when they change."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import warnings
from pathlib import Path

import httpx2
import pytest
from OpenSSL import SSL

from sandbox.cli import main
from sandbox.cli.gateway import listening as server_module
from sandbox.cli.gateway.config import GatewayConfig, TlsConfig, check_exposure, load_config
from sandbox.cli.gateway.listening import listening, serve_on, server_of
from sandbox.cli.gateway.tls import tls_of
from sandbox.errors import UsageError
from sandbox.events import Scope, Trace
from sandbox.serve.identity import handshake
from sandbox.testing.memory import MemoryRecorder
from tests.gateway_lab import SECRET, call, lab, modern
from tests.tls_kit import Authority, authority, holder, trusting

PIN = "sha256/" + "A" * 43 + "="
TLS = "[tls]\ncertificate = 'c'\nkey = 'k'\n"
ALLOW_CLIENT_RENEGOTIATION = 1 << 8
"""OpenSSL's option of that name, which pyOpenSSL does not name."""

both_loops = pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {"use_uvloop": False}), ("asyncio", {"use_uvloop": True})],
    ids=["asyncio", "uvloop"],
)


def own_tls(files: Authority, recorder: MemoryRecorder | None = None, *, asks: bool = False) -> ssl.SSLContext:
    """Return what a gateway of a test speaks TLS with."""
    scope = Scope(recorder or MemoryRecorder(), Trace.new())
    return tls_of(TlsConfig(str(files.cert), str(files.key)), scope, asks=asks)


def shaken(url: str, context: ssl.SSLContext) -> tuple[str | None, str | None]:
    """Return version of TLS and protocol that a client agrees on with a gateway."""
    host, _, port = url.removeprefix("https://").partition(":")
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as made,
    ):
        return made.version(), made.selected_alpn_protocol()


@both_loops
@pytest.mark.anyio
async def test_old_versions_and_plain_http_get_nothing(tmp_path: Path) -> None:
    """TLS 1.2 and 1.3 are spoken; 1.1, weak ciphers and HTTP in the clear are not."""
    files = authority(tmp_path, "127.0.0.1")
    async with lab(tls=own_tls(files), trust=trusting(files)) as stage:
        spoken = {}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(files)
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            spoken[version] = await asyncio.to_thread(shaken, stage.url, context)
        for version, ciphers in ((ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"), (ssl.TLSVersion.TLSv1_2, "AES256-SHA")):
            weak = trusting(files)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                weak.minimum_version = weak.maximum_version = version
            weak.set_ciphers(ciphers)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.to_thread(shaken, stage.url, weak)
        async with httpx2.AsyncClient(timeout=10, trust_env=False) as plain:
            with pytest.raises(httpx2.TransportError):
                await plain.get(stage.url.replace("https", "http") + "/healthz")
        opened = await stage.initialize()

    assert ["TLSv1.2", "TLSv1.3"] == [version for version, _ in spoken.values()]
    assert {"http/1.1"} == {protocol for _, protocol in spoken.values()}
    assert 200 == opened.status_code


@both_loops
@pytest.mark.anyio
async def test_both_eras_work_over_tls_with_large_messages(tmp_path: Path) -> None:
    """Sessions and single requests, many records of TLS in both directions at once: every byte arrives."""
    files = authority(tmp_path, "127.0.0.1")
    big = "x" * 50_000
    async with lab(tls=own_tls(files, asks=True), trust=trusting(files, holder(tmp_path, "any"))) as stage:
        headers = await stage.session("/mcp/closed", stage.token())
        many = [call(n, text=f"{n:05}" * 2_000) for n in range(6)]
        answers = await asyncio.gather(*(stage.post("/mcp/closed", one, stage.token(), **headers) for one in many))
        body, own = modern("tools/call", {"name": "tool", "arguments": {"text": big}})
        alone = await stage.post("/mcp/open", body, **own)

    assert [True] * 6 == [f"{n:05}" * 2_000 in answer.text for n, answer in enumerate(answers)]
    assert big in alone.text
    assert SECRET in alone.text


@both_loops
@pytest.mark.anyio
async def test_noise_broken_handshakes_and_renegotiation_take_nothing_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage, half a handshake, a cut connection: closed alone. A second handshake on a connection is refused."""
    files = authority(tmp_path, "127.0.0.1")
    with monkeypatch.context() as weakened:
        weakened.setattr(handshake, "OPTIONS", ALLOW_CLIENT_RENEGOTIATION)
        weak = own_tls(files)
    async with lab(tls=weak, trust=trusting(files)) as stage:
        control = await asyncio.to_thread(renegotiated, ("127.0.0.1", int(stage.url.rpartition(":")[2])))
    async with lab(tls=own_tls(files, asks=True), trust=trusting(files)) as stage:
        address = ("127.0.0.1", int(stage.url.rpartition(":")[2]))
        for noise in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(5000), b"\x16\x03\x01\x02\x00\x01", b"\x16\x03"):
            with contextlib.suppress(ConnectionError):
                await asyncio.to_thread(sent, address, noise)
        again = await asyncio.to_thread(renegotiated, address)
        idle = [socket.create_connection(address) for _ in range(50)]
        opened = await stage.initialize()
        for one in idle:
            one.close()

    assert (True, False) == (control, again)
    assert 200 == opened.status_code


@both_loops
@pytest.mark.anyio
async def test_a_handshake_that_does_not_go_on_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects and says nothing is cut off in the time that a head has; who speaks is not."""
    monkeypatch.setattr(server_module, "HEAD_TIMEOUT", 1.0)
    files = authority(tmp_path, "127.0.0.1")
    async with lab(tls=own_tls(files), trust=trusting(files)) as stage:
        address = ("127.0.0.1", int(stage.url.rpartition(":")[2]))
        silent, half = await asyncio.gather(
            asyncio.to_thread(sent, address, b"", ends=False),
            asyncio.to_thread(sent, address, b"\x16\x03\x01\x02\x00\x01", ends=False),
        )
        opened = await stage.initialize()

    assert b"" == silent == half
    assert 200 == opened.status_code


def sent(address: tuple[str, int], noise: bytes, *, ends: bool = True) -> bytes:
    """Send bytes that are no TLS and close the sending side if asked to; return what comes back until the end."""
    with socket.create_connection(address, timeout=10) as plain:
        plain.sendall(noise)
        if ends:
            plain.shutdown(socket.SHUT_WR)
        return plain.recv(4096)


def renegotiated(address: tuple[str, int]) -> bool:
    """Return whether a client of TLS 1.2 gets a second handshake on its connection."""
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    with socket.create_connection(address, timeout=5) as plain:
        plain.setblocking(True)
        made = SSL.Connection(context, plain)
        made.set_connect_state()
        made.do_handshake()
        made.renegotiate()
        try:
            made.do_handshake()
        except SSL.Error:
            return False
        return True


@pytest.mark.anyio
async def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(tmp_path: Path) -> None:
    """New connections see the new files; half-written ones are recorded and the certificate before goes on."""
    (tmp_path / "new").mkdir()
    files, renewed, recorder = (
        authority(tmp_path, "127.0.0.1"),
        authority(tmp_path / "new", "127.0.0.1"),
        MemoryRecorder(),
    )
    kept = shutil.copy(files.bundle, tmp_path / "kept.pem")
    before = Authority(Path(kept), files.cert, files.key)
    async with lab(tls=own_tls(files, recorder), trust=trusting(files)) as stage:
        first = await asyncio.to_thread(shaken, stage.url, trusting(before))
        files.cert.write_text("-----BEGIN CERTIFICATE-----\nhalf")
        broken = await asyncio.to_thread(shaken, stage.url, trusting(before))
        await asyncio.to_thread(shaken, stage.url, trusting(before))
        for source, target in ((renewed.cert, files.cert), (renewed.key, files.key)):
            source.replace(target)
        after = await asyncio.to_thread(shaken, stage.url, trusting(renewed))
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(shaken, stage.url, trusting(before))

    assert first == broken == after
    assert ["CLI-200", ""] == [fact.attrs["reason"] for fact in recorder.facts if fact.name == "gateway.tls"]


@pytest.mark.anyio
async def test_strict_transport_is_said_under_a_public_name_only(tmp_path: Path) -> None:
    """A browser that met the gateway on loopback must not refuse everything else there for a year."""
    files, said = authority(tmp_path, "127.0.0.1"), []

    async def page(_scope: object, _receive: object, send: object) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})  # type: ignore[operator]
        await send({"type": "http.response.body"})  # type: ignore[operator]

    for named in (True, False):
        listener = listening(("127.0.0.1", 0))
        server = server_of(page, own_tls(files), named=named)  # type: ignore[arg-type]
        serving = asyncio.create_task(serve_on(server, listener))
        async with httpx2.AsyncClient(verify=trusting(files), trust_env=False) as client:
            answer = await client.get(f"https://127.0.0.1:{listener.getsockname()[1]}/")
        said.append(answer.headers.get("strict-transport-security"))
        server.should_exit = True
        await serving

    assert ["max-age=31536000", None] == said


@pytest.mark.parametrize(
    ("spoil", "number"),
    [
        (lambda files: files.cert.unlink(), "CLI-200"),
        (lambda files: files.cert.write_text("nothing"), "CLI-200"),
        (lambda files: files.key.write_bytes(holder(files.key.parent, "x").key.read_bytes()), "CLI-200"),
        (lambda files: files.key.chmod(0o644), "CLI-201"),
    ],
    ids=["absent", "no certificate", "another key", "a key for everybody"],
)
def test_files_that_cannot_be_used_stop_the_start(spoil: object, number: str, tmp_path: Path) -> None:
    """They are refused with their names before anything listens."""
    files = authority(tmp_path, "127.0.0.1")
    own_tls(files)
    spoil(files)  # type: ignore[operator]

    with pytest.raises(UsageError, match=number):
        own_tls(files)


def test_serve_names_the_files_that_it_cannot_use(tmp_path: Path) -> None:
    """The command ends with 2 and starts nothing."""
    config = tmp_path / "gateway.toml"
    config.write_text(TLS)
    (tmp_path / "drivers" / "x").mkdir(parents=True)
    (tmp_path / "drivers" / "x" / "DRIVER.md").write_text("---\n---\n")
    audit = ["--audit-dir", str(tmp_path / "audit")]

    assert 2 == main(["serve", str(tmp_path / "drivers"), "--listen", "127.0.0.1:0", "--config", str(config), *audit])


@pytest.mark.parametrize(
    "text",
    [
        f"[[client]]\nkey = '{PIN}'\ntenant = 'a'",
        TLS + f"[[client]]\nkey = '{PIN}'\ntenant = 'anonymous'",
        TLS + f"[[client]]\nkey = '{PIN}'\ntenant = 'a\u200bb'",
        TLS + f"[[client]]\nkey = '{PIN[:-2]}'\ntenant = 'a'",
        TLS + "[[client]]\nkey = 'sha256/AAAA'\ntenant = 'a'",
        TLS + f"[[client]]\nkey = '{PIN[7:]}'\ntenant = 'a'",
        TLS + f"[[client]]\nkey = '{PIN}'\ntenant = 'a'\n" * 2,
        TLS + f"[[client]]\nkey = '{PIN}'\ntenant = 'a'\nscopes = ['a b']",
        "public-url = 'http://localhost:1'\n" + TLS,
        TLS + "verify = false",
    ],
)
def test_clients_and_tls_that_are_not_meant_are_refused(text: str, tmp_path: Path) -> None:
    """A pin without TLS, in another spelling, twice, or for nobody stops the start; the control is read."""
    file = tmp_path / "gateway.toml"
    file.write_text(TLS + f"[[client]]\nkey = '{PIN}'\ntenant = 'a'\nscopes = ['x:y']")
    assert "a" == load_config(file).client[0].tenant
    file.write_text(text)

    with pytest.raises(UsageError, match="CLI-180"):
        load_config(file)


def test_tls_alone_does_not_say_which_name_clients_use() -> None:
    """Beyond loopback the audience of tokens needs the public name, wherever TLS ends."""
    with pytest.raises(UsageError, match="CLI-182"):
        check_exposure(GatewayConfig(tls=TlsConfig("c", "k")), ("0.0.0.0", 443))
    check_exposure(GatewayConfig(tls=TlsConfig("c", "k"), public_url="https://mcp.example.com"), ("0.0.0.0", 443))

"""``[state]`` of ``gateway.toml``: strict, closed by default, and silent about passwords."""

from __future__ import annotations

import asyncio
import builtins
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli.gateway import sharing
from sandbox.cli.gateway.config import GatewayConfig, IssuerConfig, LimitConfig, StateConfig, load_config
from sandbox.errors import UsageError
from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.interface import check_rate
from sandbox.serve.shared.opening import store_of
from sandbox.serve.shared.sqlite import SqliteStore
from tests import stores

HERE = "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ({}, "CLI-195"),
        ({"url": "sqlite:///a", "url_env": "X"}, "CLI-195"),
        ({"url_env": "NOT_SET_ANYWHERE"}, "CLI-195"),
        ({"url": "postgresql://me:hunter2@127.0.0.1/x"}, "CLI-195"),
        ({"url": "postgresql://127.0.0.1/x?password=hunter2"}, "CLI-195"),
    ],
)
def test_a_store_is_named_once_and_without_its_password(state: dict[str, Any], number: str) -> None:
    """A file that many may read holds no password; the message does not repeat it."""
    with pytest.raises(UsageError, match=number) as caught:
        sharing.url_of(StateConfig(**state))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "number"),
    [
        ("", "CLI-195"),
        ("mysql://db/x", "CLI-195"),
        ("sqlite://relative.db", "CLI-195"),
        ("sqlite:///", "CLI-195"),
        ("http://[", "CLI-195"),
        ("postgresql://gw:hunter2@db.example/x", "CLI-199"),
        ("postgresql://gw:hunter2@127.0.0.1,db.example/x", "CLI-199"),
        ("postgresql:///x?host=db.example&password=hunter2", "CLI-199"),
        ("postgresql://127.0.0.1/x?hostaddr=10.0.0.1&password=hunter2", "CLI-199"),
        ("postgresql://gw:hunter2@db.example/x?sslmode=prefer", "CLI-199"),
        ("redis://:hunter2@cache.example/0", "CLI-199"),
    ],
)
def test_a_store_that_cannot_be_trusted_is_refused_without_its_password(url: str, number: str) -> None:
    """What is no store, and what another machine would be asked in the clear."""
    with pytest.raises(UsageError, match=number) as caught:
        store_of(url)
    assert "hunter2" not in str(caught.value)


def test_what_is_encrypted_or_on_this_machine_is_taken() -> None:
    """The control: the same places with TLS, on loopback, or where the operator says so."""
    for url in ("postgresql://db.example/x?sslmode=verify-full", "rediss://cache.example/0", "redis://127.0.0.1/0"):
        assert store_of(url) is not None
    assert store_of("postgresql:///x?host=/run/postgresql") is not None
    assert store_of("redis://cache.example/0", unsafe_clear=True) is not None


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ({"peers": (HERE, "http://gw2.example:80")}, "CLI-199"),
        ({"peers": (HERE, "https://gw2.example/path")}, "CLI-195"),
        ({"peers": (HERE, "file:///etc")}, "CLI-195"),
        ({"peers": ("http://127.0.0.1:9",)}, "CLI-195"),
    ],
)
def test_tokens_are_forwarded_to_named_places_and_never_in_the_clear(state: dict[str, Any], number: str) -> None:
    """Other machines need https, an address is no URL of a page, and this gateway is one of those named."""
    with pytest.raises(UsageError, match=number):
        sharing.check_peers(StateConfig(url="sqlite:///a", **state), HERE)
    named = ("https://gw2.example:8443", HERE)
    sharing.check_peers(StateConfig(url="sqlite:///a", peers=named), HERE)
    clear = ("http://gw2.example:80", HERE)
    sharing.check_peers(StateConfig(url="sqlite:///a", peers=clear, unsafe_clear=True), HERE)


def test_the_address_is_where_it_listens_unless_said() -> None:
    """``http://LISTEN``, IPv6 in brackets, https where the gateway speaks TLS."""
    assert sharing.address_of(StateConfig(), ("127.0.0.1", 8081), tls=False) == HERE
    assert sharing.address_of(StateConfig(), ("::1", 8081), tls=True) == "https://[::1]:8081"
    assert sharing.address_of(StateConfig(address="https://gw1.internal/"), ("::1", 1), tls=False) == (
        "https://gw1.internal"
    )


@pytest.mark.parametrize("text", ["lease = 1", "lease = 3600", "unknown = 1", "peers = ['']"])
def test_keys_of_the_block_are_held_to_their_bounds(text: str, tmp_path: Path) -> None:
    """A lease shorter than the store may take to answer would end sessions for nothing."""
    file = tmp_path / "gateway.toml"
    file.write_text(f"[state]\nurl = 'sqlite:///a'\n{text}\n")
    with pytest.raises(UsageError, match="CLI-180"):
        load_config(file)


def test_limits_that_cannot_be_counted_exactly_are_refused() -> None:
    """A burst that takes centuries to fill is a slip."""
    sharing.check_limits(LimitConfig())
    with pytest.raises(UsageError, match="CLI-195"):
        check_rate(Rate(1e-9, 1000), "calls-per-second")


def test_tokens_are_made_for_the_common_url_and_every_gateways_address_is_taken() -> None:
    """Without a common URL a token would count at one gateway and not where it is forwarded to."""
    issuer = IssuerConfig(url="https://issuer.example")
    with pytest.raises(UsageError, match="CLI-195"):
        sharing.check_audience(GatewayConfig(issuer=(issuer,)))
    sharing.check_audience(GatewayConfig(issuer=(issuer,), public_url="https://mcp.example"))
    sharing.check_audience(GatewayConfig())
    assert sharing.hosts_of(StateConfig(peers=(HERE, "https://gw2.internal"))) == ("127.0.0.1:8081", "gw2.internal")
    assert sharing.hosts_of(None) == ()


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-196, with what to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "sandbox.serve.shared.postgres":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"mcp-sandbox\[postgres\]"):
        store_of("postgresql://127.0.0.1/x")


def opened(path: Path) -> None:
    """Open a file and close it."""

    async def work() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.close()

    asyncio.run(work())


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """It is made with mode 600; a wider one, a link and a folder that is missing are refused."""
    file = tmp_path / "state.db"
    before = os.umask(0)
    try:
        opened(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    with pytest.raises(UsageError, match="CLI-197"):
        opened(file)
    file.chmod(0o600)
    opened(file)
    (tmp_path / "link").symlink_to(file)
    for wrong in (tmp_path / "link", tmp_path / "none" / "state.db", tmp_path):
        with pytest.raises(UsageError, match="CLI-197"):
            opened(wrong)


def test_another_format_and_another_file_are_refused(tmp_path: Path) -> None:
    """What a later version wrote is not guessed at, and what is no database is left alone."""
    import sqlite3

    opened(tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as db:
        db.execute("UPDATE mcps_record SET value = '2' WHERE kind = 'format'")
    db.close()
    with pytest.raises(UsageError, match="another version"):
        opened(tmp_path / "s.db")
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "notes").chmod(0o600)
    with pytest.raises(UsageError, match="CLI-197"):
        opened(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("url", ["postgresql://gw:hunter2@127.0.0.1:9/x", "redis://:hunter2@127.0.0.1:9/0"])
def test_a_server_that_is_not_there_stops_the_start(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-197 within seconds, without the password."""
    module = __import__(f"sandbox.serve.shared.{'postgres' if 'postgres' in url else 'redis'}", fromlist=["x"])
    monkeypatch.setattr(module, "ANSWER_TIMEOUT", 0.3)
    with pytest.raises(UsageError, match="CLI-197") as caught:
        asyncio.run(store_of(url).open())
    assert "hunter2" not in str(caught.value)


def test_a_server_that_forgets_is_refused() -> None:
    """Redis with eviction would forget limits and so admit anew (CLI-198); without it, it is taken."""
    import redis

    with stores.redis() as peer:

        async def work() -> None:
            store = store_of(peer.url)
            await store.open()
            await store.close()

        asyncio.run(work())
        with redis.Redis.from_url(peer.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(UsageError, match="CLI-198"):
            asyncio.run(work())

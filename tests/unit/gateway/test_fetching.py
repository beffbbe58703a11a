"""What issuers are asked for: bounded in time and form, whatever an issuer sends."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from sandbox.cli.gateway import fetching
from sandbox.cli.gateway.config import IssuerConfig
from sandbox.serve.identity.keys import KeySource, read_keys
from sandbox.serve.identity.model import Unauthorized
from tests.gateway_lab import Issuing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@contextlib.asynccontextmanager
async def dripping(every: float) -> AsyncIterator[str]:
    """Listen, and answer with one byte after the other, for ever."""
    answering: set[asyncio.Task[None]] = set()

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{")
            for _ in range(200):
                await asyncio.sleep(every)
                writer.write(b" ")
                await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


async def test_an_issuer_that_answers_byte_by_byte_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: each byte comes in time, the document never; whoever waits is told that nobody can say."""
    monkeypatch.setattr(fetching, "TIMEOUT", 1.0)
    async with dripping(0.2) as url:
        config = IssuerConfig(url=url, jwks_uri=f"{url}/keys")
        source = KeySource(fetching.fetch_of(config), time.monotonic)
        waiting = [asyncio.create_task(source.key("one")) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, timeout=20)
        for task in waiting:
            task.cancel()
        found = [task.exception() for task in done]

    assert len(found) == 3
    assert all(isinstance(one, Unauthorized) and one.id == "GATE-027" for one in found)


@pytest.mark.parametrize(
    "odd",
    [
        {"kty": "RSA", "kid": "odd", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "kid": "odd"},
        {"kty": "EC", "kid": "odd", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "kid": "odd", "crv": ["P-256"], "x": "AA", "y": "AA"},
        {"kty": "OKP", "kid": "odd", "crv": "Ed25519", "x": "!"},
        {"kty": "OKP", "kid": "odd", "crv": "X99", "x": None},
        {"kty": "RSA", "kid": "odd", "n": "AQ", "e": "AA"},
        {"kty": "RSA", "kid": "odd", "alg": {"a": 1}, "n": "AQAB", "e": "AQAB"},
        {"kty": ["RSA"], "kid": "odd"},
    ],
)
def test_one_key_that_cannot_be_read_takes_no_other_away(odd: object) -> None:
    """Keys of a kind that we do not know, and malformed ones, are no keys here; the others go on."""
    good = Issuing().jwks()["keys"]

    assert [one["kid"] for one in good] == sorted(read_keys({"keys": [odd, *good]}))

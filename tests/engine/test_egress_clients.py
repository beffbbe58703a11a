"""Ordinary clients against real servers, through the broker, without any proxy setting."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from sandbox.events import Scope, Trace
from sandbox.launch.egress.provider import EgressAttachment
from sandbox.plan.model import NetworkPlan
from sandbox.policy.hosts import parse_rules
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.egress_lab import ALLOWED_CIDRS, PEERS, PYTHON, Lab, certificate, image, laboratory
from tests.peer_image import peer_image

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.slow]

RULES = (
    "services.test",
    "services.test:22,5432,6379,8443,9443",
    "http://services.test",
)

KEY = ed25519.Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
PRIVATE = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
).decode()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet, with a host of real servers."""
    async with laboratory(slot=64) as made:
        pem = base64.b64encode(certificate()[1].encode()).decode()
        program = (PEERS / "services.py").read_text()
        await made.host("services", peer_image(), ["-c", program, pem, PUBLIC], made.services)
        async with asyncio.timeout(120):
            while not any(a["host"] == "services" for a in made.arrivals):  # noqa: ASYNC110 - another task listens
                await asyncio.sleep(0.2)
        yield made


@pytest.fixture(scope="module")
async def way(lab: Lab) -> AsyncIterator[EgressAttachment]:
    """A way out under the rules."""
    provider = await lab.provider(os.urandom(16).hex())
    recorder = MemoryRecorder()
    plan = baseline_plan(network=NetworkPlan("broker", parse_rules(RULES), ALLOWED_CIDRS))
    try:
        yield await provider.attach(plan, Scope(recorder, Trace.new()), provider.run_id)
    finally:
        await provider.close()


async def python(lab: Lab, way: EgressAttachment, program: str) -> str:
    """Run a Python program inside and return its output."""
    trust = f"import os\nopen('/tmp/ca.pem', 'w').write({certificate()[0]!r})\n"
    status, output = await lab.command(way, peer_image(), PYTHON, "-c", trust + program)

    assert status == 0, output
    return output.strip()


async def shell(lab: Lab, way: EgressAttachment, script: str) -> str:
    """Run a shell script inside and return its output."""
    trust = f"cat >/tmp/ca.pem <<'X'\n{certificate()[0]}X\ncat >/tmp/key <<'X'\n{PRIVATE}X\nchmod 600 /tmp/key\n"
    status, output = await lab.command(way, peer_image(), "/usr/bin/sh", "-ec", trust + script)

    assert status == 0, output
    return output.strip()


async def test_node_fetch(lab: Lab, way: EgressAttachment) -> None:
    """Node's own fetch (undici), which ignores proxy variables, verifies the real certificate and gets its answer."""
    program = (
        f"require('fs').writeFileSync('/tmp/ca.pem', {certificate()[0]!r});"
        "const e = require('child_process').execFileSync(process.execPath, ['-e', "
        "\"fetch('https://services.test:8443/index.html').then(r => r.text()).then(console.log)\"], "
        "{env: {NODE_EXTRA_CA_CERTS: '/tmp/ca.pem'}}); process.stdout.write(e)"
    )
    status, output = await lab.command(way, image("node"), "/usr/bin/node", "-e", program)

    assert (status, output.strip()) == (0, "hello over two")


async def test_node_fetch_of_another_host_fails_at_once(lab: Lab, way: EgressAttachment) -> None:
    """The error is the one of a name that does not exist."""
    program = "fetch('https://evil.test/').catch(e => console.log(e.cause.code))"
    status, output = await lab.command(way, image("node"), "/usr/bin/node", "-e", program)

    assert (status, output.strip()) == (0, "ENOTFOUND")


async def test_curl_over_http2(lab: Lab, way: EgressAttachment) -> None:
    """HTTP/2 is negotiated inside TLS end to end."""
    out = await shell(
        lab, way, "curl -sS --http2 --cacert /tmp/ca.pem -w ' v%{http_version}' https://services.test/index.html"
    )

    assert out == "hello over two v2"


async def test_curl_that_fronts_is_reset(lab: Lab, way: EgressAttachment) -> None:
    """A server name that differs from the name looked up ends the handshake."""
    out = await shell(
        lab, way, "curl -sS -k --connect-to evil.test:443:services.test:443 https://evil.test/ 2>&1 || true"
    )

    assert "reset by peer" in out


async def test_requests_and_httpx(lab: Lab, way: EgressAttachment) -> None:
    """Both Python clients, httpx with HTTP/2 as well, on ports 443 and 8443."""
    out = await python(
        lab,
        way,
        "import requests, httpx\n"
        "print(requests.get('https://services.test:8443/index.html', verify='/tmp/ca.pem').text)\n"
        "c = httpx.Client(http2=True, verify='/tmp/ca.pem')\n"
        "r = c.get('https://services.test/index.html'); print(r.text, r.http_version)\n",
    )

    assert out.splitlines() == ["hello over two", "hello over two HTTP/2"]


@pytest.mark.parametrize("mode", ["disable", "require"])
async def test_psycopg_against_postgresql(mode: str, lab: Lab, way: EgressAttachment) -> None:
    """In clear text and with TLS after the protocol's own request for it; a transaction and a large result."""
    out = await python(
        lab,
        way,
        "import psycopg\n"
        f"with psycopg.connect('host=services.test user=app dbname=app sslmode={mode}') as c:\n"
        "    c.execute('create temp table t (n int)')\n"
        "    c.execute('insert into t select generate_series(1, 100000)')\n"
        "    print(c.execute('select sum(n) from t').fetchone()[0], len(c.execute('select n from t').fetchall()))\n",
    )

    assert out == "5000050000 100000"


async def test_redis_py_against_redis(lab: Lab, way: EgressAttachment) -> None:
    """Set, get, a pipeline and publish/subscribe."""
    out = await python(
        lab,
        way,
        "import redis\n"
        "r = redis.Redis('services.test'); r.set('k', 'v' * 100000); print(len(r.get('k')))\n"
        "p = r.pipeline(); [p.incr('n') for _ in range(100)]; print(p.execute()[-1])\n"
        "s = r.pubsub(); s.subscribe('c'); s.get_message(timeout=5); r.publish('c', 'm')\n"
        "print(s.get_message(timeout=5)['data'].decode())\n",
    )

    assert out.splitlines() == ["100000", "100", "m"]


async def test_git_over_https(lab: Lab, way: EgressAttachment) -> None:
    """A clone over HTTPS with the certificate verified."""
    out = await shell(
        lab,
        way,
        "GIT_SSL_CAINFO=/tmp/ca.pem git clone -q https://services.test:8443/repo.git /tmp/w && cat /tmp/w/README",
    )

    assert out.endswith("hello from the repository")


async def test_git_over_ssh(lab: Lab, way: EgressAttachment) -> None:
    """A clone and a push over SSH, where the server speaks first."""
    out = await shell(
        lab,
        way,
        "export GIT_SSH_COMMAND='ssh -i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/known'\n"
        "git clone -q sandbox@services.test:/tmp/repo.git /tmp/w 2>&1\ncat /tmp/w/README\n",
    )

    assert out.endswith("hello from the repository")


@pytest.mark.parametrize("url", ["ws://services.test/", "wss://services.test:9443/"])
async def test_websocket(url: str, lab: Lab, way: EgressAttachment) -> None:
    """Frames both ways, in clear text after a checked upgrade and inside TLS."""
    out = await python(
        lab,
        way,
        "import asyncio, ssl, websockets\n"
        f"url = {url!r}\n"
        "context = ssl.create_default_context(cafile='/tmp/ca.pem') if url.startswith('wss') else None\n"
        "async def main():\n"
        "    async with websockets.connect(url, ssl=context) as s:\n"
        "        await s.send('x' * 200000); print(len(await s.recv()))\n"
        "        await s.send('bye'); print(await s.recv())\n"
        "asyncio.run(main())\n",
    )

    assert out.splitlines() == ["200000", "bye"]


async def test_nothing_else_of_the_host_is_reached(lab: Lab, way: EgressAttachment) -> None:
    """Positive control of the others: the same clients fail where no rule is."""
    out = await shell(
        lab,
        way,
        "curl -sS -m 5 https://allowed.test/ 2>&1 || true\ncurl -sS -m 5 http://services.test:7777/ 2>&1 || true\n"
        f"curl -sS -m 5 http://{lab.good}/ 2>&1 || true\n",
    )

    assert [line.partition(":")[0] for line in out.splitlines()] == ["curl"] * 3
    assert "Could not resolve" in out
    assert out.count("Couldn't connect") == 2

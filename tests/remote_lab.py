"""An address of the documentation range on this machine, servers on it, and drivers that name them.

The address belongs to a bridge of the container engine, so that nothing of it leaves the machine; the servers are
processes of the test. Loopback would not do: it is never dialled.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sandbox.plan.model import HeaderEntry, LimitPlan, NetworkPlan, SandboxPlan
from sandbox.policy.hosts import parse_rules
from sandbox.resources import shipped
from tests.shared import ROOT
from tests.tls_kit import Authority, authority

PEERS: Final = Path(__file__).parent / "peers"
SUBNET: Final = "198.51.100.160/28"
ADDRESS: Final = "198.51.100.161"
NAME: Final = "mcp.test"


@contextmanager
def network() -> Iterator[str]:
    """Give this machine an address of the documentation range."""
    name = f"mcp-sandbox-test-remote-{os.urandom(4).hex()}"
    until = time.monotonic() + 120
    while True:
        done = subprocess.run(
            ["docker", "network", "create", "--subnet", SUBNET, name], capture_output=True, check=False
        )
        if not done.returncode:
            break
        assert time.monotonic() < until, done.stderr.decode()
        time.sleep(1)
    try:
        yield ADDRESS
    finally:
        subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


def free_port(address: str) -> int:
    """Return a port that nobody has at the moment."""
    with socket.create_server((address, 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass
class Served:
    """A server process.

    Attributes:
        requests: what it told of each request.
    """

    url: str
    port: int
    pki: Authority | None
    requests: list[dict[str, Any]] = field(default_factory=list)

    def seen(self, **wanted: str) -> list[dict[str, Any]]:
        """Return the requests that have these values."""
        return [one for one in self.requests if all(one.get(key) == value for key, value in wanted.items())]


@contextmanager
def sdk_server(kind: str, folder: Path, *, tls: bool = True) -> Iterator[Served]:
    """Run the Python SDK's server over ``http`` or ``sse``."""
    pki = authority(folder, NAME, ADDRESS) if tls else None
    port = free_port(ADDRESS)
    files = [str(pki.cert), str(pki.key)] if pki else []
    command = [sys.executable, str(PEERS / "http_server.py"), kind, ADDRESS, str(port), *files]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    scheme = "https" if tls else "http"
    served = Served(f"{scheme}://{ADDRESS}:{port}/{'sse' if kind == 'sse' else 'mcp'}", port, pki)

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            served.requests.append(json.loads(line))

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        await_port(ADDRESS, port, process)
        yield served
    finally:
        process.kill()
        process.wait()
        reader.join(5)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def await_port(address: str, port: int, process: subprocess.Popen[str]) -> None:
    """Return when a server listens."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            assert process.stderr is not None
            raise AssertionError(process.stderr.read()[-2000:])
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex((address, port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not come up")


def plan_of(
    url: str,
    *rules: str,
    transport: str = "http",
    private: tuple[str, ...] = ("198.51.100.0/24",),
    authorities: tuple[str, ...] = (),
    headers: tuple[HeaderEntry, ...] = (),
    unsafe: tuple[str, ...] = (),
) -> SandboxPlan:
    """Return the plan of a remote server."""
    limits = LimitPlan(1 << 29, 1.0, 128, 1024, 1 << 28, 3600.0)
    return SandboxPlan(
        "remote-mcp", "1.0.0", "sha256:0", "sha256:0", "remote", "", "", (), "", "", (), (), (),
        NetworkPlan("remote", parse_rules(rules), private), limits, "", "", "", (), (), "", init=False,
        transport=transport, remote_url=url, authorities=authorities, headers=headers, unsafe=unsafe,  # type: ignore[arg-type]
    )  # fmt: skip


DRIVER: Final = """---
name: Remote MCP
id: remote-mcp
description: A server that somebody else runs.
version: 1.0.0
kind: mcp
server:
  kind: remote
  url: "{url}"
{headers}transport: {transport}
network:
  egress: ["{rule}"]
region: ["self-hosted"]
policy_tags: ["self-hosted"]
implements:
  - tool: ./tools/echo/TOOL.md
    version: "^1.0.0"
    metadata: {{ mcp: {{ tool_name: echo }} }}
---

# Remote
"""

TOOL: Final = """---
name: Echo
id: remote-echo
description: Returns its message.
version: 1.0.0
inputs:
  type: object
  properties: { message: { type: string } }
  required: [message]
  additionalProperties: false
outputs: { type: string }
mutates: []
requires: { network: [] }
---

# Echo
"""

SECRETS: Final = """---
secrets:
  - slug: api-key
    name: API key
    description: Key of the remote server.
---
"""


def driver(
    folder: Path, url: str, rule: str, *, transport: str = "http", headers: Mapping[str, str] | None = None
) -> Path:
    """Write a driver of a remote server and return its folder."""
    lines = "".join(f'    {name}: "{value}"\n' for name, value in (headers or {}).items())
    block = f"  headers:\n{lines}" if lines else ""
    made = folder / "remote-mcp"
    (made / "tools" / "echo").mkdir(parents=True)
    (made / "DRIVER.md").write_text(DRIVER.format(url=url, rule=rule, transport=transport, headers=block))
    (made / "tools" / "echo" / "TOOL.md").write_text(TOOL)
    if headers:
        (made / "SECRETS.md").write_text(SECRETS)
    return made


def policy(folder: Path, *, ca: str = "", hosts: tuple[str, ...] = (), unsafe: tuple[str, ...] = ()) -> Path:
    """Write an operator's policy: the shipped one, the documentation range open, and what else is named."""
    text = shipped("policies", "default.toml").read_text()
    text = text.replace('name = "default"', 'name = "own"\nreplaces = "default"', 1)
    text += '\n[[egress.private]]\ncidr = "198.51.100.0/24"\nreason = "test"\n'
    text += "".join(f'\n[[egress.hosts]]\npattern = "{host}"\nreason = "test"\n' for host in hosts)
    text += f'\n[[egress.ca]]\nfile = "{ca}"\nreason = "test"\n' if ca else ""
    text += "".join(f'\n[[unsafe]]\nname = "{name}"\nreason = "test"\n' for name in unsafe)
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def command(verb: str, made: Path, scratch: Path, *more: str, env: Mapping[str, str] | None = None) -> Any:
    """Run mcp-sandbox with a policy and a trail of its own."""
    argv = [sys.executable, "-m", "sandbox", verb, str(made), *more, "--policy", str(scratch / "policy.toml")]
    if verb not in {"plan", "check"}:
        argv += ["--audit-dir", str(scratch / "audit")]
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **(env or {})}, timeout=120
    )

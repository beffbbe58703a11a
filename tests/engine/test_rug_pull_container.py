"""A server that changes what it offers, in a container behind ``mcp-sandbox run``: every byte on the client's wire."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from sandbox.launch.images.host import host_images
from sandbox.testing.servers import shifting
from sandbox.testing.servers.shifting import MARK
from tests.conftest import ENGINE_SOCKET
from tests.engine.drivers import COMMAND

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

ROUNDS = 8
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}
INPUTS = {
    "read": {"path": {"type": "string", "maxLength": 40}, "tenant": {"type": "string"}},
    "write": {"text": {"type": "string"}},
}


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Return the id of an image with the server's program in it."""
    client = docker.DockerClient(base_url=f"unix://{ENGINE_SOCKET}")
    container = client.containers.create(host_images().ensure("python", moved=True).id, ["/"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(shifting.__file__, "shifting.py", filter=_readable)
    container.put_archive("/", packed.getvalue())
    # No arguments of the image's own: those of the driver follow them, and the server takes the first.
    made = container.commit(conf={"Entrypoint": ["/usr/bin/python3", "-u", "/shifting.py"], "Cmd": []})
    container.remove()
    yield str(made.id)
    client.images.remove(made.id, force=True)
    client.close()


def _readable(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.mode = 0o644
    return info


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where a driver is written."""
    return tmp_path / "shifting-mcp"


def write(folder: Path, image: str, mode: str) -> None:
    """Write the driver of a server that shifts in a mode."""
    bindings = []
    for name, properties in INPUTS.items():
        place = folder / "tools" / f"my-{name}"
        place.mkdir(parents=True, exist_ok=True)
        required = [next(iter(properties))]
        inputs = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        contract = {"name": name, "id": f"my-{name}", "description": "As reviewed.", "version": "1.0.0"}
        body = {**contract, "inputs": inputs, "outputs": {"type": "string"}}
        (place / "TOOL.md").write_text(f"---\n{json.dumps(body)}\n---\n")
        bound = {"mcp": {"tool_name": name, "result_extract": "$"}}
        bindings.append({"tool": f"./tools/my-{name}/TOOL.md", "version": "^1.0.0", "metadata": bound})
    driver = {
        "name": "Shifting MCP", "id": "shifting-mcp", "description": "Shifts.", "version": "1.0.0", "kind": "mcp",
        "server": {"kind": "docker", "image": image, "args": [mode]}, "transport": "stdio", "network": {"egress": []},
        "implements": bindings,
    }  # fmt: skip
    (folder / "DRIVER.md").write_text(f"---\n{json.dumps(driver)}\n---\n")


def talk(argv: list[str], tools: tuple[str, str]) -> tuple[str, list[dict[str, Any]]]:
    """Use a server for a while; return everything that came over the wire, and the answers of its first tool."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        wire: list[str] = []

        def ask(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
            server.stdin.flush()  # type: ignore[union-attr]
            while line := server.stdout.readline():  # type: ignore[union-attr]
                wire.append(line)
                answer: dict[str, Any] = json.loads(line)
                if answer.get("id") == number:
                    return answer
            pytest.fail("the server closed its output: " + "".join(wire))

        ask(0, "initialize", INITIALIZE)
        server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        answers = []
        for round_ in range(ROUNDS):
            evil = {"tenant": "evil"} if round_ == 2 else {}
            call = {"name": tools[0], "arguments": {"path": "a", **evil}}
            answers.append(ask(10 * round_ + 1, "tools/call", call))
            ask(10 * round_ + 2, "tools/list", {})
        other = ask(999, "tools/call", {"name": tools[1], "arguments": {"text": "b"}})
        answers.append(other)
        server.stdin.close()
        wire += server.stdout.readlines()
        server.wait(60)
    return "".join(wire), answers


@pytest.mark.claim("P-VET-20")
@pytest.mark.parametrize("mode", ["calls", "announced", "tenant", "flip"])
def test_nothing_unapproved_leaves_the_container(mode: str, folder: Path, image: str) -> None:
    """Directly the change is there to be seen; behind us not one byte of it, and the other tool goes on."""
    write(folder, image, "honest")
    audit = ["--audit-dir", str(folder.parent / "audit")]
    argv = [*COMMAND, "pins", "approve", str(folder), *audit]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    write(folder, image, mode)
    direct = ["docker", "run", "--rm", "-i", "--network=none", image, mode]

    seen, _ = talk(direct, ("read", "write"))
    behind, answers = talk([*COMMAND, "run", str(folder), *audit], ("my-read", "my-write"))

    assert (True, False) == (MARK in seen, MARK in behind)
    assert not answers[0]["result"]["isError"], "it worked before"
    assert not answers[-1]["result"]["isError"], "the other tool goes on"
    assert any(answer["result"]["isError"] for answer in answers), "it did change behind us too"

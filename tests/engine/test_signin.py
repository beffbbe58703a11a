"""``prove -- run --clients``: an ordinary client of the SDK signs in with a key on stdio, and uses a real server."""

from __future__ import annotations

import json
import os
from pathlib import Path

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.engine.drivers import COMMAND
from tests.shared import ROOT
from tests.unit.cli.test_signin import AUDIENCE, MALLORY, clients_file, key_file

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.claim("P-GATE-13")
async def test_a_client_with_a_pinned_key_is_served_as_its_tenant_and_another_is_not(tmp_path: Path) -> None:
    """The call is recorded for the tenant of the key; who holds another key starts nothing and is refused."""
    audit, driver = tmp_path / "audit", str(ROOT / "drivers" / "text-mcp" / "DRIVER.md")
    served = [*COMMAND, "run", driver, "--clients", str(clients_file(tmp_path)), "--audit-dir", str(audit)]
    argv = [*COMMAND, "prove", "--key", str(key_file(tmp_path)), "--audience", AUDIENCE, "--", *served]
    parameters = StdioServerParameters(command=argv[0], args=argv[1:], env=dict(os.environ))
    async with Client(stdio_client(parameters)) as client:
        said = await client.call_tool("text-crc32", {"text": "123456789"})
    (tmp_path / "other").mkdir()
    other = [*COMMAND, "prove", "--key", str(key_file(tmp_path / "other", MALLORY)), *argv[argv.index("--audience") :]]
    refused = await anyio.run_process(other, input=b"", check=False)
    records = [json.loads(line) for path in audit.rglob("*.jsonl") for line in path.read_text().splitlines()]
    strangers = [one for one in records if one.get("name") == "client.refuse"]

    assert "cbf43926" in said.model_dump_json()
    assert {"acme"} == {one["tenant"] for one in records if str(one.get("name", "")).startswith("call.")}
    assert (3, True) == (refused.returncode, b"GATE-076" in refused.stdout)
    assert 1 == len(strangers)
    assert 1 == len({one["attrs"]["container_name"] for one in records if "container_name" in one.get("attrs", {})})

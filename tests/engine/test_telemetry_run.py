"""Real runs: one trace, spans at a collector, the connection of a call by one question, figures while it lives."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from sandbox.resources import shipped
from tests.engine.drivers import COMMAND, EXAMPLES, run_argv
from tests.engine.test_egress_learn import driver, records
from tests.otlp_receiver import Received, attributes, http_receiver

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(180)]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """A collector that the environment names."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with http_receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        yield found


def ours(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of ours."""
    return subprocess.run([*COMMAND, *map(str, argv)], capture_output=True, text=True, check=False, timeout=120)


async def test_a_traced_client_sees_the_server_below_its_own_span(received: Received, tmp_path: Path) -> None:
    """Client span, our server span, our client span: one trace; the ledger has its own, and names the client's."""
    example = next(one for one in EXAMPLES if one.name == "memory-mcp")
    argv = run_argv(example, tmp_path)
    server = StdioServerParameters(command=argv[0], args=argv[1:], env=dict(os.environ))
    async with Client(stdio_client(server), mode="legacy") as client:  # type: ignore[arg-type]
        await client.call_tool(example.tool, example.arguments, meta={"traceparent": PARENT, "baggage": "who=ada"})
        running = json.loads(ours("stats", "--once", "--json", "--audit-dir", tmp_path / "audit").stdout)
    received.until(lambda it: any(span.name == "mcp_sandbox.session" for span in it.spans()))
    spans = {span.kind: span for span in received.spans() if span.trace_id.hex() == TRACE}
    kept = records(tmp_path)
    (intent,) = [one for one in kept if one["name"] == "call.forward" and one["phase"] == "intent"]

    assert {2, 3} == set(spans)
    assert "00f067aa0ba902b7" == spans[2].parent_span_id.hex()
    assert spans[2].span_id == spans[3].parent_span_id
    assert (intent["span"], PARENT) == (spans[2].span_id.hex(), intent["attrs"]["traceparent"])
    assert 1 == len({one["trace"] for one in kept if "trace" in one})
    assert "baggage" not in json.dumps(kept) + str([attributes(span) for span in received.spans()])
    assert {"launch.create", "launch.stop"} <= {span.name for span in received.spans()}
    (row,) = [row for row in running if row["driver"] == "memory-mcp" and row["instance"] == intent["instance"]]
    assert 1 == row["calls"]
    assert 0 < row["memory_bytes"] <= row["memory_peak_bytes"] <= row["memory_limit_bytes"]
    assert row["pids"] >= 1
    assert row["cpu_seconds"] > 0
    assert row["supervisor"]["rss_bytes"] > 0


def test_the_call_that_opened_a_connection_is_one_question(tmp_path: Path) -> None:
    """In the trail of a real run, asking for a host answers with the tool whose call wanted it."""
    file = driver(tmp_path / "d", '["allowed.test:5432"]')
    sent = json.dumps({"host": "allowed.test", "port": 6379})
    done = ours("call", file, "reach", "--args", sent, "--audit-dir", tmp_path / "audit")
    asked = ("audit", "query", "--audit-dir", tmp_path / "audit", "--host", "allowed.test")
    found: list[dict[str, Any]] = [json.loads(line) for line in ours(*asked, "--json").stdout.splitlines()]
    connections = [one for one in found if one["name"] == "egress.connect"]

    assert done.returncode == 0, done.stderr
    assert connections
    assert {"reach"} == {caller["tool"] for one in connections for caller in one["by"]}
    assert "deny by reach" in ours(*asked).stdout
    (teardown,) = [one for one in records(tmp_path) if one["name"] == "teardown"]
    assert {"memory_bytes", "memory_peak_bytes", "cpu_seconds", "pids", "bytes_up", "bytes_down"} <= set(
        teardown["attrs"]["usage"]
    )
    assert 0 < teardown["attrs"]["usage"]["memory_peak_bytes"]


def test_every_record_of_a_real_run_has_the_published_form(tmp_path: Path) -> None:
    """Names, phases and attributes of a run with a network, a denial and a call are those that are documented."""
    file = driver(tmp_path / "d", '["allowed.test:5432"]')
    sent = json.dumps({"host": "allowed.test", "port": 6379})
    ours("call", file, "reach", "--args", sent, "--audit-dir", tmp_path / "audit", "--keep", "reach.host")
    form = jsonschema.Draft202012Validator(json.loads(shipped("schemas", "event.schema.json").read_bytes()))
    events = jsonschema.Draft202012Validator(json.loads(shipped("schemas", "events.schema.json").read_bytes()))
    kept = records(tmp_path)

    assert {"spec.load", "launch.create", "egress.connect", "call.forward", "teardown"} <= {one["name"] for one in kept}
    assert [] == [
        (one["name"], error.message) for one in kept for check in (form, events) for error in check.iter_errors(one)
    ]
    (intent,) = [one for one in kept if one["name"] == "call.forward" and one["phase"] == "intent"]
    assert {"host"} == set(intent["attrs"]["values"])

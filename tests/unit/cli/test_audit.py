"""The audit command: what it prints, what it exports, where heads are anchored."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from sandbox.audit import heads
from sandbox.audit.payloads import Payloads
from sandbox.audit.recorder import open_recorder
from sandbox.cli import main
from sandbox.events import Scope, Trace
from tests.otlp_receiver import attributes, grpc_receiver, http_receiver

ESCAPE = "\x1b[2J\u202eevil"


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A trail of two tenants, with a host that would clear a terminal and a kept value of each."""
    recorder = open_recorder(tmp_path / "audit", "run")
    kept = Payloads(tmp_path / "audit", recorder.ledger.stream, ["read.path"])
    for tenant in ("ada", "bob"):
        scope = Scope(recorder, Trace.new(), driver="files", tenant=tenant)
        call = scope.child()
        values = kept.keep(tenant, "read", {"path": f"/of/{tenant}"})
        call.intent("call.forward", tool="read", client=f"client of {tenant}", decision="allow", values=values)
        scope.fact("egress.connect", host=ESCAPE, port=443, decision="deny", calls=[call.trace.span_id])
        call.outcome("call.forward", tool="read", status="ok", duration_us=1500, overhead_us=100)
    recorder.close()
    return tmp_path / "audit"


def run(capfd: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    """Run the command and return status, stdout and stderr."""
    capfd.readouterr()
    status = main(["audit", *map(str, argv)])
    return status, *capfd.readouterr()


def test_query_prints_a_table_that_moves_no_cursor(trail: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Columns are aligned under their heads, and what a server named cannot obey a terminal's language."""
    status, out, _ = run(capfd, "query", "--audit-dir", trail, "--tenant", "ada")
    head, *rows = out.splitlines()

    assert 0 == status
    assert ["time", "driver", "tenant", "record", "about", "said"] == head.split()
    assert 3 == len(rows)
    assert {head.index("record")} == {row.index(re.split(r"\s\s+|\s", row)[3]) for row in rows}
    assert out.replace("\n", "").isprintable()
    assert r"\x1b[2J\u202eevil" in out


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--tool", "read"), 4),
        (("--decision", "deny"), 2),
        (("--host", ESCAPE), 2),
        (("--tenant", "bob", "--phase", "outcome"), 1),
        (("--since", "2000", "--until", "2001"), 0),
    ],
)
def test_query_filters_as_json(
    trail: Path, capfd: pytest.CaptureFixture[str], filters: tuple[str, ...], count: int
) -> None:
    """Tool, decision, host, tenant and time select; each line is one record."""
    _, out, _ = run(capfd, "query", "--audit-dir", trail, "--json", *filters)

    assert count == len([json.loads(line) for line in out.splitlines()])


def test_query_by_trace(trail: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One trace id is one session: its call, and the connection that names the call."""
    _, out, _ = run(capfd, "query", "--audit-dir", trail, "--json", "--tenant", "ada")
    first = json.loads(out.splitlines()[0])
    _, out, _ = run(capfd, "query", "--audit-dir", trail, "--json", "--trace", first["trace"])
    found = [json.loads(line) for line in out.splitlines()]
    (connection,) = [record for record in found if record["name"] == "egress.connect"]

    assert ["call.forward", "egress.connect", "call.forward"] == [record["name"] for record in found]
    assert connection["attrs"]["calls"] == [first["span"]]


@pytest.mark.parametrize("filters", [("--host", ESCAPE), ("--decision", "deny"), ("--name", "egress.connect")])
def test_which_call_opened_a_connection_is_one_question(
    trail: Path, capfd: pytest.CaptureFixture[str], filters: tuple[str, ...]
) -> None:
    """A connection says by which tool's call it was opened, in the table and as JSON; the call says the connection."""
    _, table, _ = run(capfd, "query", "--audit-dir", trail, "--tenant", "ada", *filters)
    _, out, _ = run(capfd, "query", "--audit-dir", trail, "--tenant", "ada", "--json", *filters)
    (found,) = [json.loads(line) for line in out.splitlines()]
    _, told, _ = run(capfd, "query", "--audit-dir", trail, "--json", "--call", found["by"][0]["span"])

    assert table.endswith("deny by read\n")
    assert ["read"] == [caller["tool"] for caller in found["by"]]
    assert ["call.forward", "egress.connect", "call.forward"] == [
        json.loads(line)["name"] for line in told.splitlines()
    ]


def test_tail_prints_the_line_of_the_draft(trail: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """``tail --format line`` has the seed's form (S1-28)."""
    _, out, _ = run(capfd, "tail", "--audit-dir", trail, "--format", "line", "--tenant", "ada")

    assert re.fullmatch(
        r"\[\d{4}-\d\d-\d\dT\d\d:\d\dZ\] client=client%20of%20ada tool=read tokens=- status=success latency=2ms\n", out
    )


@pytest.mark.claim("P-AUDIT-11")
def test_export_of_a_tenant_has_nothing_of_another(
    trail: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Records and kept values of one tenant only; the control: without a tenant both are there."""
    place = tmp_path / "export.jsonl"
    status, _, _ = run(capfd, "export", "--audit-dir", trail, "--tenant", "ada", "--out", place)
    found = [json.loads(line) for line in place.read_text().splitlines()]
    _, whole, _ = run(capfd, "export", "--audit-dir", trail)

    assert (0, 0o600) == (status, place.stat().st_mode & 0o777)
    assert {"ada"} == {record["tenant"] for record in found if "kept" not in record}
    assert ["/of/ada"] == [record["kept"]["value"] for record in found if "kept" in record]
    assert "bob" not in place.read_text()
    assert "client of bob" in whole


def proto_of(line: str) -> Any:
    """Return a line of OTLP JSON as its protobuf message; unknown members and wrong types raise."""

    def as_proto(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: as_proto(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [as_proto(item) for item in value]
        if key in {"traceId", "spanId", "parentSpanId"}:  # hexadecimal in OTLP, base64 in plain protobuf JSON
            return base64.b64encode(bytes.fromhex(value)).decode()
        return value

    parsed = json.loads(line)
    return json_format.ParseDict(as_proto(parsed), TracesData() if "resourceSpans" in parsed else LogsData())


def test_export_as_otlp_json_is_valid_under_the_protocol(trail: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each line is a TracesData or LogsData message; spans have the ledger's ids and the conventions' names."""
    _, out, _ = run(capfd, "export", "--audit-dir", trail, "--format", "otlp-json", "--tenant", "ada")
    messages = [proto_of(line) for line in out.splitlines()]
    spans = [
        span
        for message in messages
        if isinstance(message, TracesData)
        for span in message.resource_spans[0].scope_spans[0].spans
    ]
    logs = [
        log
        for message in messages
        if isinstance(message, LogsData)
        for log in message.resource_logs[0].scope_logs[0].log_records
    ]

    assert {"tools/call read", "mcp_sandbox.session"} == {span.name for span in spans}
    assert "tools/call" == attributes(spans[0])["mcp.method.name"]
    assert ["mcp_sandbox.call.forward", "mcp_sandbox.egress.connect", "mcp_sandbox.call.forward"] == [
        log.event_name for log in logs
    ]
    assert {span.trace_id for span in spans} == {log.trace_id for log in logs}
    assert all(b"mcp-sandbox" in message.SerializeToString() for message in messages)


def test_heads_go_to_a_file_and_a_command(trail: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file is added to, a command gets them on its standard input without a shell, and both verify later."""
    place, taken = tmp_path / "heads", tmp_path / "taken"
    for _ in range(2):
        assert 0 == run(capfd, "export-head", "--audit-dir", trail, "--out", place)[0]
    assert 0 == run(capfd, "export-head", "--audit-dir", trail, "--to", f"tee '{taken}'")[0]

    assert 2 == len(heads.load(place.read_bytes()))
    assert heads.load(taken.read_bytes()) == heads.load(place.read_bytes())[:1]
    assert 0 == run(capfd, "verify", "--audit-dir", trail, "--heads", taken)[0]


@pytest.mark.parametrize("command", ["false", "/does/not/exist", "unbalanced '"])
def test_command_that_takes_no_heads_is_a_failure(trail: Path, capfd: pytest.CaptureFixture[str], command: str) -> None:
    """Nobody believes that heads are anchored when they are not."""
    status, _, err = run(capfd, "export-head", "--audit-dir", trail, "--to", command)

    assert 6 == status
    assert err.startswith("AUD-040")


@pytest.fixture(params=["http/protobuf", "grpc"])
def collector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A receiver that the environment names."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with (http_receiver if request.param == "http/protobuf" else grpc_receiver)() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        yield received


def test_heads_at_a_collector_bear_witness(
    trail: Path, tmp_path: Path, collector: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Heads that were sent over OTLP come back as heads, and a shortened trail does not verify against them."""
    assert 0 == run(capfd, "export-head", "--audit-dir", trail, "--otlp")[0]
    (log,) = [log for log in collector.logs() if log.event_name == "mcp_sandbox.audit.head"]
    members = {name.removeprefix("mcp_sandbox."): value for name, value in attributes(log).items()}
    place = tmp_path / "heads"
    place.write_text(json.dumps(members))
    assert 0 == run(capfd, "verify", "--audit-dir", trail, "--heads", place)[0]
    (segment,) = (trail / "segments").iterdir()
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-3]))

    assert 6 == run(capfd, "verify", "--audit-dir", trail, "--heads", place)[0]


def test_collector_that_refuses_or_is_not_named_is_a_failure(
    trail: Path, collector: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A head that did not arrive is not called anchored."""
    collector.refuses = True
    assert 6 == run(capfd, "export-head", "--audit-dir", trail, "--otlp")[0]
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    status, _, err = run(capfd, "export-head", "--audit-dir", trail, "--otlp")

    assert (2, True) == (status, err.startswith("AUD-041"))


def test_format_of_another_action_is_refused(trail: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A format that an action does not have is a usage error that names those that exist."""
    status, _, err = run(capfd, "tail", "--audit-dir", trail, "--format", "otlp-json")

    assert 2 == status
    assert err.startswith("CLI-160")

"""What goes out as OpenTelemetry, held to the conventions at a receiver of our own, over both transports."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox.audit.query import Question, query
from sandbox.audit.recorder import LedgerRecorder, open_recorder
from sandbox.audit.telemetry import conventions as names
from sandbox.audit.telemetry.project import Projector
from sandbox.audit.telemetry.settings import settings
from sandbox.audit.telemetry.values import Span
from sandbox.audit.verify import verify
from sandbox.events import Scope, Trace
from sandbox.wire import tracing
from tests.otlp_receiver import Received, attributes, grpc_receiver, http_receiver
from tests.shared import ROOT

PROTOCOLS = ("http/protobuf", "grpc")
CLIENT_SPAN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SERVER, CLIENT, INTERNAL = 2, 3, 1
RECEIVERS = {"http/protobuf": http_receiver, "grpc": grpc_receiver}


@pytest.fixture(params=PROTOCOLS)
def received(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """A receiver that the environment points to."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with RECEIVERS[request.param]() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        yield found


@contextlib.contextmanager
def recording(folder: Path) -> Iterator[LedgerRecorder]:
    """A recorder that exports as the environment says."""
    recorder = open_recorder(folder, "run")
    chosen = settings(os.environ)
    if chosen is not None:
        recorder.export(chosen)
    try:
        yield recorder
    finally:
        recorder.close()


def session(recorder: LedgerRecorder) -> Scope:
    """Record a session: a launch, a call with a connection, a call of a traced client, a denied call, an end."""
    scope = Scope(recorder, Trace.new(), driver="files-mcp", tenant="ada", instance="4f0c")
    scope.intent("launch.create", container_name="one", image="sha256:1")
    scope.outcome("launch.create", container_name="one", ok=True)
    scope.fact("transport.negotiate", era="handshake", version="2025-06-18")
    first = scope.child()
    about = {"request_id": "7", "protocol": "2025-06-18", "session_id": "abc"}
    first.intent("call.forward", tool="read", mcp_tool_name="read_text_file", decision="allow", **about)
    flow = scope.child()
    flow.intent("egress.connect", host="api.test", port=443, calls=[first.trace.span_id], decision="allow")
    flow.outcome(
        "egress.connect",
        host="api.test",
        port=443,
        calls=[first.trace.span_id],
        decision="allow",
        bytes_up=5,
        bytes_down=9,
    )
    first.outcome("call.forward", tool="read", status="ok", duration_us=1500, overhead_us=120)
    second = scope.child()
    second.intent(
        "call.forward",
        tool="read",
        mcp_tool_name="read_text_file",
        decision="allow",
        request_id="8",
        protocol="2026-07-28",
        session_id="must-not-go-out",
        traceparent=CLIENT_SPAN,
        tracestate="vendor=1",
    )
    second.outcome("call.forward", tool="read", status="error", duration_us=900, overhead_us=80)
    scope.child().fact(
        "call.decide", tool="write", decision="deny", reason="CALL-040", request_id="9", protocol="2025-06-18"
    )
    usage = {"memory_bytes": 10, "memory_peak_bytes": 20, "cpu_seconds": 1.5, "pids": 3}
    scope.fact("teardown", code=0, oom_killed=False, usage=usage)
    return scope


def test_spans_follow_the_conventions_over_both_transports(received: Received, tmp_path: Path) -> None:
    """A call is a SERVER and a CLIENT span with the conventions' names and the ledger's ids, its connection below."""
    with recording(tmp_path) as recorder:
        scope = session(recorder)
    received.until(lambda it: len(it.spans()) >= 8)
    spans = {(span.name, span.kind, span.trace_id.hex()): span for span in received.spans()}
    trace, remote = scope.trace.trace_id, tracing.of(CLIENT_SPAN, "vendor=1")
    assert remote is not None

    server = spans["tools/call read", SERVER, trace]
    client = spans["tools/call read_text_file", CLIENT, trace]
    assert (server.parent_span_id.hex(), client.parent_span_id) == (scope.trace.span_id, server.span_id)
    assert client.span_id.hex() == tracing.upstream_span(server.span_id.hex())
    assert {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": "read",
        "gen_ai.operation.name": "execute_tool",
        "jsonrpc.request.id": "7",
        "mcp.protocol.version": "2025-06-18",
        "mcp.session.id": "abc",
        "network.transport": "pipe",
        "mcp_sandbox.tenant": "ada",
        "mcp_sandbox.decision": "allow",
    }.items() <= attributes(server).items()
    assert "read_text_file" == attributes(client)["gen_ai.tool.name"]
    assert {"mcp.session.id", "mcp_sandbox.tenant"}.isdisjoint(attributes(client))
    assert (1_500_000, 1_380_000) == (
        server.end_time_unix_nano - server.start_time_unix_nano,
        client.end_time_unix_nano - client.start_time_unix_nano,
    )
    connection = spans["connect api.test:443", CLIENT, trace]
    assert connection.parent_span_id == server.span_id
    assert {"server.address": "api.test", "server.port": 443, "network.transport": "tcp"}.items() <= attributes(
        connection
    ).items()
    assert {scope.trace.span_id} == {
        spans[name, INTERNAL, trace].parent_span_id.hex() or spans[name, INTERNAL, trace].span_id.hex()
        for name in ("launch.create", "mcp_sandbox.session")
    }
    denied = spans["tools/call write", SERVER, trace]
    assert ("tool_error", "CALL-040", 2) == (
        attributes(denied)["error.type"],
        attributes(denied)["mcp_sandbox.reason"],
        denied.status.code,
    )
    traced = spans["tools/call read", SERVER, remote.trace_id]
    assert (traced.parent_span_id.hex(), traced.trace_state) == (remote.span_id, "vendor=1")
    assert [(trace, scope.trace.span_id)] == [(link.trace_id.hex(), link.span_id.hex()) for link in traced.links]
    assert "mcp.session.id" not in attributes(traced)
    assert "tool_error" == attributes(traced)["error.type"]


def test_logs_are_the_records_with_their_trace(received: Received, tmp_path: Path) -> None:
    """Every record is one log record with event name, severity, trace and span; what was redacted stays so."""
    with recording(tmp_path) as recorder:
        recorder.add_secrets("s3cr3t-value-of-a-token")
        scope = session(recorder)
        scope.fact("transport.drop", reason="x", what="it said s3cr3t-value-of-a-token")
    received.until(lambda it: any("transport.drop" in log.event_name for log in it.logs()))
    recorded = [record for record in query(tmp_path, Question()) if record.get("trace") == scope.trace.trace_id]
    found = [log for log in received.logs() if log.trace_id.hex() == scope.trace.trace_id]

    assert [f"mcp_sandbox.{record['name']}" for record in recorded] == [log.event_name for log in found]
    assert [record["span"] for record in recorded] == [log.span_id.hex() for log in found]
    assert [record["seq"] for record in recorded] == [attributes(log)["mcp_sandbox.seq"] for log in found]
    assert {"mcp_sandbox.call.decide": "WARN"}.items() <= {log.event_name: log.severity_text for log in found}.items()
    assert not any(b"s3cr3t" in request.SerializeToString() for request in received.requests)


def test_metrics_have_the_conventions_units_and_buckets(received: Received, tmp_path: Path) -> None:
    """Durations are histograms in seconds with the conventions' buckets; our overhead has sub-millisecond ones."""
    with recording(tmp_path) as recorder:
        session(recorder)
    received.until(lambda it: names.OVERHEAD in it.metrics())
    found = received.metrics()

    for name, (bounds, _) in names.HISTOGRAMS.items():
        assert "s" == found[name].unit
        assert {bounds} == {tuple(point.explicit_bounds) for point in found[name].histogram.data_points}
    points = {
        attributes(point).get("error.type"): point for point in found[names.SERVER_DURATION].histogram.data_points
    }
    assert {None: 1, "tool_error": 1} == {error: point.count for error, point in points.items()}
    assert {"mcp.method.name", "gen_ai.tool.name", "gen_ai.operation.name", "mcp.protocol.version"} <= set(
        attributes(points[None])
    )
    assert pytest.approx(0.0002) == sum(point.sum for point in found[names.OVERHEAD].histogram.data_points)
    assert min(found[names.OVERHEAD].histogram.data_points[0].explicit_bounds) < 0.001
    assert {"By", "{process}"} == {found[name].unit for name in (names.MEMORY_PEAK, names.PIDS)}
    (io,) = [point for point in found[names.EGRESS_IO].sum.data_points if "transmit" in str(point)]
    assert 5 == (io.as_int or io.as_double)


def test_standard_variables_are_honoured(received: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Service name, resource attributes, headers, and signals that are off."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "reviewed")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=one%20two")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    with recording(tmp_path) as recorder:
        session(recorder)
    received.until(lambda it: it.spans() and it.metrics())

    assert [] == received.logs()
    for resource in received.resources():
        assert {"service.name": "reviewed", "service.version": "9", "deployment.environment.name": "test"}.items() <= (
            resource.items()
        )
    assert all({key.lower(): value for key, value in said.items()}["x-key"] == "one two" for said in received.headers)


def test_sampler_of_the_environment_is_used(
    received: Received, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sampler that takes nothing there are log records and no spans."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with recording(tmp_path) as recorder:
        session(recorder)
    received.until(lambda it: it.logs() and it.metrics())

    assert [] == received.spans()


@pytest.mark.claim("P-AUDIT-10")
def test_refusing_collector_costs_no_record_and_is_said(received: Received, tmp_path: Path) -> None:
    """Every fact is in the ledger, what the collector did not take is counted, and the reason is on record."""
    received.refuses = True
    with recording(tmp_path) as recorder:
        session(recorder)
    states = [record["attrs"] for record in query(tmp_path, Question(name="telemetry.state"))]

    assert "intact" == verify(tmp_path).state
    assert 11 == sum(1 for record in query(tmp_path, Question(tenant="ada")))
    assert {"ready", "failing", "ended"} <= {state["state"] for state in states}
    assert next(state for state in states if state["state"] == "failing")["why"]
    ended = next(state for state in states if state["state"] == "ended")
    assert {} == ended["sent"]
    assert ended["failed"]["traces"] >= 8


@pytest.mark.claim("P-AUDIT-10")
def test_collector_that_never_answers_delays_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an endpoint that takes connections and says nothing, ten thousand calls are recorded and verify."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with recording(tmp_path) as recorder:
            scope = Scope(recorder, Trace.new(), driver="d", tenant="t")
            for _ in range(10_000):
                call = scope.child()
                call.intent("call.forward", tool="read")
                call.outcome("call.forward", tool="read", status="ok", duration_us=5, overhead_us=1)
            exporter = psutil.Process(recorder._telemetry.pid)
        states = [record["attrs"]["state"] for record in query(tmp_path, Question(name="telemetry.state"))]
        found = verify(tmp_path)

    assert ("intact", True) == (found.state, found.records >= 20_000)
    assert "left" in states or "failing" in states
    exporter.wait(30)


def test_killed_supervisor_still_has_its_last_calls_exported(received: Received, tmp_path: Path) -> None:
    """SIGKILL: what was acknowledged goes out, and the exporter ends by itself."""
    program = textwrap.dedent(
        """
        import os, sys
        from pathlib import Path
        from sandbox.audit.recorder import open_recorder
        from sandbox.audit.telemetry.settings import settings
        from sandbox.events import Scope, Trace
        recorder = open_recorder(Path(sys.argv[1]), "run")
        recorder.export(settings(os.environ))
        scope = Scope(recorder, Trace.new(), driver="d", tenant="t").child()
        scope.intent("call.forward", tool="last")
        scope.outcome("call.forward", tool="last", status="ok", duration_us=5, overhead_us=1)
        print(recorder._telemetry.pid, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert -signal.SIGKILL == done.returncode
    received.until(lambda it: any(span.name == "tools/call last" for span in it.spans()))
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(30)


def test_nothing_is_loaded_without_an_endpoint() -> None:
    """No variable: neither the SDK nor a process, in the command that serves."""
    program = (
        "import os, sys; [os.environ.pop(n) for n in list(os.environ) if n.startswith('OTEL_')];"
        "import sandbox.cli.run, sandbox.cli.evidence;"
        "from sandbox.audit.telemetry.settings import settings; assert settings(os.environ) is None;"
        "print([n for n in sys.modules if n.startswith(('opentelemetry', 'grpc', 'google.protobuf'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_request_over_http_says_so_and_the_server_behind_it_does_not() -> None:
    """The caller's side has HTTP and its session, the server's side its pipe and no session of ours."""
    projector, common = Projector(), {"trace": "1" * 32, "span": "2" * 16, "time": "2026-11-21T08:15:00.000000Z"}
    said = {"tool": "read", "transport": "http", "session_id": "digest", "protocol": "2025-11-25"}
    projector.take({**common, "name": "call.forward", "phase": "intent", "attrs": said})
    ended = {"tool": "read", "status": "ok", "duration_us": 10, "overhead_us": 1}
    found = projector.take({**common, "name": "call.forward", "phase": "outcome", "attrs": ended})
    server, client = (item for item in found if isinstance(item, Span))

    assert {"network.transport": "tcp", "network.protocol.name": "http", "mcp.session.id": "digest"}.items() <= (
        server.attributes.items()
    )
    assert "pipe" == client.attributes["network.transport"]
    assert {"mcp.session.id", "network.protocol.name"}.isdisjoint(client.attributes)


@pytest.mark.parametrize(
    ("environ", "signals", "problems"),
    [
        ({}, None, 0),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None, 0),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "TRUE"}, None, 0),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, dict.fromkeys(("traces", "logs", "metrics"), "http/protobuf"), 0),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://c"}, {"logs": "http/protobuf"}, 0),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/protobuf",
                "OTEL_METRICS_EXPORTER": "none",
            },
            {"traces": "grpc", "logs": "http/protobuf"},
            0,
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            {},
            1,
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "zipkin"}, {}, 1),
    ],
)
def test_settings_of_the_environment(environ: dict[str, str], signals: dict[str, str] | None, problems: int) -> None:
    """Which signals go where, per signal before general; what cannot be done is said and not guessed."""
    found = settings(environ)

    assert signals == (None if found is None else dict(found.signals))
    assert problems == (0 if found is None else len(found.problems))


def test_propagation_can_be_turned_off() -> None:
    """OTEL_PROPAGATORS without tracecontext: servers are told nothing."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_PROPAGATORS": "none"}
    found = settings(environ)

    assert found is not None
    assert not found.propagate


def test_variable_that_the_sdk_refuses_is_said(received: Received, tmp_path: Path, monkeypatch: Any) -> None:
    """An exporter that cannot be made is on record, and nothing else suffers."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "nonsense")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0")
    with recording(tmp_path) as recorder:
        session(recorder)
        deadline = time.monotonic() + 30
        while recorder._telemetry._listener.is_alive() and time.monotonic() < deadline:
            time.sleep(0.02)
    states = [record["attrs"] for record in query(tmp_path, Question(name="telemetry.state"))]

    assert ["failing", "ended"] == [state["state"] for state in states]
    assert "intact" == verify(tmp_path).state

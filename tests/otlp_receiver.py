"""An OTLP receiver of our own over both transports, made of the services of ``opentelemetry-proto``."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

PATIENCE = 60.0

REQUESTS: dict[str, Any] = {
    "/v1/traces": traces.ExportTraceServiceRequest,
    "/v1/logs": logs.ExportLogsServiceRequest,
    "/v1/metrics": metrics.ExportMetricsServiceRequest,
}


@dataclass
class Received:
    """What arrived.

    Attributes:
        answers: HTTP status or gRPC failure for the next requests; empty accepts everything.
    """

    endpoint: str = ""
    requests: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refuses: bool = False

    def take(self, request: Any, headers: dict[str, str]) -> None:
        self.requests.append(request)
        self.headers.append(headers)

    def spans(self) -> list[Any]:
        return [
            span
            for request in list(self.requests)
            for resource in getattr(request, "resource_spans", ())
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def logs(self) -> list[Any]:
        return [
            record
            for request in list(self.requests)
            for resource in getattr(request, "resource_logs", ())
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def metrics(self) -> dict[str, Any]:
        """Return the last of each metric by name."""
        return {
            metric.name: metric
            for request in list(self.requests)
            for resource in getattr(request, "resource_metrics", ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resources(self) -> list[dict[str, Any]]:
        return [
            attributes(resource.resource)
            for request in list(self.requests)
            for kind in ("resource_spans", "resource_logs", "resource_metrics")
            for resource in getattr(request, kind, ())
        ]

    def until(self, enough: Callable[[Received], Any]) -> None:
        """Wait until what arrived is enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough(self):
            assert time.monotonic() < deadline, [type(request).__name__ for request in self.requests]
            time.sleep(0.02)


def attributes(holder: Any) -> dict[str, Any]:
    """Return the attributes of a message as plain values."""
    found: dict[str, Any] = {}
    for item in holder.attributes:
        kind = item.value.WhichOneof("value")
        value = getattr(item.value, kind) if kind else None
        found[item.key] = [inner.string_value for inner in value.values] if kind == "array_value" else value
    return found


@contextmanager
def http_receiver() -> Iterator[Received]:
    """Receive OTLP over HTTP."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if received.refuses:
                self.send_response(400)
            else:
                received.take(REQUESTS[self.path].FromString(body), dict(self.headers.items()))
                self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's word
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_receiver() -> Iterator[Received]:
    """Receive OTLP over gRPC."""
    received = Received()

    def service(base: Any, response: Any) -> Any:
        class Service(base):  # type: ignore[misc]
            def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's word
                if received.refuses:
                    context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
                received.take(request, dict(context.invocation_metadata()))
                return response()

        return Service()

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        traces_grpc.add_TraceServiceServicer_to_server(
            service(traces_grpc.TraceServiceServicer, traces.ExportTraceServiceResponse), server
        )
        logs_grpc.add_LogsServiceServicer_to_server(
            service(logs_grpc.LogsServiceServicer, logs.ExportLogsServiceResponse), server
        )
        metrics_grpc.add_MetricsServiceServicer_to_server(
            service(metrics_grpc.MetricsServiceServicer, metrics.ExportMetricsServiceResponse), server
        )
        received.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield received
        finally:
            server.stop(None).wait()

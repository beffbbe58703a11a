"""Figures of a gateway for Prometheus and ``/metadata`` (S1-36, S1-43): no tenants, no arguments, bounded labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sandbox.errors import SandboxError
from sandbox.serve.around import Around
from sandbox.serve.client_model import CallInfo, Handler
from sandbox.vet.model import ExposedTool

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
"""Seconds of a call."""


class Figures:
    """Counts calls; everything else is read when it is asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Histogram(
            "mcp_sandbox_call_duration_seconds",
            "Tool calls by driver, tool and outcome",
            ("driver", "tool", "outcome"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.refused = Counter(
            "mcp_sandbox_refused_requests", "Requests refused at the door", ("reason",), registry=self.registry
        )
        self._sums: dict[str, list[float]] = {}

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a figure that is read when it is asked for."""
        Gauge(f"mcp_sandbox_{name}", text, registry=self.registry).set_function(read)

    def call(self, driver: str, tool: str, outcome: str, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(driver, tool, outcome).observe(seconds)
        sums = self._sums.setdefault(f"{driver}/{tool}", [0, 0, 0.0])
        sums[0] += 1
        sums[1] += outcome != "ok"
        sums[2] += seconds

    def summary(self) -> dict[str, dict[str, float]]:
        """Return calls, rates and average milliseconds by tool."""
        return {
            name: {
                "calls": count,
                "success_rate": round(1 - failed / count, 4),
                "error_rate": round(failed / count, 4),
                "average_ms": round(1000 * seconds / count, 3),
            }
            for name, (count, failed, seconds) in sorted(self._sums.items())
        }

    def text(self) -> bytes:
        """Return the Prometheus text."""
        return generate_latest(self.registry)


class Counted(Around):
    """A handler whose tool calls are counted.

    Args:
        inner: carries the requests.
        figures: where they are counted.
        driver: id.
    """

    def __init__(self, inner: Handler, figures: Figures, driver: str) -> None:
        super().__init__(inner)
        self._figures = figures
        self._driver = driver

    async def call_tool(self, tool: ExposedTool, arguments: dict[str, Any], call: CallInfo) -> dict[str, Any]:
        """Carry and count one call."""
        started, outcome = time.perf_counter(), "cancelled"
        try:
            result = await self._inner.call_tool(tool, arguments, call)
            outcome = "error" if result.get("isError") else "ok"
        except SandboxError:
            outcome = "failed"
            raise
        finally:
            self._figures.call(self._driver, tool.name, outcome, time.perf_counter() - started)
        return result

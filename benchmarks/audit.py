"""Cost of evidence: records a second and latency of a call in both durabilities, verification, questions, the report.

Run: ``python benchmarks/audit.py [--records N] [--report]``. Writes ``benchmarks/results/audit.json``, from which the
table of ``benchmarks/README.md`` is made. ``--report`` opens fifty thousand records in Chromium too (Playwright), and
with ``--screenshot`` takes the picture of the documentation. The trail lies in ``--place`` (a real disk, not memory).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sandbox.audit.findings import Report, StreamReport
from sandbox.audit.index import FILE
from sandbox.audit.ledger import Durability
from sandbox.audit.query import Question, query
from sandbox.audit.recorder import LedgerRecorder, open_recorder
from sandbox.audit.report import page, report
from sandbox.audit.verify import verify
from sandbox.events import Scope, Trace

RESULTS: Final = Path(__file__).parent / "results" / "audit.json"
TOOLS: Final = ("read", "write", "search", "list")
TENANTS: Final = ("ada", "bob", "eve")
QUESTIONS: Final = {
    "tenant and decision": Question(tenant="ada", decision="deny"),
    "tool": Question(tool="write"),
    "host": Question(host="h77.example.test"),
    "time": Question(since="2000", until="2999", limit=1000),
    "one trace": Question(),
}


def call(scope: Scope, number: int) -> None:
    """Record one call as the pipeline does: intent, outcome, and for every fourth a denied connection between them."""
    one, tool = scope.child(), TOOLS[number % len(TOOLS)]
    one.intent(
        "call.forward",
        tool=tool,
        mcp_tool_name=f"{tool}_file",
        decision="allow",
        rules=["declared"],
        client="inspector",
        arguments={"path": "string(31)"},
        request_id=str(number),
        protocol="2025-11-25",
    )
    if number % 4 == 0:
        host = f"h{number % 1000}.example.test"
        scope.fact("egress.connect", host=host, port=443, decision="deny", reason="EGR-101", calls=[one.trace.span_id])
    one.outcome("call.forward", tool=tool, status="ok", duration_us=900 + number % 500, overhead_us=60 + number % 40)


def filled(folder: Path, records: int) -> None:
    """Write a trail of that many records, in sessions of a thousand calls of three tenants."""
    recorder = open_recorder(folder, "bench")
    number = 0
    while recorder.ledger.size < records:
        if number % 1000 == 0:
            tenant = TENANTS[number // 1000 % len(TENANTS)]
            scope = Scope(recorder, Trace.new(), driver="files-mcp", tenant=tenant, instance="4f0c")
        call(scope, number)
        number += 1
    recorder.close()


def recording(folder: Path, durability: Durability, calls: int) -> dict[str, float]:
    """Return records a second and what recording adds to one call (intent and outcome), microseconds."""
    recorder: LedgerRecorder = open_recorder(folder, "bench", durability=durability)
    scope = Scope(recorder, Trace.new(), driver="files-mcp", tenant="ada", instance="4f0c")
    times = []
    gc.collect()
    begun, before = time.perf_counter(), recorder.ledger.size
    for number in range(1, 4 * calls + 1):
        if number % 4:
            started = time.perf_counter_ns()
            call(scope, number)
            times.append((time.perf_counter_ns() - started) / 1000)
    rate = (recorder.ledger.size - before) / (time.perf_counter() - begun)
    recorder.close()
    times.sort()
    return {
        "records_per_second": round(rate),
        "call_p50_us": round(statistics.median(times), 1),
        "call_p99_us": round(times[int(len(times) * 0.99)], 1),
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def questions(folder: Path) -> dict[str, float]:
    """Return the worst of five askings of each question, milliseconds, the index being there."""
    first = next(query(folder, Question(name="call.forward", limit=1)))
    found = {}
    for name, question in QUESTIONS.items():
        asked = Question(trace=first["trace"]) if name == "one trace" else question
        found[name] = round(1000 * max(timed(lambda asked=asked: list(query(folder, asked)))[0] for _ in range(5)), 1)
    return found


def showcase() -> list[dict[str, Any]]:
    """Return five hours of three tenants, for the picture in the documentation."""
    found, chance = [], random.Random(7)
    places = (
        ("api.example.com", 443, '- "api.example.com"'),
        ("metrics.example", 8125, '- "tcp://metrics.example:8125"'),
    )
    for number in range(300):
        moment = f"2026-11-21T{8 + number // 60:02d}:{number % 60:02d}:{chance.randrange(60):02d}.000000Z"
        tool, span = TOOLS[chance.randrange(4)], f"{number:016x}"
        common = {"time": moment, "trace": "4bf92f3577b34da6a3ce929d0e0e4736", "span": span, "stream": "s"}
        common |= {"driver": "files-mcp", "tenant": TENANTS[chance.randrange(3)], "name": "call.forward"}
        begun = {"tool": tool, "client": "inspector", "decision": "allow"}
        found.append({**common, "seq": number, "phase": "intent", "attrs": begun})
        if chance.random() < 0.12:
            host, port, line = places[chance.randrange(2)]
            why = {"reason": "EGR-101", "why": "the driver does not name it", "allow_line": line, "count": 1}
            about = {"host": host, "port": port, "decision": "deny", "calls": [span], **why}
            found.append({**common, "name": "egress.connect", "seq": number, "phase": "fact", "attrs": about})
        ended = {"tool": tool, "status": "error" if chance.random() < 0.03 else "ok"}
        ended |= {"duration_us": 600 + chance.randrange(900), "overhead_us": 70}
        found.append({**common, "seq": number, "phase": "outcome", "attrs": ended})
    return found


def in_browser(folder: Path, screenshot: Path | None) -> dict[str, float]:
    """Return what opening and searching a page of fifty thousand records takes, milliseconds."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only with --report

    from tests.browser import FLAGS  # noqa: PLC0415

    seconds, data = timed(lambda: report(folder, Question(limit=50_000)))
    place = folder / "report.html"
    place.write_bytes(data)
    opened, searched = [], []
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS, headless=True)
        for _ in range(5):
            tab = browser.new_page()
            started = time.perf_counter()
            tab.goto(place.as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            tab.focus("#search")
            opened.append(1000 * (time.perf_counter() - started))
            before = tab.inner_text("#found")
            started = time.perf_counter()
            tab.keyboard.type("h77.example")
            while tab.inner_text("#found") == before:
                time.sleep(0.005)
            searched.append(1000 * (time.perf_counter() - started))
            tab.close()
        if screenshot is not None:
            tab = browser.new_page(viewport={"width": 1180, "height": 1500})
            small = folder / "small.html"
            verdict = Report("intact", (StreamReport("s", records=912, signed=912, keys=["k"]),), (), pinned=True)
            small.write_bytes(page(showcase(), verdict))
            tab.goto(small.as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            tab.screenshot(path=str(screenshot))
        browser.close()
    return {
        "made_ms": round(1000 * seconds),
        "megabytes": round(len(data) / 1e6, 1),
        "interactive_ms": round(statistics.median(opened)),
        "interactive_worst_ms": round(max(opened)),
        "search_ms": round(statistics.median(searched)),
    }


def main() -> int:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument("--place", type=Path, default=Path("/var/tmp"))
    given = parser.parse_args()
    random.seed(1)
    found: dict[str, Any] = {
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    }
    with tempfile.TemporaryDirectory(dir=given.place) as scratch:
        base = Path(scratch)
        for durability in ("kernel", "disk"):
            found[durability] = recording(base / durability, durability, given.calls)
        large = base / "large"
        filled(large, given.records)
        seconds = min(timed(lambda: verify(large))[0] for _ in range(3))
        whole = verify(large)
        per_second = round(whole.records / seconds)
        found["verify"] = {"state": whole.state, "records": whole.records, "records_per_second": per_second}
        found["index"] = {"seconds": round(timed(lambda: list(query(large, Question(limit=1))))[0], 1)}
        found["index"]["megabytes"] = round((large / FILE).stat().st_size / 1e6)
        found["query_ms"] = questions(large)
        if given.report:
            small = base / "small"
            filled(small, 50_000)
            found["report"] = in_browser(small, given.screenshot)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

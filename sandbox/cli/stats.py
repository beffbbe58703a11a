"""Show what every running server uses: processor, memory and its peak, processes, bytes, calls; and its supervisor.

Figures of servers are the engine's (cgroups); those of supervisors are the operating system's. Driver, tenant, calls
and bytes come from the audit trail: bytes are those of connections that have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.audit.query import MAX_RESULTS, Question, query
from sandbox.cli import options
from sandbox.cli.bench import engine, run_async
from sandbox.errors import PlatformError, UsageError
from sandbox.launch import usage
from sandbox.launch.engine import Engine
from sandbox.launch.interface import LABEL_OWNER, LABEL_ROLE

SERVERS: Final = f"{LABEL_ROLE}=server"

MAX_INTERVAL: Final = 3600.0
"""Seconds between two looks."""


@dataclass(slots=True)
class Row:
    """One running server; sizes in bytes, times in seconds, ``None`` where nobody says.

    Attributes:
        cpu_percent: of one processor, since the look before; ``None`` at the first.
        bytes_up: of connections that have ended.
        supervisor: process id, processes, threads, memory and processor time of what supervises it.
    """

    instance: str
    driver: str = ""
    tenant: str = ""
    calls: int = 0
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_seconds: float | None = None
    cpu_percent: float | None = None
    pids: int | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    uptime: float = 0.0
    supervisor: dict[str, Any] | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_audit_options(parser, reading=True)
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument("--json", action="store_true", help="print one JSON array for each look")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")


def execute(arguments: argparse.Namespace) -> int:
    """Look until interrupted, or once."""
    if not 0 < arguments.interval <= MAX_INTERVAL:
        raise UsageError("CLI-161", f"--interval {arguments.interval} is not usable", "give 0.1 to 3600 seconds")
    return run_async(functools.partial(_watch, arguments))


async def _watch(arguments: argparse.Namespace) -> int:
    async with engine() as backend:
        known: dict[str, Row] = {}
        if arguments.json or arguments.once:
            while True:
                known = await look(backend.engine, arguments.audit_dir, known, arguments.interval)
                print(
                    json.dumps([asdict(row) for row in known.values()]) if arguments.json else text(known), flush=True
                )
                if arguments.once:
                    return 0
                await asyncio.sleep(arguments.interval)
        from rich.live import Live  # only those who watch pay for it

        with Live(table({}), auto_refresh=False) as live:
            while True:
                known = await look(backend.engine, arguments.audit_dir, known, arguments.interval)
                live.update(table(known), refresh=True)
                await asyncio.sleep(arguments.interval)


async def look(asked: Engine, folder: Path, before: dict[str, Row], interval: float) -> dict[str, Row]:
    """Return the running servers by instance.

    Args:
        asked: engine.
        folder: of the audit trail; without one, driver, tenant, calls and bytes stay empty.
        before: the look before, ``interval`` seconds ago.
        interval: seconds.

    Raises:
        PlatformError: the engine does not answer.
    """
    found = {}
    for listed in await asked.labelled("containers", SERVERS):
        if listed.get("State") == "running":
            row = await _row(asked, listed)
            if row is not None:
                found[row.instance] = row
    for row in found.values():
        await asyncio.to_thread(_from_trail, row, folder)
        earlier = before.get(row.instance)
        if earlier is not None and row.cpu_seconds is not None and earlier.cpu_seconds is not None:
            row.cpu_percent = round(100 * (row.cpu_seconds - earlier.cpu_seconds) / interval, 1)
    return found


async def _row(asked: Engine, listed: dict[str, Any]) -> Row | None:
    """Return the figures of one container; ``None`` when it has ended meanwhile."""
    instance = str(listed["Id"])
    try:
        sample = await asked.stats(instance)
        state = (await asked.inspect(instance)).get("State") or {}
    except PlatformError:
        return None
    if not sample:
        return None
    figures = usage.from_stats(sample)
    return Row(
        instance,
        memory_bytes=figures.memory_bytes,
        memory_peak_bytes=figures.memory_peak_bytes or usage.peak_of(int(state.get("Pid") or 0)),
        memory_limit_bytes=(sample.get("memory_stats") or {}).get("limit"),
        cpu_seconds=figures.cpu_seconds,
        pids=figures.pids,
        uptime=round(time.time() - float(listed.get("Created") or time.time()), 1),
        supervisor=await asyncio.to_thread(_supervisor, (listed.get("Labels") or {}).get(LABEL_OWNER, "")),
    )


def _supervisor(owner: str) -> dict[str, Any] | None:
    """Return the figures of the process that a label names."""
    parts = owner.split(":")
    pid = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0
    figures = usage.processes(pid) if pid else {}
    return {"pid": pid, **figures} if figures else None


def _from_trail(row: Row, folder: Path) -> None:
    """Add what the audit trail says of an instance."""
    if not (folder / "segments").is_dir():
        return
    for record in query(folder, Question(instance=row.instance, limit=MAX_RESULTS)):
        attrs, phase = record.get("attrs", {}), record.get("phase")
        row.driver, row.tenant = record.get("driver", row.driver), record.get("tenant", row.tenant)
        row.calls += record.get("name") == "call.forward" and phase == "intent"
        if record.get("name") == "egress.connect" and phase == "outcome":
            row.bytes_up += attrs.get("bytes_up") or 0
            row.bytes_down += attrs.get("bytes_down") or 0


# --- shown
HEADS: Final = ("instance", "driver", "tenant", "calls", "cpu", "memory", "peak", "limit", "pids", "up", "down", "age")


def cells(row: Row) -> tuple[str, ...]:
    """Return a row for people."""
    cpu = f"{row.cpu_percent:.0f} %" if row.cpu_percent is not None else _seconds(row.cpu_seconds)
    sizes = (row.memory_bytes, row.memory_peak_bytes, row.memory_limit_bytes)
    traffic = (size(row.bytes_up), size(row.bytes_down), _seconds(row.uptime))
    pids = "-" if row.pids is None else str(row.pids)
    names = (row.instance[:12], row.driver or "-", row.tenant or "-", str(row.calls))
    return (*names, cpu, *map(size, sizes), pids, *traffic)


def size(number: int | None) -> str:
    """Return bytes for people, in units of 1024."""
    if number is None:
        return "-"
    value, unit = float(number), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":  # noqa: PLR2004 - the step between units
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def _seconds(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f} s"


def text(known: dict[str, Row]) -> str:
    """Return the table as plain text."""
    rows = [HEADS, *(cells(row) for row in known.values())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def table(known: dict[str, Row]) -> Any:
    """Return the table for a terminal that is drawn again and again."""
    from rich.table import Table  # only those who watch pay for it
    from rich.text import Text

    shown = Table(*HEADS, title=f"{len(known)} servers")
    for row in known.values():
        shown.add_row(*map(Text, cells(row)))
    return shown

"""Run a server with every destination denied, record what it tries, and propose the smallest change of DRIVER.md.

The server starts, is vetted, gets the calls that are asked for, and is removed. Whatever it looks up or connects to is
refused and recorded. The change that would allow it is printed as a unified diff and applied only with --write: read
it first, for the server had reasons of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox import jsontext
from sandbox.cli import options
from sandbox.cli.bench import Bench, bench, run_async
from sandbox.cli.evidence import trail
from sandbox.cli.progress import person
from sandbox.cli.report import line_of, say
from sandbox.cli.run import add_serving_options, until_signalled
from sandbox.errors import SandboxError, UsageError
from sandbox.events import Fact, Recorder
from sandbox.supervisor import Options, open_server
from sandbox.supervisor.admission import LiveServer

WAIT: Final = 2.0
"""Seconds after the last call in which a server may try more: telemetry and update checks are often late."""

MAX_EVENTS: Final = 10_000
"""Facts looked at; a flood is counted by the broker long before."""

MAX_TEXTS: Final = 2_000
"""Lines of stderr and results that are looked through."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    parser.add_argument(
        "--call",
        action="append",
        default=[],
        metavar="TOOL[=JSON]",
        help='call a tool, such as --call \'fetch={"url": "https://api.example.com"}\'; may be repeated',
    )
    parser.add_argument(
        "--script", type=options.path, metavar="FILE", help='calls, one JSON object a line: {"tool": …, "arguments": …}'
    )
    parser.add_argument(
        "--wait", type=float, default=WAIT, metavar="S", help=f"seconds to listen after the last call (default {WAIT})"
    )
    parser.add_argument("--write", action="store_true", help="apply the proposed change to DRIVER.md")
    parser.add_argument("--json", action="store_true", help="print the proposal as JSON instead of a diff")
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    add_serving_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Start, call, listen, propose."""
    calls = [*map(_call_of, arguments.call), *_script(arguments.script)]
    with trail(arguments) as recorder:
        work = functools.partial(_learn, arguments, Watching(recorder), calls)
        return run_async(functools.partial(until_signalled, work))


@dataclass(frozen=True, slots=True)
class Call:
    """One call to make."""

    tool: str
    arguments: dict[str, Any]


class Watching:
    """Records through another recorder and remembers what concerns the network and the calls."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.facts: list[Fact] = []

    def record(self, fact: Fact) -> None:
        """Record a fact; what cannot be recorded is not remembered."""
        self._recorder.record(fact)
        if len(self.facts) < MAX_EVENTS and fact.name in {"egress.dns", "egress.connect", "call.forward", "teardown"}:
            self.facts.append(fact)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

    def named(self, *names: str) -> list[Mapping[str, Any]]:
        """Return the attributes of remembered facts."""
        return [fact.attrs for fact in self.facts if fact.name in names]


async def _learn(arguments: argparse.Namespace, watching: Watching, calls: list[Call]) -> int:
    texts: list[str] = []

    def said(line: bytes) -> None:
        if len(texts) < MAX_TEXTS:
            texts.append(line.decode("utf-8", "replace"))

    async with bench(arguments, watching, person(), learning=True) as ready:
        try:
            chosen = Options(names=arguments.names, on_stderr=said)
            async with open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, chosen) as live:
                await _calls(live, ready, arguments, calls, texts)
                await asyncio.sleep(arguments.wait)
        except SandboxError as error:  # a server that needs its network to start has still shown what it needs
            texts.append(str(error))
            say(line_of(f"mcp-sandbox: the server did not get through: {error}"))
    return _proposed(arguments, ready, watching, texts)


async def _calls(
    live: LiveServer, ready: Bench, arguments: argparse.Namespace, calls: list[Call], texts: list[str]
) -> None:
    """Make the calls one after the other, each through the pipeline that a client's go through."""
    from sandbox.cli.call import call_once

    for call in calls:
        try:
            result = await call_once(live, ready, arguments, call.tool, call.arguments)
        except UsageError:
            raise
        except SandboxError as error:
            texts.append(str(error))
            continue
        texts += [str(block.get("text", "")) for block in result.get("content", ()) if isinstance(block, dict)]
        state = "error" if result.get("isError") else "ok"
        say(line_of(f"mcp-sandbox: {call.tool}: {state}"))


def _proposed(arguments: argparse.Namespace, ready: Bench, watching: Watching, texts: list[str]) -> int:
    """Tell what was tried, show the change, and write it when that is asked for."""
    from sandbox.cli.learned import Tried, propose
    from sandbox.cli.wiring import load_policy
    from sandbox.spec.edit import NotEditable, changed

    (teardown,) = watching.named("teardown")[-1:] or ({},)
    tried = Tried(
        events=watching.named("egress.dns", "egress.connect"),
        texts=texts,
        errors=[str(attrs["error"]) for attrs in watching.named("call.forward") if attrs.get("error")],
        oom_killed=bool(teardown.get("oom_killed")),
        memory_peak=int((teardown.get("usage") or {}).get("memory_peak_bytes") or 0),
    )
    proposal = propose(ready.spec, ready.plan, load_policy(arguments.policy).bounds, tried)
    file = Path(ready.spec.folder) / "DRIVER.md"
    before = file.read_bytes()
    try:
        after = changed(before, proposal.changes)
    except NotEditable as error:
        shown = json.dumps({**proposal.changes.added, **proposal.changes.set})
        raise UsageError("CLI-112", f"{file} cannot be changed by this program: {error}", f"add {shown}") from None
    for line in (*_tried(tried.events), *proposal.notes):
        say(line_of(f"mcp-sandbox: {line}"))
    diff = "".join(_diff(before, after, ready.spec.file))
    if arguments.json:
        body = {"added": proposal.changes.added, "set": proposal.changes.set, "notes": proposal.notes, "diff": diff}
        print(json.dumps(body))
    else:
        print(diff, end="")
    _finish(file, after if after != before else None, write=arguments.write)
    return 0


def _finish(file: Path, after: bytes | None, *, write: bool) -> None:
    """Write the change, or say how."""
    if after is None:
        say("mcp-sandbox: nothing to propose: it tried nothing that DRIVER.md does not allow")
    elif write:
        fresh = file.with_name(f".{file.name}.{os.getpid()}")
        fresh.write_bytes(after)
        fresh.chmod(file.stat().st_mode & 0o777)
        fresh.replace(file)
        say(line_of(f"mcp-sandbox: changed {file}; look at it with `mcp-sandbox plan`"))
    else:
        say("mcp-sandbox: nothing was changed; add what you agree with, or run again with --write")


def _tried(events: list[Mapping[str, Any]]) -> list[str]:
    """Return one line for each destination that was tried, with how often."""
    counts: dict[str, int] = {}
    for event in events:
        if event.get("decision") != "deny" and "type" not in event:
            continue
        kind = "lookup of " if "type" in event else ""
        port = f":{event['port']}" if event.get("port") else ""
        protocol = f" ({event['protocol']})" if event.get("protocol", "tcp") != "tcp" else ""
        name = f"{kind}{event.get('host')}{port}{protocol}"
        counts[name] = counts.get(name, 0) + int(event.get("count") or 1)
    return [f"tried {name}, {count} times" if count > 1 else f"tried {name}" for name, count in counts.items()]


def _diff(before: bytes, after: bytes, name: str) -> Iterator[str]:
    """Yield the lines of a unified diff."""
    old, new = (data.decode("utf-8").splitlines(keepends=True) for data in (before, after))
    for line in difflib.unified_diff(old, new, name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _call_of(text: str) -> Call:
    """Return the call of one ``--call``.

    Raises:
        UsageError: ``CLI-110``, what follows the tool is not a JSON object.
    """
    tool, _, body = text.partition("=")
    return Call(tool, _object(body or "{}", "CLI-110", f"--call {tool}"))


def _script(file: Path | None) -> list[Call]:
    """Return the calls of a script.

    Raises:
        UsageError: ``CLI-111``, a line is not a call.
    """
    if file is None:
        return []
    calls = []
    for number, line in enumerate(options.read_file(file).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        body = _object(line, "CLI-111", f"{file}:{number}")
        tool, sent = body.get("tool"), body.get("arguments", {})
        if not isinstance(tool, str) or not isinstance(sent, dict) or body.keys() - {"tool", "arguments"}:
            raise UsageError("CLI-111", f"{file}:{number} is not a call", 'write {"tool": "name", "arguments": {}}')
        calls.append(Call(tool, sent))
    return calls


def _object(text: str, id_: str, place: str) -> dict[str, Any]:
    try:
        value = jsontext.parse(text.encode())
    except jsontext.JsonTextError as error:
        raise UsageError(id_, f"{place}: not JSON: {error}", 'write {"path": "/workspace"}') from None
    if not isinstance(value, dict):
        raise UsageError(id_, f"{place}: not a JSON object", 'write {"path": "/workspace"}')
    return value

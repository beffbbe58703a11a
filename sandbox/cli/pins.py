"""What was approved of a driver's server: show it, compare it with what the server offers now, approve that.

`show` prints what driver.lock holds and starts nothing. `diff` starts the server in its sandbox, without a network and
with made-up secrets, asks what it offers and shows field by field what differs from what was approved. `approve` shows
the same and writes it into driver.lock; what would not be served (it does not fit its contracts, or hides text) is not
approved. With --expect only the surface with that digest is approved: the one that `diff` has shown.

In front of a field: > allows more, ~ reads differently, ? not decided (all three wait for approval), < allows less,
= means the same, · noted. Exit status of `diff`: 0 nothing waits for approval, 3 something does.
"""

from __future__ import annotations

import argparse
import functools
import json
from typing import TYPE_CHECKING, Any

from sandbox.cli import options
from sandbox.cli.evidence import trail
from sandbox.cli.report import line_of
from sandbox.errors import UsageError, VetRefused

if TYPE_CHECKING:
    from sandbox.events import Recorder, Scope
    from sandbox.plan.model import SandboxPlan
    from sandbox.spec.model import DriverSpec
    from sandbox.supervisor.options import Options
    from sandbox.vet.drift import Change
    from sandbox.vet.model import ServerSurface
    from sandbox.vet.pins import Pins


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("action", choices=("show", "diff", "approve"))
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    parser.add_argument("--all", action="store_true", help="also show what nobody has to decide")
    parser.add_argument("--expect", metavar="DIGEST", default="", help="approve: only this surface, as `diff` named it")
    parser.add_argument(
        "--rules",
        type=options.path,
        metavar="DIR",
        help="folder of Cedar rules: they decide what the server may ask for",
    )
    parser.add_argument("--online", action="store_true", help="start the server with its network and its secrets")
    parser.add_argument("--json", action="store_true", help="print JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Show, compare or approve."""
    if arguments.expect and arguments.action != "approve":
        raise UsageError("CLI-130", "--expect belongs to `approve`", "say which surface is to be approved there")
    if arguments.action == "show":
        return _show(arguments)
    from sandbox.cli.bench import run_async
    from sandbox.cli.run import until_signalled

    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_surveyed, arguments, recorder)))


# --- show ----------------------------------------------------------------------------------------------------------
def _show(arguments: argparse.Namespace) -> int:
    from sandbox.spec.load import load_driver
    from sandbox.vet import pins
    from sandbox.vet.reading import plain

    spec = load_driver(arguments.driver)
    approved = pins.read(spec.folder)
    if approved is None:
        mend = f"run `mcp-sandbox pins approve {arguments.driver}`"
        raise UsageError("CLI-131", f"{spec.folder}/driver.lock: nothing of this server was approved yet", mend)
    if arguments.json:
        print(json.dumps(pins.encode(approved), indent=1))
        return 0
    bound = {binding.tool_name: binding.contract.id for binding in spec.bindings}
    for key, surface in approved.surfaces.items():
        print(f"approved for a client with {key}: {pins.digest_of(surface)}")
        name, version = (plain(str(surface.server_info.get(field, ""))) for field in ("name", "version"))
        print(f"  {name} {version}, protocol {surface.protocol_version}")
        for tool in surface.tools:
            print(f"  {plain(tool)}: {'bound as ' + bound[tool] if tool in bound else 'not bound'}")
    return 0


# --- diff and approve ----------------------------------------------------------------------------------------------
async def _surveyed(arguments: argparse.Namespace, recorder: Recorder) -> int:
    """Ask the server what it offers, compare, and approve when asked to."""
    from sandbox.supervisor.approving import approve, may_approve
    from sandbox.vet import pins
    from sandbox.vet.pinning import declared

    spec, plan, surface, scope = await (_online if arguments.online else _offline)(arguments, recorder)
    known = pins.read(spec.folder)
    offered = declared(surface, spec)
    changes = _changes(spec, known, offered)
    if arguments.action == "approve":
        may_approve(spec, plan, offered, scope, arguments.expect)
    _tell(arguments, spec, offered, known, changes)
    if arguments.action == "diff":
        waits = any(change.waits for change in changes or ()) or changes is None
        return VetRefused.exit_code if waits else 0
    approve(spec, offered, scope)
    return 0


async def _offline(
    arguments: argparse.Namespace, recorder: Recorder
) -> tuple[DriverSpec, SandboxPlan, ServerSurface, Scope]:
    from sandbox.cli.bench import engine
    from sandbox.cli.offline import offline
    from sandbox.cli.progress import finished, person
    from sandbox.events import Scope, Trace
    from sandbox.supervisor.survey import survey

    async with engine() as backend:
        progress = person()
        try:
            review, secrets = await offline(arguments, backend, progress)
        finally:
            finished(progress)
        scope = Scope(recorder, Trace.new(), driver=review.spec.id)
        review.record(scope)
        surface = await survey(backend, review.spec, review.plan, scope, secrets, _as_run(arguments))
    return review.spec, review.plan, surface, scope


async def _online(
    arguments: argparse.Namespace, recorder: Recorder
) -> tuple[DriverSpec, SandboxPlan, ServerSurface, Scope]:
    from sandbox.cli.bench import bench
    from sandbox.cli.progress import person
    from sandbox.supervisor.survey import survey

    async with bench(arguments, recorder, person()) as ready:
        surface = await survey(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, _as_run(arguments))
        return ready.spec, ready.plan, surface, ready.scope


def _as_run(arguments: argparse.Namespace) -> Options:
    """Return how a server is opened so that it is told of its client what `run` tells it."""
    from sandbox.cli.approved import askable
    from sandbox.supervisor.options import Options

    return Options(capabilities=askable(arguments))


def _changes(spec: DriverSpec, known: Pins | None, offered: ServerSurface) -> tuple[Change, ...] | None:
    """Return what differs from what was approved for such a client, ``None`` when nothing was."""
    import time

    from sandbox.vet.containment import Options
    from sandbox.vet.drift import drift
    from sandbox.vet.pinning import declared

    approved = known.under(offered.client_capabilities) if known is not None else None
    if approved is None:
        return None
    return drift(declared(approved, spec), offered, _bound(spec), Options(clock=time.monotonic))


def _bound(spec: DriverSpec) -> set[str]:
    return {binding.tool_name for binding in spec.bindings}


def _tell(
    arguments: argparse.Namespace,
    spec: DriverSpec,
    offered: ServerSurface,
    known: Pins | None,
    changes: tuple[Change, ...] | None,
) -> None:
    from sandbox.supervisor.approving import everything
    from sandbox.vet import pins, reading

    key, digest = pins.key_of(offered.client_capabilities), pins.digest_of(offered)
    if arguments.json:
        body: dict[str, Any] = {
            "driver": spec.id,
            "client_capabilities": dict(offered.client_capabilities),
            "approved": changes is not None,
            "written": arguments.action == "approve",
            "digest": digest,
            "waits": sum(change.waits for change in changes) if changes is not None else len(offered.tools),
            "changes": [reading.to_json(change) for change in changes or ()],
        }
        print(json.dumps(body, indent=1))
        return
    if changes is None:
        told = reading.lines(everything(spec, offered), every=True)
        others = f" (only for clients with {', '.join(sorted(known.surfaces))})" if known and known.surfaces else ""
        print(f"nothing was approved yet for a client with {key}{others}; the server offers:")
    else:
        told = reading.lines(changes, every=arguments.all)
        waiting = sum(change.waits for change in changes)
        print(f"waiting for approval: {waiting} of {len(changes)} changes (client with {key})")
    print("\n".join(map(line_of, told)) or "nothing to decide")
    if arguments.action == "approve":
        print(f"approved {digest} in {line_of(spec.folder)}/driver.lock: keep it with DRIVER.md")
    elif changes or changes is None:
        print(f"approve with `mcp-sandbox pins approve {line_of(spec.file)} --expect {digest}`")

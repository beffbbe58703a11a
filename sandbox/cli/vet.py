"""Vet a driver's server: does each tool provably keep its contract, and does what it says hide anything?

The server is started in its sandbox without a network and with made-up secrets, asked what it offers, and removed. For
each tool: fits, or a counterexample, or undecided; hazards; and whether it is what was approved in driver.lock. With
--pinned nothing is started: what was approved is vetted against the contracts as they are now. Exit status 0 when the
driver would be admitted, 1 when the folder is not valid, 3 when it would be refused.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.cli import options
from sandbox.cli.evidence import trail
from sandbox.cli.report import line_of
from sandbox.errors import SandboxError, UsageError, VetRefused

if TYPE_CHECKING:
    from sandbox.events import Recorder
    from sandbox.plan.model import SandboxPlan
    from sandbox.spec.model import DriverSpec
    from sandbox.vet.findings import Finding
    from sandbox.vet.model import ServerSurface
    from sandbox.vet.report import PinState, VetReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the report as JSON (docs/schemas/vet.schema.json)")
    form.add_argument("--sarif", action="store_true", help="print SARIF 2.1.0, with paths relative to this folder")
    parser.add_argument("--pinned", action="store_true", help="vet what driver.lock approved, and start nothing")


def execute(arguments: argparse.Namespace) -> int:
    """Survey, judge, report."""
    try:
        report = _pinned(arguments) if arguments.pinned else _surveyed(arguments)
    except SandboxError as error:
        if not arguments.sarif:
            raise
        from sandbox.vet import sarif

        print(json.dumps(sarif.of_error(error, str(arguments.driver), Path.cwd()), indent=1))
        return error.exit_code
    _print(report, arguments)
    return 0 if report.ok else VetRefused.exit_code


def _print(report: VetReport, arguments: argparse.Namespace) -> None:
    if arguments.sarif:
        from sandbox.vet import sarif

        print(json.dumps(sarif.of_findings(report.findings, report.spec, Path.cwd()), indent=1))
    elif arguments.json:
        print(json.dumps(report.to_json(), indent=1))
    else:
        print("\n".join(line_of(line) for line in report.to_text()))


# --- what is judged ---------------------------------------------------------------------------------------------------
def _pinned(arguments: argparse.Namespace) -> VetReport:
    """Judge what was approved.

    Raises:
        UsageError: ``CLI-141``, nothing was.
    """
    from sandbox.spec.load import load_driver
    from sandbox.vet import pins

    spec = load_driver(arguments.driver)
    approved = pins.read(spec.folder)
    if approved is None or not approved.surfaces:
        mend = "review the server and run `mcp-sandbox pins approve`, or vet it without --pinned"
        raise UsageError("CLI-141", f"{spec.file}: nothing of its server was approved in driver.lock", mend)
    return judged(spec, next(iter(approved.surfaces.values())), unsafe=_unsafe(arguments), source="pins")


def _surveyed(arguments: argparse.Namespace) -> VetReport:
    from sandbox.cli.bench import run_async
    from sandbox.cli.run import until_signalled

    found: list[VetReport] = []
    with trail(arguments) as recorder:
        status = run_async(functools.partial(until_signalled, functools.partial(_run, arguments, recorder, found)))
    if not found:
        raise SystemExit(status)
    return found[0]


async def _run(arguments: argparse.Namespace, recorder: Recorder, found: list[VetReport]) -> int:
    """Run the server without a network and judge what it offers."""
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
        surface = await survey(backend, review.spec, review.plan, scope, secrets)
    found.append(judged(review.spec, surface, unsafe=_admits(review.plan)))
    return 0


def _admits(plan: SandboxPlan) -> bool:
    from sandbox.supervisor.admission import ADMIT_UNDECIDED

    return ADMIT_UNDECIDED in plan.unsafe


def _unsafe(arguments: argparse.Namespace) -> bool:
    from sandbox.cli.wiring import load_policy
    from sandbox.supervisor.admission import ADMIT_UNDECIDED

    return load_policy(arguments.policy).unsafe_on(ADMIT_UNDECIDED) is not None


def judged(spec: DriverSpec, surface: ServerSurface, *, unsafe: bool = False, source: Any = "server") -> VetReport:
    """Return the report about a driver and what its server offers; a binding that fails is a finding, not an error."""
    from sandbox.vet.bind import bind
    from sandbox.vet.findings import Finding
    from sandbox.vet.judgement import Judgement, judge
    from sandbox.vet.model import Fitting
    from sandbox.vet.report import VetReport

    state, held = _standing(spec, surface)
    refused: tuple[Finding, ...] = ()
    try:
        judgement = judge(bind(spec, surface), Fitting(unsafe_admit_undecided=unsafe))
    except VetRefused as refusal:
        judgement = Judgement(())
        refused = (Finding(refusal.id, "block", "", f"{spec.file}:1", refusal.message, refusal.mend),)
    return VetReport(spec, surface, judgement, state, refused, held, source)


def _standing(spec: DriverSpec, surface: ServerSurface) -> tuple[PinState, tuple[Finding, ...]]:
    """Return how the server stands against what was approved of it, and what is out of service for that."""
    from sandbox.vet import pins
    from sandbox.vet.findings import Finding
    from sandbox.vet.pinning import declared, stand

    approved = pins.read(spec.folder)
    known = approved.under(surface.client_capabilities) if approved else None
    if known is None:
        return "absent", ()
    known = declared(known, spec)
    if pins.digest_of(known) == pins.digest_of(declared(surface, spec)):
        return "match", ()
    standing = stand(spec, known, surface)
    mend = "look at `mcp-sandbox pins diff`, then run `mcp-sandbox pins approve`, or stay with the approved version"
    places = {binding.tool_name: str(binding.origin) for binding in spec.bindings}
    held = tuple(
        Finding("VET-153", "block", name, places.get(name, spec.file), f"`{name}` is out of service: {why}", mend)
        for name, why in standing.held.items()
    )
    waits = held or any(change.waits for change in standing.changes)
    return ("differ" if waits else "narrowed"), held

"""What `pkg install` does: read, verify, choose, try, install."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Final

from sandbox.cli import options
from sandbox.cli.bench import run_async
from sandbox.cli.evidence import trail
from sandbox.cli.packages.calling import run_cases
from sandbox.cli.packages.common import find_package, store_of, tell
from sandbox.cli.report import line_of, say
from sandbox.cli.run import until_signalled
from sandbox.errors import InstallRefused, SandboxError, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.mcpkg import signatures
from sandbox.mcpkg.contents import Contents, open_contents
from sandbox.mcpkg.install import Order, choose, guard_publisher, install
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.metrics import Outcome
from sandbox.mcpkg.model import Case, Implementation, Manifest
from sandbox.mcpkg.project import Grant, Wishes
from sandbox.mcpkg.select import Surroundings, consider, explain
from sandbox.mcpkg.signatures import Signed
from sandbox.mcpkg.store import Store
from sandbox.mcpkg.trust import load_trust

_RESERVED: Final = "/mcpkg"


def install_package(arguments: argparse.Namespace) -> int:
    """Install one package.

    Raises:
        SandboxError: it is refused; what was installed before is in use.
    """
    contents = open_contents(find_package(arguments))
    manifest, cases, findings = read_package(contents)
    trust = load_trust(arguments.trust)
    demanded = arguments.signatures or trust.demand
    signed = Signed("unchecked") if demanded == "off" else signatures.verify(contents, manifest, trust)
    warning = signatures.demand(signed, demanded, manifest.tool_id)
    if warning:
        say(line_of(f"warning: {warning}"))
    tell(findings)
    here, candidates = _candidates(arguments, manifest)
    store = store_of(arguments)
    with trail(arguments) as recorder, store.changing():
        guard_publisher(store, manifest, signed)
        scope = Scope(recorder, Trace.new(), driver=manifest.tool_id)
        scope.intent("pkg.install", version=manifest.version, signature=signed.state, publisher=signed.publisher)
        chosen, failure = "", "refused"
        try:
            chosen = _first_that_works(
                arguments, recorder, store, (contents, manifest, cases, signed), here, candidates
            )
            failure = ""
        finally:
            scope.outcome("pkg.install", status=failure or "ok", implementation=chosen)
    shown = {"toolId": manifest.tool_id, "version": manifest.version, "implementation": chosen}
    place = store.link(manifest.tool_id)
    if arguments.json:
        print(json.dumps({**shown, "folder": str(place)}))
    else:
        print(f"installed {manifest.tool_id} {manifest.version}{f' ({chosen})' if chosen else ''}: {place}")
    return 0


def _candidates(
    arguments: argparse.Namespace, manifest: Manifest
) -> tuple[Surroundings, tuple[Implementation | None, ...]]:
    """Return what this host offers, and the implementations to try, the best first; for a chain there is none."""
    if manifest.chain:
        return Surroundings("", {}), (None,)
    from sandbox.launch.images.host import host_images  # asks the engine
    from sandbox.mcpkg.probes import surroundings

    here = surroundings(manifest, host_images())
    considered = consider(manifest, here)
    chosen = choose(manifest, considered, arguments.implementation)
    if arguments.why:
        say(*map(line_of, explain(considered, chosen[0].id)))
    return here, chosen


def _first_that_works(
    arguments: argparse.Namespace,
    recorder: Recorder,
    store: Store,
    package: tuple[Contents, Manifest, tuple[Case, ...], Signed],
    here: Surroundings,
    candidates: tuple[Implementation | None, ...],
) -> str:
    """Install the first implementation whose tests pass, or simply the first; return its id.

    Raises:
        SandboxError: the last one was refused too.
    """
    contents, manifest, cases, signed = package
    if arguments.require_tests and not cases:
        raise InstallRefused(
            "PKG-045", f"{manifest.tool_id} has no tests", "leave --require-tests out, or ask for some"
        )
    for candidate in candidates:
        order = Order(contents, manifest, signed, candidate, here, _wishes(arguments))
        attempt = (
            functools.partial(_try, arguments, recorder, store, manifest, cases) if arguments.require_tests else None
        )
        try:
            install(store, order, attempt)
        except InstallRefused as error:
            if candidate is candidates[-1] or error.id != "PKG-046":
                raise
            say(line_of(f"{candidate.id if candidate else ''}: {error.message}; trying the next implementation"))
        else:
            return candidate.id if candidate else ""
    raise AssertionError("there is always a candidate")


def _try(
    arguments: argparse.Namespace,
    recorder: Recorder,
    store: Store,
    manifest: Manifest,
    cases: tuple[Case, ...],
    folder: Path,
) -> None:
    """Run the tests of a staged package.

    Raises:
        InstallRefused: ``PKG-046``, one fails.
    """
    work = functools.partial(run_cases, arguments, recorder, store, folder, manifest, cases)
    outcomes: list[Outcome] = []

    async def run() -> int:
        try:
            outcomes.extend(await work())
        except SandboxError as error:
            outcomes.append(Outcome("start", (str(error),), 0.0))
        return 0

    run_async(functools.partial(until_signalled, run))
    failed = [f"{one.name}: {one.wrong[0]}" for one in outcomes if one.wrong]
    if failed or not outcomes:
        message = f"{len(failed)} of {len(outcomes)} tests fail: {'; '.join(failed[:3])}"
        raise InstallRefused("PKG-046", message, "ask the publisher; the version in use is unchanged")


def _wishes(arguments: argparse.Namespace) -> Wishes:
    grants = [
        Grant(path, at, writable)
        for pairs, writable in ((arguments.read, False), (arguments.write, True))
        for at, path in options.roots(pairs).items()
    ]
    for grant in grants:
        if grant.at == _RESERVED or grant.at.startswith(f"{_RESERVED}/"):
            raise UsageError("CLI-171", f"{grant.at} is where the package itself lies", "choose another place inside")
    return Wishes(tuple(grants), arguments.trust_host_ca)

"""Actions on installed packages: install, list, rollback, uninstall."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any, Final

from sandbox.cli import options
from sandbox.cli.bench import run_async
from sandbox.cli.evidence import trail
from sandbox.cli.packages.calling import add_calling, run_cases
from sandbox.cli.packages.common import action, add_signature, add_store, find_package, store_of, tell
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


def add_arguments(actions: Any) -> None:
    """Declare the actions."""
    put = action(actions, "install", "install a package for `run`, `call` and `serve`", _install)
    put.add_argument("package", type=options.path, metavar="FILE")
    put.add_argument(
        "--from",
        type=options.path,
        dest="origin",
        metavar="DIR",
        help="FILE is a tool's id, and the newest package of DIR with it is meant",
    )
    put.add_argument("--implementation", default="", metavar="ID", help="use this one (default: the first that fits)")
    put.add_argument("--why", action="store_true", help="say why each implementation is used or not")
    put.add_argument("--require-tests", action="store_true", help="install only when all its tests pass in the sandbox")
    put.add_argument(
        "--read", action="append", default=[], metavar="AT=PATH", help="let the tool read PATH of this host, at AT"
    )
    put.add_argument("--write", action="append", default=[], metavar="AT=PATH", help="let it read and write PATH")
    put.add_argument("--trust-host-ca", action="store_true", help="give it the host's CA bundle (corporate proxies)")
    add_store(put)
    add_signature(put)
    add_calling(put)
    action(actions, "list", "list installed packages", _list, store=True)
    back = action(actions, "rollback", "use the version that was installed before, or a named one", _rollback)
    back.add_argument("tool", metavar="TOOL_ID")
    back.add_argument("--to", default="", metavar="VERSION")
    gone = action(actions, "uninstall", "remove an installed package with all its versions", _uninstall)
    gone.add_argument("tool", metavar="TOOL_ID")
    for parser in (back, gone):
        add_store(parser)
        options.add_audit_options(parser)


def _install(arguments: argparse.Namespace) -> int:
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


def _list(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    rows = []
    for tool_id in store.tools():
        current = store.current(tool_id)
        kept = [one.version for one in store.versions(tool_id)]
        info = current.info
        rows.append(
            {
                "toolId": tool_id,
                "version": current.version,
                "implementation": info.get("implementation", ""),
                "signature": info.get("signature", ""),
                "publisher": info.get("publisher", ""),
                "versions": kept,
                "folder": str(store.link(tool_id)),
            }
        )
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        print(line_of(f"{row['toolId']}  {row['version']}  {row['implementation'] or 'chain'}  {row['signature']}"))
    return 0


def _rollback(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    with trail(arguments) as recorder, store.changing():
        current = store.current(arguments.tool)
        others = [one for one in store.versions(arguments.tool) if one.folder != current.folder]
        earlier = [one for one in others if one.info["installed"] <= current.info["installed"]]
        wanted = [one for one in others if one.version == arguments.to] if arguments.to else earlier[-1:]
        if not wanted:
            have = ", ".join(one.version for one in others) or "no other version"
            message = f"{arguments.tool} has {have} to go back to"
            raise UsageError("PKG-047", message, "name one of them with --to, or install another package")
        scope = Scope(recorder, Trace.new(), driver=arguments.tool)
        scope.intent("pkg.rollback", version=current.version, to=wanted[0].version)
        store.use(wanted[0].folder, arguments.tool)
        scope.outcome("pkg.rollback", to=wanted[0].version)
    shown = {"toolId": arguments.tool, "version": wanted[0].version}
    print(json.dumps(shown) if arguments.json else f"{arguments.tool} is {wanted[0].version} now")
    return 0


def _uninstall(arguments: argparse.Namespace) -> int:
    store = store_of(arguments)
    with trail(arguments) as recorder, store.changing():
        current = store.current(arguments.tool)
        scope = Scope(recorder, Trace.new(), driver=arguments.tool)
        scope.intent("pkg.uninstall", version=current.version)
        store.remove(arguments.tool)
        scope.outcome("pkg.uninstall", status="ok")
    print(json.dumps({"toolId": arguments.tool}) if arguments.json else f"removed {arguments.tool}")
    return 0

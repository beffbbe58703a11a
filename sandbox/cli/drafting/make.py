"""Makes one driver folder: install, run without a network, list, write, prove, approve.

1. a first folder beside the wanted one, whose only contract binds nothing that exists
2. install: everything is pinned in driver.lock, and DRIVER.md names the exact version
3. survey: the server is started in its sandbox, without a network and with made-up secrets, and asked what it offers
4. write: a contract for each tool; what its own manifest rules or vetting would refuse is left out, with the reason
5. approve: what the server offered is pinned, so that any change of it is told
6. the folder gets its name; it never replaces one that exists
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.cli.drafting import folder
from sandbox.cli.drafting.source import Source
from sandbox.cli.offline import offline
from sandbox.errors import SandboxError, SpecError, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.launch.docker import DockerBackend
from sandbox.launch.images.progress import Progress
from sandbox.launch.install.ensure import lock_driver, needs_lock
from sandbox.launch.install.lock import Lock
from sandbox.spec.check import check
from sandbox.spec.load import load_driver
from sandbox.supervisor.survey import survey
from sandbox.vet import pins
from sandbox.vet.findings import Finding
from sandbox.vet.model import ServerSurface

if TYPE_CHECKING:
    from sandbox.spec.model import DriverSpec

ROUNDS = 3
"""How often tools are left out before the folder is given up: by the manifest rules, by vetting, and once to see."""

NOTHING = folder.Drafted("not-yet-known", "not-yet-known", {"name": "not-yet-known"})
"""The only tool of the first folder."""


@dataclass(frozen=True, slots=True)
class Made:
    """A folder that was written.

    Attributes:
        tools: how many tools have a contract.
        left_out: tool → why it has none.
        notes: what a reviewer has to see to.
    """

    path: Path
    tools: int
    left_out: dict[str, str]
    notes: list[str]


async def make(
    source: Source,
    output: Path,
    backend: DockerBackend,
    recorder: Recorder,
    progress: Progress,
    arguments: argparse.Namespace,
) -> Made:
    """Make one driver folder.

    Raises:
        UsageError: ``CLI-145``, the folder exists; ``CLI-146``, no tool can have a contract.
        SandboxError: what cannot be installed, planned, started or understood.
    """
    work = _begin(output)
    try:
        made = await _made(source, work, backend, recorder, progress, arguments)
        _publish(work, output)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return replace(made, path=output)


def _begin(output: Path) -> Path:
    """Return a new folder beside the wanted one, which must not exist."""
    if os.path.lexists(output):
        raise UsageError("CLI-145", f"{output} exists already", "name another folder with --output, or remove it")
    output.parent.mkdir(parents=True, exist_ok=True)
    work = output.parent / f".{output.name}.new-{os.getpid()}"
    work.mkdir()
    return work


def _publish(work: Path, output: Path) -> None:
    """Give the folder its name (step 6); making it first fails when somebody else made it meanwhile."""
    try:
        output.mkdir()
    except FileExistsError:
        raise UsageError("CLI-145", f"{output} exists already", "name another folder with --output") from None
    work.replace(output)


async def _made(
    source: Source,
    work: Path,
    backend: DockerBackend,
    recorder: Recorder,
    progress: Progress,
    arguments: argparse.Namespace,
) -> Made:
    _grantable(work, source)
    _write(work, source, source.name, [NOTHING], None, [])  # 1
    name = await asyncio.get_running_loop().run_in_executor(None, _install, source, work, progress, arguments)  # 2
    own = argparse.Namespace(driver=work, root=[], memory=None, runtime="", policy=arguments.policy)
    review, secrets = await offline(own, backend, progress)
    scope = Scope(recorder, Trace.new(), driver=review.spec.id)
    review.record(scope)
    surface = await survey(backend, review.spec, review.plan, scope, secrets, everything=True)  # 3
    made, spec = _draft(source, name, work, surface)  # 4
    undeclared = replace(surface, prompts={}, resources=(), resource_templates=())
    pins.write(spec.folder, pins.pins_of(undeclared))  # 5
    return made


def _grantable(work: Path, source: Source) -> None:
    """Write the files that come with a source, and make the granted folders that lie below the new one."""
    for name, data in source.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(data)
    for path in (*source.read.values(), *source.write.values()):
        if not Path(path).is_absolute() and not path.startswith("~"):
            (work / path).mkdir(parents=True, exist_ok=True)


def _install(source: Source, work: Path, progress: Progress, arguments: argparse.Namespace) -> str:
    """Pin what the server is and return its name with the exact version (step 2)."""
    from sandbox.cli.wiring import load_policy

    pull = load_policy(arguments.policy).pull
    spec = load_driver(work)
    if not needs_lock(spec):
        return source.name
    lock, _ = lock_driver(spec, progress, pull=pull)
    version = _version(source, lock)
    if not version or source.at_version(version) == source.name:
        return source.name
    name = source.at_version(version)
    _write(work, source, name, [NOTHING], None, [])
    lock_driver(load_driver(work), progress, pull=pull)
    return name


def _version(source: Source, lock: Lock) -> str:
    """Return the version that the package itself was locked to."""
    if source.kind == "npm":
        tree = lock.pins.get("npm", {}).get("packages", {})
        return str(tree.get(f"node_modules/{source.base}", {}).get("version", ""))
    packages = lock.pins.get("pip", {}).get("packages", {}) if source.kind == "pip" else {}
    plain = {name.lower().replace("_", "-").replace(".", "-"): entry for name, entry in packages.items()}
    entry = plain.get(source.base.lower().replace("_", "-").replace(".", "-"), {})
    return str(entry.get("version", ""))


# --- step 4 -----------------------------------------------------------------------------------------------------------
def _draft(source: Source, name: str, work: Path, surface: ServerSurface) -> tuple[Made, DriverSpec]:
    """Write contracts and leave out tools until the folder is valid and every contract proved."""
    from sandbox.cli.vet import judged

    left_out = folder.unreadable(surface)
    findings: tuple[Finding, ...] = ()
    for _ in range(ROUNDS):
        tools = folder.drafted(surface, left_out)
        if not tools:
            why = "; ".join(f"{tool}: {reason}" for tool, reason in left_out.items()) or "it offers no tool"
            mend = "write its DRIVER.md by hand: docs/driver-md.md"
            raise UsageError("CLI-146", f"no tool of {source.name} can have a contract: {why[:1000]}", mend)
        notes = [*source.notes, *folder.notes_of(surface, left_out, findings)]
        _write(work, source, name, tools, surface, notes)
        refused = _invalid(work, tools)
        if not refused:
            spec = load_driver(work)
            report = judged(spec, surface)
            informing = tuple(one for one in report.findings if one.severity == "inform" and one.id >= "VET-2")
            refused = {one.tool: f"{one.id} {one.message}" for one in report.findings if one.severity == "block"}
            if not refused and informing == findings:
                return Made(work, len(tools), left_out, notes), spec
            findings = informing
        left_out |= refused
    raise UsageError("CLI-146", f"no valid folder for {source.name} was found", "write its DRIVER.md by hand")


def _invalid(work: Path, tools: Iterable[folder.Drafted]) -> dict[str, str]:
    """Return tool → why its contract is not valid.

    Raises:
        SpecError: the driver itself is not valid.
    """
    problems = [one for one in check(work).problems if one.severity == "error"]
    by_file = {os.path.realpath(work / tool.path): tool.name for tool in tools}
    of_tools = {by_file.get(os.path.realpath(one.file)): one for one in reversed(problems)}
    others = tuple(one for one in problems if os.path.realpath(one.file) not in by_file)
    if problems and None in of_tools and len(of_tools) == 1:
        raise SpecError(others)
    return {tool: f"{one.id} {one.message}" for tool, one in of_tools.items() if tool is not None}


def _write(
    work: Path,
    source: Source,
    name: str,
    tools: list[folder.Drafted],
    surface: ServerSurface | None,
    notes: list[str],
) -> None:
    shutil.rmtree(work / "tools", ignore_errors=True)
    files = {
        "DRIVER.md": folder.driver(source, name, tools, surface, notes),
        **{tool.path: folder.contract(tool, source.id) for tool in tools},
        "tests/test_driver.py": folder.test(source),
        **({"SECRETS.md": folder.secrets(source)} if source.secrets else {}),
    }
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, encoding="utf-8")


def reason(error: SandboxError) -> str:
    """Return why an entry of a configuration was not converted, in one line."""
    return f"{error.id}: {error.message}"

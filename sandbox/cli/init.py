"""Make a driver folder for a server: it is installed and run in a sandbox without a network, and asked what it offers.

SOURCE is npm:@scope/server, pip:name, docker:image, or the path of a program. The
folder has DRIVER.md, a contract for each tool with the server's own schemas, driver.lock with what is installed and
what was offered, SECRETS.md and a test. It never replaces a folder. With --from every server of a client's
configuration (Claude Desktop, Cursor, VS Code, Codex) is converted; values of variables are never copied.
"""

from __future__ import annotations

import argparse
import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.cli import options
from sandbox.cli.evidence import trail
from sandbox.cli.report import line_of, say
from sandbox.errors import Refused, SandboxError, UsageError

if TYPE_CHECKING:
    from sandbox.cli.drafting.configs import Unusable
    from sandbox.cli.drafting.make import Made
    from sandbox.cli.drafting.source import Source
    from sandbox.events import Recorder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="npm:…, pip:…, docker:… or a path")
    parser.add_argument(
        "--arg", action="append", default=[], metavar="WORD", help="argument of the server; write --arg=--flag"
    )
    parser.add_argument("--from", dest="config", type=options.path, metavar="FILE", help="a client's configuration")
    parser.add_argument("--skill", action="store_true", help="print the author skill (SKILL.md) for agents, and stop")
    parser.add_argument(
        "--output", type=options.path, metavar="DIR", help="the new folder; with --from, where the folders are put"
    )
    parser.add_argument("--program", default="", metavar="NAME", help="console script of a Python package")
    for option, what in (("--read", "reading"), ("--write", "writing")):
        parser.add_argument(
            option, action="append", default=[], metavar="AT=PATH",
            help=f"grant a folder for {what}; a relative PATH is made below the new folder",
        )  # fmt: skip
    parser.add_argument(
        "--secret", action="append", default=[], metavar="NAME", help="variable that the server needs a secret in"
    )
    parser.add_argument("--policy", type=options.path, metavar="FILE", help="operator's ceiling")
    options.add_audit_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Make one folder, or one for each entry of a configuration."""
    if arguments.skill:
        from sandbox.resources import shipped

        sys.stdout.write(shipped("skills", "author-mcp-driver", "SKILL.md").read_text(encoding="utf-8"))
        return 0
    if bool(arguments.source) == (arguments.config is not None):
        raise UsageError("CLI-002", "init takes a SOURCE or --from FILE", "`mcp-sandbox init --help` explains them")
    from sandbox.cli.bench import run_async
    from sandbox.cli.run import until_signalled

    chosen = _configured(arguments) if arguments.config else [_named(arguments)]
    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_make_all, chosen, arguments, recorder)))


def _named(arguments: argparse.Namespace) -> tuple[str, Path, Source | Unusable]:
    from sandbox.cli.drafting.source import grants, parse

    source = replace(
        parse(arguments.source),
        args=tuple(arguments.arg),
        program=arguments.program,
        read=grants(arguments.read, "--read"),
        write=grants(arguments.write, "--write"),
        secrets=tuple(arguments.secret),
    )
    return arguments.source, arguments.output or Path(source.id), source


def _configured(arguments: argparse.Namespace) -> list[tuple[str, Path, Source | Unusable]]:
    from sandbox.cli.drafting.configs import entries
    from sandbox.cli.drafting.source import Source

    base = arguments.output or Path()
    found: list[tuple[str, Path, Source | Unusable]] = []
    taken: set[Path] = set()
    for name, source in entries(arguments.config):
        path = base / (source.id if isinstance(source, Source) else name)
        number = 1
        while path in taken:
            number += 1
            path = path.with_name(f"{path.name}-{number}")
        taken.add(path)
        found.append((name, path, source))
    return found


async def _make_all(
    chosen: list[tuple[str, Path, Source | Unusable]], arguments: argparse.Namespace, recorder: Recorder
) -> int:
    """Make each folder; with one source its error is the command's."""
    from sandbox.cli.bench import engine
    from sandbox.cli.drafting.configs import Unusable
    from sandbox.cli.drafting.make import make, reason
    from sandbox.cli.progress import finished, person

    failed = 0
    async with engine() as backend:
        for name, path, source in chosen:
            progress = person()
            try:
                if isinstance(source, Unusable):
                    raise UsageError("CLI-147", f"`{name}` is not converted: {source.why}")
                made = await make(source, path, backend, recorder, progress, arguments)
                finished(progress)
                _show(name, made)
            except SandboxError as error:
                finished(progress)
                if arguments.config is None:
                    raise
                failed += 1
                say(line_of(error.message if error.id == "CLI-147" else f"`{name}` is not converted: {reason(error)}"))
    return Refused.exit_code if failed else 0


def _show(name: str, made: Made) -> None:
    print(line_of(f"{name}: wrote {made.path} with {made.tools} contract{'s' if made.tools != 1 else ''}"))
    for note in made.notes:
        print(line_of(f"  - {note}"))
    print(line_of(f"review it, then: mcp-sandbox check {made.path} && mcp-sandbox run {made.path}"))

"""Use drivers as Model Context Standard drivers, and run such drivers in a sandbox.

`openapi` and `prompt` print what a model is told of a driver's reviewed contracts; they start nothing. `bridge` makes a
driver folder for a Python class that is an MCS tool driver, and `serve` runs one on stdio, like `run`: the class is
imported inside the container only.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox.cli import options
from sandbox.cli.report import line_of, say
from sandbox.cli.run import add_serving_options
from sandbox.errors import UsageError

if TYPE_CHECKING:
    from sandbox.cli.drafting.source import Source

FOLDER: Final = options.STATE / "mcs"
"""Where the folders of `serve` lie, one for each state of what is served."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_shown(actions.add_parser("openapi", help="print the tools of a driver as an OpenAPI 3.1 document"))
    prompt = actions.add_parser("prompt", help="print the system prompt that makes a model use a driver's tools")
    _add_shown(prompt)
    prompt.add_argument(
        "--style", choices=("auto", "inline", "schema"), default="auto", help="whole schemas or summaries"
    )
    prompt.add_argument("--model", default=None, metavar="NAME", help="model that the prompt is for")
    prompt.add_argument("--prompts", type=options.path, metavar="FILE.toml", help="texts of your own")
    _add_bridge(actions.add_parser("bridge", help="make a driver folder for a Python class that is a tool driver"))
    serve = actions.add_parser("serve", help="run such a class, or any DRIVER.md, on stdio")
    _add_bridge(serve)
    options.add_plan_options(serve)
    add_serving_options(serve)


def _add_shown(parser: argparse.ArgumentParser) -> None:
    options.add_driver(parser)
    parser.add_argument("--names", choices=("contract", "server"), default="contract", help="ids or the server's names")


def _add_bridge(parser: argparse.ArgumentParser) -> None:
    serving = parser.prog.endswith("serve")
    parser.add_argument("what", metavar="MODULE:CLASS", help="the class; `serve` also takes a DRIVER.md")
    parser.add_argument(
        "--source", type=options.path, default=None, metavar="DIR",
        help="folder with the module and what it imports; copied, never imported here (default: this one, "
        "or none with --package)",
    )  # fmt: skip
    parser.add_argument(
        "--package",
        default="",
        metavar="NAME==VERSION",
        help="package of the Python index that has the module, or that it needs",
    )
    parser.add_argument("--set", default="{}", metavar="JSON", help="arguments of the class, as a JSON object")
    for option, what in (("--read", "reading"), ("--write", "writing")):
        parser.add_argument(option, action="append", default=[], metavar="AT=PATH", help=f"grant a folder for {what}")
    options.add_audit_options(parser)
    if not serving:
        parser.add_argument("--output", type=options.path, required=True, metavar="DIR", help="the new folder")
        parser.add_argument("--policy", type=options.path, metavar="FILE", help="operator's ceiling")


def execute(arguments: argparse.Namespace) -> int:
    """Run the chosen action."""
    if arguments.action in {"openapi", "prompt"}:
        print(_shown(arguments))
        return 0
    if arguments.action == "bridge":
        _make(_source(arguments), arguments.output, arguments)
        say(line_of(f"mcp-sandbox: wrote {arguments.output}; review it, then: mcp-sandbox run {arguments.output}"))
        return 0
    return _serve(arguments)


def _shown(arguments: argparse.Namespace) -> str:
    from sandbox.mcs.prompts import Prompts
    from sandbox.mcs.reviewed import Reviewed

    if arguments.action == "openapi":
        return Reviewed(arguments.driver, names=arguments.names, description="openapi").get_function_description()
    texts = Prompts.load(arguments.prompts or "")
    driver = Reviewed(arguments.driver, names=arguments.names, texts=texts, style=arguments.style)
    return driver.get_driver_system_message(arguments.model)


def _source(arguments: argparse.Namespace) -> Source:
    """Return what the folder is made from."""
    from sandbox.cli.call import parse_arguments
    from sandbox.cli.drafting.source import grants
    from sandbox.mcs.bridge import bridged

    read, write = grants(arguments.read, "--read"), grants(arguments.write, "--write")
    given = parse_arguments(arguments.set)
    source = arguments.source or (None if arguments.package else Path())
    return bridged(arguments.what, source, given, _absolute(read), _absolute(write), arguments.package)


def _absolute(grants: dict[str, str]) -> dict[str, str]:
    return {at: str(Path(path).expanduser().absolute()) for at, path in grants.items()}


def _make(source: Source, output: Path, arguments: argparse.Namespace) -> None:
    from sandbox.cli.bench import engine, run_async
    from sandbox.cli.drafting.make import make
    from sandbox.cli.evidence import trail
    from sandbox.cli.progress import quiet_progress
    from sandbox.cli.run import until_signalled
    from sandbox.events import Recorder

    async def work(recorder: Recorder) -> int:
        async with engine() as backend:
            made = await make(source, output, backend, recorder, quiet_progress(), arguments)
        for note in made.notes:
            say(line_of(f"mcp-sandbox: {note}"))
        return 0

    with trail(arguments) as recorder:
        if status := run_async(functools.partial(until_signalled, functools.partial(work, recorder))):
            raise SystemExit(status)


def _serve(arguments: argparse.Namespace) -> int:
    """Serve a driver folder, or the folder of a class, made when there is none for this state of it."""
    from sandbox.cli import run

    if Path(arguments.what).exists():
        if arguments.read or arguments.write or arguments.set != "{}":
            why = "a DRIVER.md says itself what it is granted and given"
            raise UsageError("CLI-221", f"{arguments.what}: {why}", "edit it, or re-point a folder with --root")
        arguments.driver = Path(arguments.what)
        return run.execute(arguments)
    from sandbox.mcs.bridge import digest_of

    source = _source(arguments)
    folder = FOLDER / f"{source.id}-{digest_of(source)}"
    if not (folder / "DRIVER.md").exists():
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(source, folder, arguments)
    arguments.driver = folder
    return run.execute(arguments)

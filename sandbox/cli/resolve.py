"""Say which driver of a folder carries a tool that several implement, and with `--why` what each phase decided."""

from __future__ import annotations

import argparse
import dataclasses

from sandbox.cli import options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("tool", metavar="TOOL", help="contract id")
    parser.add_argument("--drivers", type=options.path, required=True, metavar="DIR", help="folder of driver folders")
    parser.add_argument("--region", action="append", default=[], help="serve in one of these regions")
    parser.add_argument("--allow-tag", action="append", metavar="TAG", help="only these policy tags may be there")
    parser.add_argument("--require-tag", action="append", default=[], metavar="TAG", help="with this policy tag only")
    parser.add_argument("--pin", default="", metavar="DRIVER", help="use this driver or none")
    parser.add_argument("--why", action="store_true", help="print what each phase decided")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Resolve; exit with 3 when no driver is left."""
    import orjson

    from sandbox.cli.gateway.mounts import driver_folders
    from sandbox.errors import SandboxError
    from sandbox.serve.route import Wanted, chosen, resolve
    from sandbox.spec.load import load_driver

    specs, broken = [], {}
    for folder in driver_folders(arguments.drivers):
        if not (folder / "DRIVER.md").exists():
            continue  # a chain, which binds nobody's contract but its own
        try:
            specs.append(load_driver(folder / "DRIVER.md"))
        except SandboxError as error:
            broken[folder.name] = f"it cannot be read ({error.id})"
    wanted = Wanted(arguments.region, arguments.allow_tag, arguments.require_tag, arguments.pin)
    found = resolve(arguments.tool, specs, wanted)
    if arguments.json:
        steps = [dataclasses.asdict(step) for step in found.steps]
        best = found.chosen.id if found.chosen else None
        print(orjson.dumps({"driver": best, "ranked": found.ranked, "steps": steps}).decode())
    elif arguments.why:
        for name, why in broken.items():
            print(f"2 {name}: dropped, {why}")
        for step in found.steps:
            print(f"{step.phase} {step.driver}: {'kept' if step.kept else 'dropped'}, {step.why}")
    spec = chosen(arguments.tool, found, wanted)
    if not arguments.json:
        print(spec.id)
    return 0

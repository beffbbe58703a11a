"""Write the descriptors of what drivers bind as files: the file view of the 2025-11 dialect, for repositories and CI.

`DIR/tools/NAME.json`, `DIR/resources/schemas/` and `DIR/resources/templates/`; with several drivers each has a folder
of its own. The same drivers give the same bytes. No server is started: the files say what the contracts say.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.cli import options
from sandbox.cli.report import line_of, say
from sandbox.errors import SandboxError, UsageError

if TYPE_CHECKING:
    from sandbox.dialect.files import FileView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("drivers", type=options.path, metavar="DRIVERS", help="a driver folder, or one with several")
    parser.add_argument(
        "folder", type=options.path, metavar="DIR", help="where the files go; an earlier export is replaced"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Load, write, tell.

    Raises:
        SpecError: a driver is not valid; nothing is written.
        UsageError: ``CLI-234``, two drivers have one id.
    """
    from sandbox.cli.gateway.mounts import driver_folders
    from sandbox.dialect.exporting import files_of, view_of, write
    from sandbox.spec.load import load_driver

    views: dict[str, FileView] = {}
    bad: list[SandboxError] = []
    for folder in driver_folders(_folder(arguments.drivers)):
        try:
            spec = load_driver(folder / "DRIVER.md")
        except SandboxError as error:
            bad.append(error)
            continue
        if spec.id in views:
            raise UsageError("CLI-234", f"two drivers are `{spec.id}`", "give one of them another id")
        views[spec.id] = view_of(spec)
    for other in bad[1:]:
        say(line_of(str(other)))
    if bad:
        raise bad[0]
    files = files_of(views)
    write(files, arguments.folder)
    tools = sum(1 for view in views.values() for path in view.files if path.startswith("tools/"))
    print(f"wrote {tools} tools of {len(views)} drivers, {len(files)} files, to {arguments.folder}")
    return 0


def _folder(path: Path) -> Path:
    return path.parent if path.name == "DRIVER.md" else path

"""Build and list the images that servers run on.

`build` makes what is missing; an image whose recorded packages the mirror no longer has is built from its present
packages, and gets an id of this host's own, which `list` and `doctor` show. `relock` takes the present packages of an
image on purpose.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from sandbox.cli.progress import finished, person
from sandbox.errors import UsageError
from sandbox.launch.images import recipe
from sandbox.launch.images.host import build_all, host_images, image_status
from sandbox.launch.images.progress import Progress
from sandbox.launch.images.recipe import DEFAULT_IMAGES

EVERY = (*DEFAULT_IMAGES, "signing-server")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("action", choices=("list", "build", "relock"), nargs="?", default="list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="recipes below images/ (default: all)")
    parser.add_argument(
        "--base", default="", metavar="IMAGE", help="build: run apt in this Debian image, on hosts without apt"
    )
    parser.add_argument("--record", action="store_true", help="maintainers: write the locks into the checkout")
    parser.add_argument("--json", action="store_true", help="print as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """List, build or relock."""
    names = tuple(arguments.names) or EVERY
    _known(names)
    if arguments.action != "list":
        progress = person()
        try:
            _make(arguments, names, progress)
        finally:
            finished(progress)
    statuses = image_status(names)
    if arguments.json:
        print(json.dumps([asdict(status) for status in statuses], indent=1))
        return 0
    for status in statuses:
        where = "in the engine" if status.present else "in the cache" if status.cached else "not built"
        print(f"{status.name:<16} {status.id[:19] or '-':<20} {where}{' (own packages)' if status.own else ''}")
    return 0


def _known(names: tuple[str, ...]) -> None:
    """Refuse a name that is none of a shipped recipe."""
    known = recipe.names()
    for name in names:
        if name not in known:
            raise UsageError("CLI-017", f"there is no image {name[:64]!r}", f"use one of {', '.join(known)}")


def _make(arguments: argparse.Namespace, names: tuple[str, ...], progress: Progress) -> None:
    images = host_images(progress)
    if arguments.action == "build":
        build_all(names, progress, arguments.base)
    else:
        for name in names:
            _, changes = images.relock(name)
            for change in changes:
                progress.warn(change)
    if arguments.record:
        for name in names:
            images.record(name)

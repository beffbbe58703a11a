"""Show which package registries installs on this host use, and whether build containers may reach them.

A build container reaches the registry that your npm and pip are configured with, over public addresses only. A registry
of your own network needs your word: --allow writes its addresses to install.toml. It concerns installs, never a server.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlsplit

from sandbox.cli.progress import finished, person
from sandbox.cli.report import line_of, say
from sandbox.errors import PlatformError, SandboxError
from sandbox.launch.images.host import host_images
from sandbox.launch.images.progress import Progress
from sandbox.launch.install import exceptions, npm, pip
from sandbox.launch.install.ensure import ConfinedBuilds
from sandbox.launch.install.shop import Shop
from sandbox.policy.destinations import address_refusal, canonical_address, networks

SAMPLE: Final = "pip"
"""A package that every copy of the Python package index has; asked for to learn where an index keeps its files."""

USABLE: Final = ("public", "allowed")


@dataclass(frozen=True, slots=True)
class Row:
    """One address of one registry; ``state`` is ``public``, ``allowed``, ``private``, ``never`` or ``unresolved``."""

    client: str
    host: str
    address: str
    state: str
    why: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--allow", action="store_true", help="let installs reach the addresses that are not public")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Look, allow when asked to, look where the Python index keeps its files, show."""
    progress = person()
    try:
        rows = _rows(_registries(progress, os.environ, files=False))
        if arguments.allow:
            _allow(rows)
        rows = _rows(_registries(progress, os.environ, files=True))
        if arguments.allow:
            _allow(rows)
            rows = _rows({(row.client, row.host): None for row in rows})
    finally:
        finished(progress)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        for row in rows:
            print(line_of(f"{row.client:<12} {row.host:<32} {row.address:<16} {row.state} {row.why}".rstrip()))
    barred = [row for row in rows if row.state not in USABLE]
    if barred:
        say("mcp-sandbox: installs cannot reach these; if they are yours, run `mcp-sandbox registries --allow`")
    return 1 if barred else 0


def _registries(progress: Progress, environ: Mapping[str, str], *, files: bool) -> dict[tuple[str, str], None]:
    """Return (client, host) of every registry, with the hosts of the Python index's files when asked for."""
    images = host_images(progress, environ)
    found: dict[tuple[str, str], None] = {}
    with images.places.building() as scratch:
        shop = Shop(images, ConfinedBuilds(images, environ), environ, scratch, scratch)
        found |= {("npm", _host(address)): None for address in npm.registries(shop)}
        found |= {("pip", _host(address)): None for address in pip.indexes(shop)}
        if files:
            try:
                found |= {("pip (files)", _host(address)): None for address in pip.files_of(shop, SAMPLE)}
            except SandboxError as error:
                progress.warn(f"the Python index cannot be asked where its files are: {error.message}")
    return found


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


def _rows(hosts: Mapping[tuple[str, str], None]) -> list[Row]:
    """Return what each host resolves to here, judged as the broker judges it."""
    own = networks(exceptions.load(os.environ).private)
    rows = []
    for client, host in hosts:
        try:
            answers = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
        except OSError as error:
            rows.append(Row(client, host, "", "unresolved", error.strerror or str(error)))
            continue
        for text in dict.fromkeys(str(answer[4][0]) for answer in answers):
            address = canonical_address(text.partition("%")[0])
            why = address_refusal(address)
            if not why:
                rows.append(Row(client, host, str(address), "public"))
            elif not address_refusal(address, own):
                rows.append(Row(client, host, str(address), "allowed", why))
            else:
                opened = networks((f"{address}/{address.max_prefixlen}",))
                state = "never" if address_refusal(address, opened) else "private"
                rows.append(Row(client, host, str(address), state, why))
    return rows


def _allow(rows: list[Row]) -> None:
    """Add the private addresses of registries to ``install.toml``.

    Raises:
        PlatformError: ``CLI-113``, it cannot be written.
    """
    wanted = {}
    for row in rows:
        if row.state == "private":
            address = canonical_address(row.address)
            wanted[f"{address}/{address.max_prefixlen}"] = f"the registry of {row.client} on this host"
    if not wanted:
        return
    place = exceptions.place_of(os.environ)
    text = place.read_text("utf-8") if place.is_file() else ""
    fresh = exceptions.with_private(text, wanted)
    exceptions.read(fresh.encode(), str(place))
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{os.getpid()}")
        temporary.write_text(fresh, "utf-8")
        temporary.chmod(0o600)
        temporary.replace(place)
    except OSError as error:
        raise PlatformError(
            "CLI-113", f"{place} cannot be written: {error.strerror}", "see its folder's mode"
        ) from None
    for cidr, why in wanted.items():
        print(line_of(f"mcp-sandbox: installs may reach {cidr} ({why}), by {place}"), file=sys.stderr)

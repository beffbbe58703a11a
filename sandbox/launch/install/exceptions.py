"""What whoever runs installs on this host adds to them: registries on private addresses, and further hosts. Pure.

``install.toml`` in the configuration folder; `mcp-sandbox registries --allow` writes the first kind::

    version = 1
    [[private]]
    cidr = "10.1.2.3/32"
    reason = "the company's registry"
    [[hosts]]
    host = "files.registry.example"
    reason = "the index keeps its files there"

It concerns build containers only. No server gets anything of it.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sandbox.errors import SpecError
from sandbox.policy.ceiling_file import Reader
from sandbox.policy.hosts import parse_rule

FILE: Final = "install.toml"

_EMPTY: Final = "version = 1\n"


@dataclass(frozen=True, slots=True)
class Exceptions:
    """What is added.

    Attributes:
        private: CIDRs that are not public and may be dialled for installs.
        hosts: entries as in ``network.egress`` that every build may reach.
    """

    private: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def place_of(environ: Mapping[str, str]) -> Path:
    """Return where the file lies (XDG Base Directory)."""
    home = Path(environ.get("HOME") or "/")
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "mcp-sandbox" / FILE


def load(environ: Mapping[str, str]) -> Exceptions:
    """Return the exceptions of this host, none when there is no file.

    Raises:
        CeilingError: ``PLAN-080`` … ``PLAN-083``, the file is not valid.
    """
    place = place_of(environ)
    return read(place.read_bytes(), str(place)) if place.is_file() else Exceptions()


def read(data: bytes, name: str) -> Exceptions:
    """Return the exceptions of a file's bytes.

    Raises:
        CeilingError: ``PLAN-080`` … ``PLAN-083``, every problem with its line.
    """
    reader = Reader(data, name)
    values = reader.table("", reader.values, ("version", "private", "hosts"))
    if values.get("version") != 1:
        reader.wrong("version", values.get("version"), "1")

    def entry(key: str, path: str, item: Any) -> str:
        table = reader.table(path, item, (key, "reason"))
        text = reader.text(path, table, key)
        reader.text(path, table, "reason")
        if text and not (_is_cidr(text) if key == "cidr" else _is_host(text)):
            reader.wrong(f"{path}.{key}", text, f"a {key}")
        return text

    private = reader.items("private", values.get("private", []), lambda path, item: entry("cidr", path, item))
    hosts = reader.items("hosts", values.get("hosts", []), lambda path, item: entry("host", path, item))
    reader.finish()
    return Exceptions(private, hosts)


def with_private(text: str, cidrs: Mapping[str, str]) -> str:
    """Return the text of a file with further CIDRs.

    Args:
        text: of the present file, empty for none.
        cidrs: CIDR → reason.
    """
    tables = [f"\n[[private]]\ncidr = {json.dumps(cidr)}\nreason = {json.dumps(why)}\n" for cidr, why in cidrs.items()]
    return (text or _EMPTY) + "".join(tables)


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _is_host(text: str) -> bool:
    try:
        parse_rule(text)
    except SpecError:
        return False
    return True

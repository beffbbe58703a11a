"""The operator's ceiling: read strictly from TOML, and narrowed by a second file that may only take away.

Three forms of file::

    (neither)                 a complete ceiling; what ships as policies/default.toml
    narrows = "default"       put over a complete one: each entry covered by one below it, each bound at most that below
    replaces = "default"      a complete ceiling of the operator's own; the shipped one is not consulted

A narrowing file that names more than the file below is an error (``PLAN-086``): neither wider nor silently cut.
Never lists of both files hold. Reading is pure: bytes in, values out; the caller opens the files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, Final

from sandbox.errors import SpecError
from sandbox.policy.ceiling_file import Reader
from sandbox.policy.ceiling_values import (
    BOUNDS,
    PLAIN_HTTP,
    UNSAFE,
    Allow,
    Bound,
    Ceiling,
    HostAllow,
    RuntimeAllow,
    host_text,
    listed,
    show,
    star,
)
from sandbox.policy.destinations import HTTPS_PORT, EgressRule
from sandbox.policy.hosts import narrowed, parse_rule

__all__ = [
    "Allow",
    "Bound",
    "Ceiling",
    "HostAllow",
    "RuntimeAllow",
    "listed",
    "load_ceiling",
    "show",
    "star",
]

BASE: Final = "default"
"""Name of the ceiling that ships, and the only one that ``narrows`` and ``replaces`` may name."""

_TOP: Final = (
    "version", "name", "narrows", "replaces", "limits", "mounts", "servers", "install", "images", "runtimes",
    "runtime_floor", "transports", "egress", "env", "host_ca", "pins", "unsafe", "calls",
)  # fmt: skip
_UNIT: Final = {
    "memory": "size", "fsize": "size", "tmp": "size", "lifetime": "time", "call_timeout": "time", "cpus": "cores",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]+\*?|\*")
_PORT_MAX: Final = 65535


def load_ceiling(data: bytes, name: str, base: Ceiling | None = None) -> Ceiling:
    """Return the ceiling of one policy file, put over ``base`` when the file narrows it.

    Args:
        data: bytes of the TOML file.
        name: the file as the operator named it, for messages.
        base: the shipped ceiling; needed for files that say ``narrows = "default"``.

    Raises:
        CeilingError: ``PLAN-080`` … ``PLAN-087``; every problem of the file, with its line.
    """
    reader = Reader(data, name)
    values = reader.table("", reader.values, _TOP)
    narrows = _relation(reader, values, base)
    found = _read(reader, values)
    digest = hashlib.sha256(data).hexdigest()
    if narrows and base is not None:
        ceiling = _narrow(reader, values, found, base)
        digest = hashlib.sha256(f"{base.digest}\n{digest}".encode()).hexdigest()
    else:
        ceiling = found
        for missing in (bound for bound in BOUNDS if bound not in found.bounds):
            reader.bad("PLAN-084", f"limits.{missing}", "a complete ceiling sets every bound", mend="add this table")
    reader.finish()
    return replace(ceiling, digest=f"sha256:{digest}")


def _relation(reader: Reader, values: Mapping[str, Any], base: Ceiling | None) -> bool:
    """Return whether the file narrows ``base``; note what is wrong with its heading."""
    if values.get("version") != 1:
        reader.wrong("version", values.get("version"), "1")
    reader.text("", values, "name")
    for key in ("narrows", "replaces"):
        if values.get(key, BASE) != BASE:
            reader.wrong(key, values[key], f'"{BASE}"')
    narrows = "narrows" in values
    if narrows and "replaces" in values:
        reader.bad("PLAN-085", "replaces", "a file either narrows or replaces", mend="keep one of the two")
    if narrows and base is None:
        reader.bad("PLAN-085", "narrows", "there is no ceiling to narrow here", mend='use this file over "default"')
    if base is not None and not narrows and "replaces" not in values:
        reader.bad(
            "PLAN-085", "name", "the file does not say how it stands to the shipped ceiling",
            mend='write narrows = "default", or replaces = "default" to stand alone',
        )  # fmt: skip
    return narrows


# --- reading ----------------------------------------------------------------------------------------------------------
def _read(reader: Reader, values: Mapping[str, Any]) -> Ceiling:
    """Return what the file itself says; absent sections are empty."""
    mounts = reader.table("mounts", values.get("mounts", {}), ("read", "write", "never"))
    install = reader.table("install", values.get("install", {}), ("methods", "registries"))
    egress = reader.table("egress", values.get("egress", {}), ("raw_tcp", "reason", "hosts", "private", "ca"))
    env = reader.table("env", values.get("env", {}), ("pass", "never"))
    floor = reader.table("runtime_floor", values.get("runtime_floor", {}), ("strength", "reason"))
    return Ceiling(
        name=str(values.get("name", "")),
        digest="",
        bounds=_bounds(reader, values.get("limits", {})),
        read=_allows(reader, "mounts.read", mounts.get("read", []), "path", _is_path),
        write=_allows(reader, "mounts.write", mounts.get("write", []), "path", _is_path),
        never=_allows(reader, "mounts.never", mounts.get("never", []), "path", _is_path),
        servers=_allows(reader, "servers", values.get("servers", []), "kind", _is_kind),
        methods=_allows(reader, "install.methods", install.get("methods", []), "name", _is_name),
        registries=_allows(reader, "install.registries", install.get("registries", []), "host", _is_name),
        transports=_allows(reader, "transports", values.get("transports", []), "name", _is_name),
        runtimes=reader.items("runtimes", values.get("runtimes", []), lambda path, item: _runtime(reader, path, item)),
        min_strength=_strength(reader, "runtime_floor", floor) if floor else 0,
        hosts=reader.items("egress.hosts", egress.get("hosts", []), lambda path, item: _host(reader, path, item)),
        private=_allows(reader, "egress.private", egress.get("private", []), "cidr", _is_cidr),
        authorities=_allows(reader, "egress.ca", egress.get("ca", []), "file", lambda path: path.startswith("/")),
        env_pass=_allows(reader, "env.pass", env.get("pass", []), "name", _is_name),
        env_never=_allows(reader, "env.never", env.get("never", []), "name", _is_name),
        unsafe=_allows(reader, "unsafe", values.get("unsafe", []), "name", _is_unsafe),
        pull=_flag(reader, values, "images", "pull"),
        raw_tcp=_flag(reader, {"egress": egress}, "egress", "raw_tcp"),
        host_ca=_flag(reader, values, "host_ca", "allow"),
        first_use=_flag(reader, values, "pins", "first_use"),
        sources={path: reader.source(path) for path in reader.lines},
    )


def _bounds(reader: Reader, value: Any) -> dict[str, Bound]:
    table = reader.table("limits", value, BOUNDS)
    bounds: dict[str, Bound] = {}
    for name in (name for name in BOUNDS if name in table):
        path = f"limits.{name}"
        entry = reader.table(path, table[name], ("max", "default", "reason"))
        unit = _UNIT.get(name, "count")
        most, given = reader.amount(path, entry, "max", unit), reader.amount(path, entry, "default", unit)
        if given > most:
            reader.bad("PLAN-082", f"{path}.default", "the default is above the maximum", mend="lower it")
        bounds[name] = Bound(most, given, reader.text(path, entry, "reason"), reader.source(f"{path}.max"))
    return bounds


def _allows(reader: Reader, path: str, value: Any, key: str, valid: Callable[[str], bool] = bool) -> tuple[Allow, ...]:
    """Return a list of ``{<key>, reason}`` tables."""

    def entry(where: str, item: Any) -> Allow:
        table = reader.table(where, item, (key, "reason"))
        text = reader.text(where, table, key)
        if text and not valid(text):
            reader.wrong(f"{where}.{key}", text, f"a valid {key}")
        return Allow(text, reader.text(where, table, "reason"), reader.source(where))

    found: tuple[Allow, ...] = reader.items(path, value, entry)
    return found


def _runtime(reader: Reader, path: str, item: Any) -> RuntimeAllow:
    table = reader.table(path, item, ("name", "strength", "reason"))
    name = reader.text(path, table, "name")
    if name and not _is_name(name):
        reader.wrong(f"{path}.name", name, "a runtime's name")
    return RuntimeAllow(name, _strength(reader, path, table), str(table.get("reason", "")), reader.source(path))


def _strength(reader: Reader, path: str, table: Mapping[str, Any]) -> int:
    reader.text(path, table, "reason")
    return int(reader.amount(path, table, "strength", "count"))


def _host(reader: Reader, path: str, item: Any) -> HostAllow:
    table = reader.table(path, item, ("pattern", "ports", "reason"))
    ports = table.get("ports", [])
    if not isinstance(ports, list) or not all(type(port) is int and 0 < port <= _PORT_MAX for port in ports):
        reader.wrong(f"{path}.ports", ports, "a list of TCP ports")
        ports = [0]  # covers nothing
    if "ports" in table and not ports:
        reader.wrong(f"{path}.ports", ports, "at least one port; leave the key out for any port")
        ports = [0]
    pattern = reader.text(path, table, "pattern")
    if pattern and pattern != "*" and not _is_host(pattern):
        reader.wrong(
            f"{path}.pattern", pattern, "`*`, `*.suffix`, a host name, an address or a CIDR, in canonical form"
        )
    return HostAllow(pattern, tuple(ports), reader.text(path, table, "reason"), reader.source(path))


def _flag(reader: Reader, values: Mapping[str, Any], section: str, key: str) -> bool:
    """Return a switch; one that is on needs a reason."""
    known = ("raw_tcp", "reason", "hosts", "private", "ca") if section == "egress" else (key, "reason")
    table = reader.table(section, values.get(section, {}), known)
    on = reader.flag(section, table, key)
    if on:
        reader.text(section, table, "reason")
    return on


def _is_path(path: str) -> bool:
    bare = path.removeprefix("${driver}").removeprefix("**").removeprefix("~")
    rooted = path.startswith(("/", "~/", "**/", "${driver}/")) or path in {"~", "${driver}"}
    parts = bare.split("/")[1:]
    return rooted and all(part not in {"", ".", ".."} and part.count("*") <= 1 for part in parts)


def _is_name(name: str) -> bool:
    """Return whether a name has only name characters, with at most one ``*`` at its end: then covering is prefixing."""
    return _NAME.fullmatch(name) is not None


def _is_kind(kind: str) -> bool:
    return kind in {"binary", "npm", "docker", "remote"}


def _is_unsafe(name: str) -> bool:
    known, colon, host = name.partition(":")
    return name in UNSAFE or (known == PLAIN_HTTP and bool(colon) and host != "*" and _is_host(host))


def _is_host(pattern: str) -> bool:
    """Return whether a pattern is what the parser of egress entries makes of it: one form, the one that is compared."""
    try:
        return parse_rule(pattern).host == pattern.strip("[]")
    except SpecError:
        return False


def _is_cidr(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


# --- narrowing --------------------------------------------------------------------------------------------------------
def _narrow(reader: Reader, values: Mapping[str, Any], own: Ceiling, base: Ceiling) -> Ceiling:
    """Return ``base`` with everything that the file says put over it; note ``PLAN-086`` for all that would widen.

    Steps: 1 bounds, 2 allow lists, 3 switches. Never lists are joined, and the strongest runtime floor holds.
    """
    # 1. bounds: both numbers at most those below
    for name, bound in own.bounds.items():
        below = base.bounds[name]
        for key, mine, theirs in (("max", bound.max, below.max), ("default", bound.default, below.default)):
            if mine > theirs:
                at_most = f"at most {show(name, theirs)} ({below.source})"
                _wider(reader, f"limits.{name}.{key}", show(name, mine), at_most)
    # 2. allow lists: each entry covered by one below; a list that is not written is inherited
    lists: dict[str, Any] = {
        field: _covered(reader, path, getattr(own, field), getattr(base, field), covers)
        for path, field, covers in _LISTS
        if _written(values, path)
    }
    # 3. switches: on only where on below
    switches: dict[str, Any] = {field: getattr(own, field) for path, field in _SWITCHES if _written(values, path)}
    for path, field in _SWITCHES:
        if switches.get(field, False) and not getattr(base, field):
            _wider(reader, path, "true", f"false ({base.where(path)})")
    return replace(
        base,
        name=own.name,
        bounds={**base.bounds, **own.bounds},
        never=base.never + own.never,
        env_never=base.env_never + own.env_never,
        min_strength=max(base.min_strength, own.min_strength),
        sources={**base.sources, **own.sources},
        **lists,
        **switches,
    )


def _covered(
    reader: Reader, path: str, own: tuple[Any, ...], below: tuple[Any, ...], covers: Callable[[Any, Any], bool]
) -> tuple[Any, ...]:
    """Return ``own``; note each entry that no entry of ``below`` covers."""
    for index, entry in enumerate(own):
        if not any(covers(allowed, entry) for allowed in below):
            allowed_text = ", ".join(_named(item) for item in below) or "nothing"
            _wider(reader, f"{path}[{index}]", _named(entry), allowed_text)
    return own


def _wider(reader: Reader, path: str, found: str, allowed: str) -> None:
    message = "a narrowing file may not allow more than the file below it"
    mend = 'take it out, or write a complete file with replaces = "default"'
    reader.bad("PLAN-086", path, message, found=found, allowed=allowed, mend=mend)


def _written(values: Mapping[str, Any], path: str) -> bool:
    section, _, key = path.partition(".")
    table = values.get(section)
    return table is not None and (not key or (isinstance(table, dict) and key in table))


def _named(entry: Allow | RuntimeAllow | HostAllow) -> str:
    if isinstance(entry, HostAllow):
        return host_text(entry)
    return entry.name if isinstance(entry, RuntimeAllow) else entry.value


def _same(below: Allow, entry: Allow) -> bool:
    return star(below.value, entry.value)


def _exactly(below: Allow, entry: Allow) -> bool:
    return below.value == entry.value


def _root(below: Allow, entry: Allow) -> bool:
    return entry.value == below.value or entry.value.startswith(below.value.rstrip("/") + "/")


def _runtime_same(below: RuntimeAllow, entry: RuntimeAllow) -> bool:
    return star(below.name, entry.name) and entry.strength == below.strength


def _host_within(below: HostAllow, entry: HostAllow) -> bool:
    """Return whether an entry names no more than the one below; ``*`` is only within ``*``."""
    if below.ports and not (entry.ports and set(entry.ports) <= set(below.ports)):
        return False
    if entry.pattern in {"*", below.pattern}:
        return entry.pattern == below.pattern
    return narrowed(
        EgressRule(entry.pattern, (HTTPS_PORT,)), (below.pattern,)
    )  # ports are judged: any one stands for all


def _network_within(below: Allow, entry: Allow) -> bool:
    outer, inner = ip_network(below.value), ip_network(entry.value)
    return outer.version == inner.version and inner.subnet_of(outer)  # type: ignore[arg-type]


_LISTS: Final[tuple[tuple[str, str, Callable[[Any, Any], bool]], ...]] = (
    ("mounts.read", "read", _root),
    ("mounts.write", "write", _root),
    ("servers", "servers", _same),
    ("install.methods", "methods", _same),
    ("install.registries", "registries", _same),
    ("transports", "transports", _same),
    ("runtimes", "runtimes", _runtime_same),
    ("egress.hosts", "hosts", _host_within),
    ("egress.private", "private", _network_within),
    ("egress.ca", "authorities", _exactly),
    ("env.pass", "env_pass", _same),
    ("unsafe", "unsafe", _same),
)
"""Section, field and coverage relation of every allow list."""

_SWITCHES: Final = (
    ("images.pull", "pull"),
    ("egress.raw_tcp", "raw_tcp"),
    ("host_ca.allow", "host_ca"),
    ("pins.first_use", "first_use"),
)
"""Path and field of every switch."""

"""What an operator's ceiling is made of, as frozen values, and how its wildcards match.

A ceiling is a set of allow lists, of upper bounds and of never lists. Every entry carries its reason and its place, so
that a refusal can name both sides. An empty list allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sandbox.limits import GIB, KIB, MIB

BOUNDS: Final = ("memory", "cpus", "pids", "nofile", "fsize", "tmp", "tmp_inodes", "lifetime", "call_timeout")
"""Names of the bounds every complete ceiling sets; sizes in bytes, times in seconds, cpus in cores."""

_SIZES: Final = (("GiB", GIB), ("MiB", MIB), ("KiB", KIB), ("B", 1))
_TIMES: Final = (("h", 3600), ("min", 60), ("s", 1))

UNSAFE: Final = (
    "unsafe_unpinned_image",
    "unsafe_spawn_list_unenforced",
    "unsafe_missing_memory",
    "unsafe_missing_pids",
    "unsafe_missing_cpu",
    "unsafe_admit_undecided",
)
"""Every weakening an operator may switch on; no shipped file does. Each stands in the plan it was used for."""

PLAIN_HTTP: Final = "unsafe_plain_http"
"""A weakening for one host, written ``unsafe_plain_http:HOST``: a remote server is reached without TLS."""


@dataclass(frozen=True, slots=True)
class Allow:
    """One entry of an allow or never list: what, why, and ``file:line``."""

    value: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Bound:
    """One upper bound: what may be asked for at most, and what is given when nothing is asked for."""

    max: float
    default: float
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class RuntimeAllow:
    """One OCI runtime (``*`` allowed in the name); ``strength`` orders runtimes by how much they isolate."""

    name: str
    strength: int
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class HostAllow:
    """Destinations that a driver's egress list may at most name; empty ``ports`` is any port."""

    pattern: str
    ports: tuple[int, ...]
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that any driver may be given on this host.

    Attributes:
        name: ``default``, ``strict`` or the operator's own.
        digest: ``sha256:…`` over the files it was made from, in order; stands in every plan.
        bounds: by name of :data:`BOUNDS`.
        never: paths that are never mounted (forms: absolute, ``~/…``, ``**/name``; ``*`` within a component).
        min_strength: weakest acceptable runtime strength; 0 is any that is listed.
        private: CIDRs of non-public networks that may be reached.
        authorities: PEM files of certificate authorities that are trusted beside the host's, where mcp-sandbox itself
            verifies a server: remote ones, and those that a secret is substituted for.
        unsafe: weakenings of :data:`UNSAFE` that are switched on.
        first_use: whether a server that nobody has approved is served, held to what it said first.
        sources: flag name → ``file:line``.
    """

    name: str
    digest: str
    bounds: Mapping[str, Bound]
    read: tuple[Allow, ...] = ()
    write: tuple[Allow, ...] = ()
    never: tuple[Allow, ...] = ()
    servers: tuple[Allow, ...] = ()
    methods: tuple[Allow, ...] = ()
    registries: tuple[Allow, ...] = ()
    transports: tuple[Allow, ...] = ()
    runtimes: tuple[RuntimeAllow, ...] = ()
    min_strength: int = 0
    hosts: tuple[HostAllow, ...] = ()
    private: tuple[Allow, ...] = ()
    authorities: tuple[Allow, ...] = ()
    env_pass: tuple[Allow, ...] = ()
    env_never: tuple[Allow, ...] = ()
    unsafe: tuple[Allow, ...] = ()
    pull: bool = False
    raw_tcp: bool = False
    host_ca: bool = False
    first_use: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def where(self, section: str) -> str:
        """Return ``file:line`` of a section or flag, or the ceiling's name when it is not written."""
        return self.sources.get(section, f"policy {self.name}")

    def unsafe_on(self, name: str) -> Allow | None:
        """Return the entry that switches a weakening on, or ``None``."""
        return next((entry for entry in self.unsafe if entry.value == name), None)


def show(bound: str, amount: float) -> str:
    """Return a bound's amount as a person writes it: ``512MiB``, ``24h``, ``1.5``."""
    if bound in {"memory", "fsize", "tmp"}:
        return next(f"{int(amount // size)}{unit}" for unit, size in _SIZES if amount % size == 0)
    if bound in {"lifetime", "call_timeout"}:
        return next(f"{amount / size:g}{unit}" for unit, size in _TIMES if amount % size == 0 or size == 1)
    return f"{amount:g}"


def listed(entries: tuple[Allow, ...], value: str) -> Allow | None:
    """Return the first entry whose value (``*`` is a wildcard) matches, or ``None``."""
    return next((entry for entry in entries if star(entry.value, value)), None)


def star(pattern: str, text: str) -> bool:
    """Return whether a text is the pattern, in which at most one ``*`` stands for any characters."""
    head, wild, tail = pattern.partition("*")
    if not wild:
        return pattern == text
    return len(text) >= len(head) + len(tail) and text.startswith(head) and text.endswith(tail)


def host_text(entry: HostAllow) -> str:
    """Return an entry for messages."""
    return entry.pattern + (f" port {', '.join(map(str, entry.ports))}" if entry.ports else "")

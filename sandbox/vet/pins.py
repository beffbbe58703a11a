r"""Pins: what a person approved of a server, kept whole in ``driver.lock`` so that a change can be shown in its fields.

::

    "pins": {
      "version": 1,
      "surfaces": {
        "{}": …                 one surface for each set of client capabilities that was declared to the server, under
        "{\"roots\":{}}": …      its canonical JSON: servers offer other tools to other clients
      }
    }

A surface is everything that the server said: era, protocol version, its name and version, capabilities, instructions,
tools, prompts, resources and templates, every page, every member untouched (``_meta``, icons, annotations). Whether a
change of it matters is decided by :mod:`sandbox.vet.drift`. ADR 0065, 0066.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from sandbox import jsontext
from sandbox.errors import SpecError
from sandbox.launch.lockfile import damaged, path_of, read_sections, write_sections
from sandbox.vet.model import ServerSurface
from sandbox.wire.versions import Era

SECTION: Final = "pins"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Pins:
    """What was approved of one server.

    Attributes:
        surfaces: key of client capabilities (:func:`key_of`) → surface that was approved under them.
    """

    surfaces: Mapping[str, ServerSurface] = field(default_factory=dict)

    def under(self, client_capabilities: Mapping[str, Any]) -> ServerSurface | None:
        """Return what was approved for a client of these capabilities, ``None`` when nothing was."""
        return self.surfaces.get(key_of(client_capabilities))

    def approving(self, surface: ServerSurface) -> Pins:
        """Return these pins with a surface in place of what was approved under its client capabilities."""
        return Pins({**self.surfaces, key_of(surface.client_capabilities): surface})


def pins_of(surface: ServerSurface) -> Pins:
    """Return pins that approve one surface and nothing else."""
    return Pins().approving(surface)


def key_of(client_capabilities: Mapping[str, Any]) -> str:
    """Return the key of a set of client capabilities: its canonical JSON."""
    return jsontext.canonical(dict(client_capabilities)).decode()


def read(folder: str) -> Pins | None:
    """Return the pins of a driver folder, ``None`` when nothing was approved yet.

    Raises:
        SpecError: ``INST-002``, ``driver.lock`` is not a lock; ``VET-131``, its pins are not what they should be.
    """
    sections = read_sections(folder)
    if sections is None or SECTION not in sections:
        return None
    try:
        return decode(sections[SECTION])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(folder, f"{type(error).__name__}: {error}") from None


def write(folder: str, pins: Pins) -> None:
    """Write the pins of a driver folder into its ``driver.lock``, as a whole or not at all; other sections stay.

    Raises:
        SpecError: ``INST-002``, the file that is there is not a lock.
        OSError: it cannot be written.
    """
    write_sections(folder, {SECTION: encode(pins)})


def encode(pins: Pins) -> dict[str, Any]:
    """Return the JSON value of pins."""
    return {"version": VERSION, "surfaces": {key: encode_surface(one) for key, one in pins.surfaces.items()}}


def decode(value: Any) -> Pins:
    """Return the pins of a JSON value.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']!r}; this mcp-sandbox knows {VERSION}")
    return Pins({key: _surface(key, one) for key, one in _mapping(value["surfaces"]).items()})


def encode_surface(surface: ServerSurface) -> dict[str, Any]:
    """Return the JSON value of one surface; its capabilities of the client are the key that it stands under."""
    return {
        "era": surface.era,
        "protocol_version": surface.protocol_version,
        "server": dict(surface.server_info),
        "capabilities": dict(surface.capabilities),
        "instructions": surface.instructions,
        "tools": {name: dict(one) for name, one in surface.tools.items()},
        "prompts": {name: dict(one) for name, one in surface.prompts.items()},
        "resources": sorted(map(dict, surface.resources), key=jsontext.canonical),
        "resource_templates": sorted(map(dict, surface.resource_templates), key=jsontext.canonical),
    }


def digest_of(surface: ServerSurface) -> str:
    """Return ``sha256:…`` of everything that pins hold of a surface, client capabilities included."""
    return jsontext.digest([key_of(surface.client_capabilities), encode_surface(surface)])


def _surface(key: str, value: Mapping[str, Any]) -> ServerSurface:
    capabilities = _mapping(jsontext.parse(key.encode()))
    if key_of(capabilities) != key:
        raise ValueError(f"{key[:80]!r} is not canonical")
    if value["era"] not in ("handshake", "stateless"):
        raise ValueError(f"era {value['era']!r}")
    unknown = sorted(set(value) - _MEMBERS)
    if unknown:
        raise ValueError(f"unexpected `{unknown[0]}`")
    return ServerSurface(
        era=cast("Era", value["era"]),
        protocol_version=_text(value["protocol_version"]),
        server_info=_mapping(value["server"]),
        capabilities=_mapping(value["capabilities"]),
        instructions=_text(value["instructions"]),
        client_capabilities=capabilities,
        tools={name: _mapping(one) for name, one in _mapping(value["tools"]).items()},
        prompts={name: _mapping(one) for name, one in _mapping(value["prompts"]).items()},
        resources=tuple(map(_mapping, value["resources"])),
        resource_templates=tuple(map(_mapping, value["resource_templates"])),
    )


_MEMBERS: Final = {
    "era", "protocol_version", "server", "capabilities", "instructions",
    "tools", "prompts", "resources", "resource_templates",
}  # fmt: skip


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:80]!r} where an object belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:80]!r} where a text belongs")
    return value


def _damaged(folder: str, why: str) -> SpecError:
    return damaged(path_of(folder), f"its pins are damaged, {why}", "VET-131")

"""Pins in driver.lock: whole, canonical, keyed by client capabilities, beside what other stages keep there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sandbox.errors import SpecError
from sandbox.launch.install.lock import Lock
from sandbox.launch.install.lock import read as read_install
from sandbox.launch.install.lock import write as write_install
from sandbox.resources import shipped
from sandbox.vet import pins
from sandbox.vet.model import ServerSurface
from sandbox.vet.pins import Pins, pins_of

ROOTS: dict[str, Any] = {"roots": {}}


def surface(**parts: Any) -> ServerSurface:
    """Return the surface of a small server."""
    values: dict[str, Any] = {
        "era": "handshake",
        "protocol_version": "2025-11-25",
        "server_info": {"name": "s", "version": "1.0.0", "icons": [{"src": "data:,x"}]},
        "capabilities": {"tools": {"listChanged": True}},
        "instructions": "be careful",
        "tools": {"a": {"name": "a", "inputSchema": {"type": "object"}, "_meta": {"k": [1, 2.5, None]}}},
        "prompts": {"p": {"name": "p"}},
        "resources": ({"uri": "b:1", "name": "b"}, {"uri": "a:1", "name": "a"}),
        "resource_templates": ({"uriTemplate": "a:{x}", "name": "t"},),
    }
    return ServerSurface(**{**values, **parts})


def test_pins_survive_their_file(tmp_path: Path) -> None:
    """Everything that a server said is read back as it was, for each set of client capabilities."""
    plain, rooted = surface(), surface(client_capabilities=ROOTS, tools={})

    pins.write(str(tmp_path), pins_of(plain).approving(rooted))
    found = pins.read(str(tmp_path))

    assert found is not None
    assert (plain.tools, plain.instructions) == (found.under({}).tools, found.under({}).instructions)  # type: ignore[union-attr]
    assert {} == found.under(ROOTS).tools  # type: ignore[union-attr]
    assert found.under({"sampling": {}}) is None
    assert pins.digest_of(plain) == pins.digest_of(found.under({}))  # type: ignore[arg-type]


def test_nothing_approved_is_none(tmp_path: Path) -> None:
    """No file, and a file with an install only, both mean that nobody approved a surface."""
    assert pins.read(str(tmp_path)) is None
    write_install(str(tmp_path), Lock({"method": "npm", "wanted": "a"}, "node", {}))
    assert pins.read(str(tmp_path)) is None


def test_install_and_pins_keep_each_other(tmp_path: Path) -> None:
    """Whoever writes one section leaves the other as it was, in either order."""
    lock = Lock({"method": "npm", "wanted": "a"}, "node", {"npm": {"name": "a", "version": "1", "packages": {}}})
    folder = str(tmp_path)

    pins.write(folder, pins_of(surface()))
    assert read_install(folder) is None
    write_install(folder, lock)
    pins.write(folder, pins_of(surface(instructions="other")))

    kept = read_install(folder)
    assert kept is not None
    assert lock.pins == kept.pins
    assert "other" == pins.read(folder).under({}).instructions  # type: ignore[union-attr]
    jsonschema.validate(
        json.loads((tmp_path / "driver.lock").read_bytes()),
        json.loads(shipped("schemas", "driver-lock.schema.json").read_text()),
    )
    assert ["driver.lock"] == [path.name for path in tmp_path.iterdir()]


def test_hidden_characters_are_escapes_in_the_file(tmp_path: Path) -> None:
    """A reader of the file sees every character that a description hides, and the value is unchanged."""
    hidden = "read\u202e\u200b\U000e0041\x1b[8m me"
    pins.write(str(tmp_path), pins_of(surface(instructions=hidden)))
    text = (tmp_path / "driver.lock").read_text()

    assert all(one.isprintable() or one == "\n" for one in text)
    assert r"\u202e\u200b\udb40\udc41" in text
    assert hidden == pins.read(str(tmp_path)).under({}).instructions  # type: ignore[union-attr]


def test_order_of_listing_does_not_matter() -> None:
    """Resources come in any order; the digest is that of the set, and every other change shows in it."""
    one, other = surface(), surface(resources=tuple(reversed(surface().resources)))

    assert pins.digest_of(one) == pins.digest_of(other)
    assert pins.digest_of(one) != pins.digest_of(surface(client_capabilities=ROOTS))
    assert pins.digest_of(one) != pins.digest_of(surface(era="stateless"))


@pytest.mark.parametrize(
    "damage",
    [
        {},
        [],
        {"version": 2, "surfaces": {}},
        {"version": 1, "surfaces": []},
        {"version": 1, "surfaces": {"{}": {}}},
        {"version": 1, "surfaces": {"{ }": pins.encode_surface(surface())}},
        {"version": 1, "surfaces": {"[]": pins.encode_surface(surface())}},
        {"version": 1, "surfaces": {"{}": {**pins.encode_surface(surface()), "tools": {"a": "text"}}}},
        {"version": 1, "surfaces": {"{}": {**pins.encode_surface(surface()), "era": "stone"}}},
        {"version": 1, "surfaces": {"{}": {**pins.encode_surface(surface()), "more": 1}}},
    ],
)
def test_damaged_pins_are_refused(damage: Any, tmp_path: Path) -> None:
    """Pins that are not wholly understood are an error that names the file: never fewer pins than were written."""
    (tmp_path / "driver.lock").write_text(json.dumps({"version": 1, "pins": damage}))

    with pytest.raises(SpecError) as caught:
        pins.read(str(tmp_path))

    assert ("VET-131", str(tmp_path / "driver.lock")) == (caught.value.problems[0].id, caught.value.problems[0].file)


def test_empty_pins_approve_nothing() -> None:
    """Pins without a surface are no permission for any."""
    assert Pins().under({}) is None

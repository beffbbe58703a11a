"""A kept plan is used only when nothing that it was made from has changed (ADR 0016)."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.cli import prepared
from sandbox.plan.model import EnvEntry, NetworkPlan, SandboxPlan
from sandbox.testing.plans import baseline_plan


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """Arguments for a driver folder of its own, and a cache of its own."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "DRIVER.md").write_text("---\n---\n")
    monkeypatch.setattr(prepared, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(prepared.baseline, "check", lambda plan: None)
    return argparse.Namespace(driver=folder / "DRIVER.md", root=[], memory=None, runtime="", policy=None)


def small() -> SandboxPlan:
    """Return a plan that may be kept."""
    return baseline_plan()


def test_an_unchanged_driver_gets_its_plan_back(arguments: argparse.Namespace) -> None:
    """What was kept comes back with the same digest."""
    prepared.keep(arguments, small(), ())

    found = prepared.load(arguments)

    assert found is not None
    assert small().digest() == found.digest()


@pytest.mark.parametrize("name", ["DRIVER.md", "driver.lock", "tools/a/TOOL.md", "SECRETS.md"])
def test_any_changed_or_new_manifest_forgets_the_plan(arguments: argparse.Namespace, name: str) -> None:
    """A file that is edited or appears makes the next start an ordinary one."""
    prepared.keep(arguments, small(), ())
    path = arguments.driver.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed")

    assert prepared.load(arguments) is None


def test_a_contract_outside_the_folder_counts(arguments: argparse.Namespace, tmp_path: Path) -> None:
    """A TOOL.md that lies elsewhere is part of what the plan was made from."""
    outside = tmp_path / "TOOL.md"
    outside.write_text("one")
    prepared.keep(arguments, small(), (str(outside),))
    before = prepared.load(arguments)
    outside.write_text("two")

    assert (True, True) == (before is not None, prepared.load(arguments) is None)


@pytest.mark.parametrize(
    ("option", "value"), [("root", ["/a=/b"]), ("memory", 64), ("runtime", "runsc"), ("policy", Path("/p"))]
)
def test_other_options_have_another_plan(arguments: argparse.Namespace, option: str, value: object) -> None:
    """What the command line re-points or narrows is part of the key."""
    prepared.keep(arguments, small(), ())
    setattr(arguments, option, value)

    assert prepared.load(arguments) is None


@pytest.mark.parametrize(
    "plan",
    [
        replace(baseline_plan(), env=(EnvEntry("KEY", secret="api-key"),)),
        replace(baseline_plan(), env=(EnvEntry("HOME", "/root", origin="host"),)),
        replace(baseline_plan(), network=NetworkPlan("broker")),
    ],
)
def test_secrets_host_variables_and_networks_are_not_kept(arguments: argparse.Namespace, plan: SandboxPlan) -> None:
    """A plan that holds more than reviewed files say is never written down."""
    prepared.keep(arguments, plan, ())

    assert not prepared.CACHE.exists()


def test_a_planted_plan_is_not_used(arguments: argparse.Namespace) -> None:
    """A kept plan whose fields were changed no longer matches its digest."""
    prepared.keep(arguments, small(), ())
    (place,) = prepared.CACHE.glob("*.json")
    entry = json.loads(place.read_bytes())
    entry["plan"]["mounts"] = [{"source": "/", "target": "/host", "writable": True}]
    place.write_text(json.dumps(entry))

    assert prepared.load(arguments) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": 1}'])
def test_a_damaged_cache_is_ignored(arguments: argparse.Namespace, text: str) -> None:
    """Whatever lies there, the start goes on in the ordinary way."""
    prepared.keep(arguments, small(), ())
    (place,) = prepared.CACHE.glob("*.json")
    place.write_text(text)

    assert prepared.load(arguments) is None

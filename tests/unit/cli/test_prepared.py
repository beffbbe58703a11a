"""A kept review is used only when nothing that it was made from has changed (ADR 0016)."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox.cli import hostfacts, prepared
from sandbox.cli.hostfacts import CACHE, local_facts, overrides_of, own_paths
from sandbox.cli.verdicts import PLACE
from sandbox.launch.images.places import Places
from sandbox.plan.model import EngineFacts, EnvEntry, HostFacts, ImageFacts, NetworkPlan, SandboxPlan
from sandbox.policy.destinations import EgressRule
from sandbox.spec.model import DriverSpec, FsGrant, FsRules, InstallStep, Origin, SandboxRules
from sandbox.testing.plans import baseline_plan
from tests.planning import folders
from tests.unit.plan.test_grants_attacks import ids
from tests.unit.serve.builders import contract_of, spec_of

ENGINE = EngineFacts("docker", "20.10", "1.41", ("runc",), "runc")
SOCKET = "/run/docker.sock"


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


def image() -> ImageFacts:
    """Return the image of that plan."""
    return ImageFacts(small().image_id, small().image_named, ("/server",))


def review(
    arguments: argparse.Namespace, plan: SandboxPlan | None = None, spec: DriverSpec | None = None, *files: str
) -> SimpleNamespace:
    """Return what a review of this host, as it is, made."""
    spec = spec or spec_of(contract_of())
    facts = local_facts(spec, overrides_of(arguments), SOCKET, own_paths(arguments))
    host = replace(facts, engine=ENGINE, image=image())
    return SimpleNamespace(
        plan=plan or small(),
        spec=spec,
        host=host,
        egress_image="",
        overrides=overrides_of(arguments),
        files=files,
    )


def stands(kept: prepared.Kept | None, arguments: argparse.Namespace) -> bool:
    """Return whether a kept review stands on this host."""
    assert kept is not None
    return kept.stands(arguments, SOCKET, ENGINE, image())


def test_an_unchanged_driver_gets_its_review_back(arguments: argparse.Namespace) -> None:
    """What was kept comes back whole: the plan with its digest, the driver, and the facts of this host."""
    made = review(arguments)
    prepared.keep(arguments, made)

    found = prepared.load(arguments)

    assert found is not None
    assert (small().digest(), made.spec, made.host) == (found.plan.digest(), found.spec, found.host)
    assert stands(found, arguments)


@pytest.mark.parametrize("name", ["DRIVER.md", "driver.lock", "tools/a/TOOL.md", "SECRETS.md"])
def test_any_changed_or_new_manifest_forgets_the_review(arguments: argparse.Namespace, name: str) -> None:
    """A file that is edited or appears makes the next start an ordinary one."""
    prepared.keep(arguments, review(arguments))
    path = arguments.driver.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed")

    assert prepared.load(arguments) is None


def test_a_file_outside_the_folder_counts(arguments: argparse.Namespace, tmp_path: Path) -> None:
    """A TOOL.md that lies elsewhere, or a program of this host, is part of what the plan was made from."""
    outside = tmp_path / "program"
    outside.write_text("one")
    prepared.keep(arguments, review(arguments, None, None, str(outside)))
    before = prepared.load(arguments)
    outside.write_text("two")

    assert (True, True) == (before is not None, prepared.load(arguments) is None)


@pytest.mark.parametrize(
    ("option", "value"), [("root", ["/a=/b"]), ("memory", 64), ("runtime", "runsc"), ("policy", Path("/p"))]
)
def test_other_options_have_another_review(arguments: argparse.Namespace, option: str, value: object) -> None:
    """What the command line re-points or narrows is part of the key."""
    prepared.keep(arguments, review(arguments))
    setattr(arguments, option, value)

    assert prepared.load(arguments) is None


def test_a_folder_that_became_a_link_makes_the_start_ordinary(arguments: argparse.Namespace, tmp_path: Path) -> None:
    """Facts of this host are asked anew: a grant is judged by where it leads now."""
    granted = tmp_path / "granted"
    granted.mkdir()
    rules = SandboxRules(fs=FsRules(read=(FsGrant(path=str(granted), at="/data"),)))
    spec = spec_of(contract_of()).model_copy(update={"sandbox": rules})
    prepared.keep(arguments, review(arguments, None, spec))
    before = stands(prepared.load(arguments), arguments)
    granted.rmdir()
    granted.symlink_to("/etc")

    assert (True, False) == (before, stands(prepared.load(arguments), arguments))


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        (replace(ENGINE, version="27.0"), image()),
        (replace(ENGINE, missing=("memory",)), image()),
        (ENGINE, replace(image(), id="sha256:" + "f" * 64)),
        (ENGINE, None),
    ],
)
def test_another_engine_or_image_makes_the_start_ordinary(
    arguments: argparse.Namespace, engine: EngineFacts, found: ImageFacts | None
) -> None:
    """An engine that can do other things, a name that means another image, and an image that is gone are noticed."""
    prepared.keep(arguments, review(arguments))
    kept = prepared.load(arguments)

    assert kept is not None
    assert not kept.stands(arguments, SOCKET, engine, found)


def test_host_variables_are_never_kept(arguments: argparse.Namespace) -> None:
    """A plan that holds values of a person's environment is not written down."""
    plan = replace(baseline_plan(), env=(EnvEntry("HOME", "/root", origin="host"),))
    prepared.keep(arguments, review(arguments, plan))

    assert not prepared.CACHE.exists()


def test_what_comes_from_undigested_files_is_not_kept(arguments: argparse.Namespace) -> None:
    """A vendored folder can change without any manifest changing."""
    step = InstallStep(method="vendored", params={"path": "dist"}, origin=Origin(file="DRIVER.md"))
    spec = spec_of(contract_of()).model_copy(update={"install": (step,)})
    prepared.keep(arguments, review(arguments, None, spec))

    assert not prepared.CACHE.exists()


def test_rules_of_the_network_and_slugs_of_secrets_come_back(arguments: argparse.Namespace) -> None:
    """A plan with egress rules and references to secrets holds nothing but what files say."""
    rules = (EgressRule("api.example.com", (443,), "tls", "DRIVER.md:7"),)
    plan = replace(baseline_plan(), network=NetworkPlan("broker", rules), env=(EnvEntry("KEY", secret="api-key"),))
    prepared.keep(arguments, review(arguments, plan))

    found = prepared.load(arguments)

    assert found is not None
    assert plan == found.plan


def test_a_planted_plan_is_not_used(arguments: argparse.Namespace) -> None:
    """A kept plan whose fields were changed no longer matches its digest."""
    prepared.keep(arguments, review(arguments))
    (place,) = prepared.CACHE.glob("*.json")
    entry = json.loads(place.read_bytes())
    entry["plan"]["mounts"] = [{"source": "/", "target": "/host", "writable": True}]
    place.write_text(json.dumps(entry))

    assert prepared.load(arguments) is None


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_others_can_write_is_not_used(arguments: argparse.Namespace, which: str) -> None:
    """A cache that is open for others proves nothing."""
    prepared.keep(arguments, review(arguments))
    (place,) = prepared.CACHE.glob("*.json")
    (place if which == "file" else place.parent).chmod(0o777)

    assert prepared.load(arguments) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"inputs": 1}', "[" * 100_000])
def test_a_damaged_cache_is_ignored(arguments: argparse.Namespace, text: str) -> None:
    """Whatever lies there, the start goes on in the ordinary way."""
    prepared.keep(arguments, review(arguments))
    (place,) = prepared.CACHE.glob("*.json")
    place.write_text(text)

    assert prepared.load(arguments) is None


def test_every_fact_of_the_host_is_compared(arguments: argparse.Namespace) -> None:
    """A fact that plans are made from and that is not asked again would be trusted for ever."""
    asked = local_facts(spec_of(contract_of()), overrides_of(arguments), SOCKET, own_paths(arguments))
    settled = {"image", "egress_available", "remote_available", "engine"}
    by_default = HostFacts(hostfacts.UNASKED)

    silent = {
        name
        for name in HostFacts.__slots__
        if getattr(asked, name) == getattr(by_default, name) and name not in settled
    }

    assert silent <= {"paths", "passed_env", "secrets", "caller", "transports", "disk_free_bytes", "home"}


@pytest.mark.claim("P-PLAN-07")
@pytest.mark.parametrize("place", [CACHE, PLACE, Places.of(os.environ).cache / "layers"])
def test_no_server_may_write_what_starts_believe(arguments: argparse.Namespace, place: Path) -> None:
    """Kept reviews, verdicts and layers decide what is started: no write grant reaches them."""
    path = os.path.realpath(place)

    assert "PLAN-027" in ids(folders(path), write=True, own_paths=own_paths(arguments))
    assert "PLAN-027" not in ids(folders(path), write=True, own_paths=())

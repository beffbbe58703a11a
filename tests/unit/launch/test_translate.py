"""The create request says everything explicitly; the golden file is what a reviewer compares a change with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.launch import kernel, procfacts, translate
from sandbox.launch.interface import LABEL_RUN
from sandbox.launch.translate import Joined, create_request
from sandbox.plan.model import EnvEntry, Mount, SandboxPlan, Tmpfs
from sandbox.testing.plans import baseline_plan
from tests.shared import ROOT

GOLDEN = ROOT / "tests" / "data" / "launch"
NONE = Joined()
JOINED = Joined("container:holder", {"/run/x/resolv.conf": "/etc/resolv.conf"}, {"HTTPS_PROXY": "http://127.0.0.1:1"})


def full_plan() -> SandboxPlan:
    """Return a plan that uses every part."""
    return baseline_plan(
        argv=("/usr/bin/node", "/app/index.js", "--root", "/data; rm -rf /"),
        mounts=(Mount("/srv/notes", "/data", writable=False), Mount("/srv/out", "/out", writable=True)),
        tmpfs=(Tmpfs("/tmp", 1024, 16), Tmpfs("/cache", 4096, 8, executable=True)),
        env=(EnvEntry("PATH", "/bin"), EnvEntry("TOKEN", secret="api-token")),
        seccomp="net",
        hostname="sandbox",
    )


def request(plan: SandboxPlan, joined: Joined = NONE, image_env: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the create request of a plan, with a name in place of the profile's text."""
    return create_request(plan, joined, {LABEL_RUN: "r"}, {"api-token": "s3cret"}, "<profile>", image_env)


@pytest.mark.parametrize(
    ("name", "plan", "joined", "image_env"),
    [
        ("baseline", baseline_plan(), Joined(), ()),
        ("full", full_plan(), JOINED, ("NODE_OPTIONS", "PATH")),
        ("http", baseline_plan(transport="http", port=8080), Joined(), ()),
    ],
)
def test_the_request_is_the_golden_one(
    name: str, plan: SandboxPlan, joined: Joined, image_env: tuple[str, ...]
) -> None:
    """A change of what the engine is asked shows as a change of a reviewed file."""
    path: Path = GOLDEN / f"create-{name}.json"

    assert json.loads(path.read_text()) == request(plan, joined, image_env)


def test_what_an_image_sets_and_the_plan_does_not_is_unset() -> None:
    """NODE_OPTIONS and the like of an image cannot load code: a name without = takes the variable away."""
    env = request(full_plan(), image_env=("NODE_OPTIONS", "PATH"))["Env"]

    assert ["PATH=/bin", "TOKEN=s3cret", "HOSTNAME", "NODE_OPTIONS"] == env


def test_a_secret_stands_nowhere_but_in_the_environment() -> None:
    """A secret's value is in no argument, label or host option."""
    body = request(full_plan())
    del body["Env"]

    assert "s3cret" not in json.dumps(body)


def test_the_plans_variables_win_over_the_attachments() -> None:
    """A convenience variable of the network never replaces what was planned."""
    plan = baseline_plan(env=(EnvEntry("HTTPS_PROXY", "planned"),))

    assert "HTTPS_PROXY=planned" == request(plan, JOINED)["Env"][0]


def test_a_joined_network_leaves_name_and_resolver_to_its_owner() -> None:
    """The engine refuses a host name or resolver beside a joined network namespace."""
    body = request(baseline_plan(), JOINED)

    assert (False, False) == ("Hostname" in body, "Dns" in body["HostConfig"])


def test_no_network_means_no_resolver_of_the_host() -> None:
    """The host's resolvers are not told to a sandbox that may not reach them."""
    assert [translate.NO_DNS] == request(baseline_plan())["HostConfig"]["Dns"]


@pytest.mark.parametrize(
    ("declared", "uncovered"),
    [
        (["/data"], ("/data",)),
        (["/data/", "/tmp"], ("/data/",)),
        (["/tmp/"], ()),
        (["//tmp/."], ()),
        ([], ()),
    ],
)
def test_a_volume_of_the_image_must_be_covered(declared: list[str], uncovered: tuple[str, ...]) -> None:
    """A VOLUME that no mount covers would be writable disk of the host, without bound."""
    assert uncovered == translate.uncovered_volumes(declared, baseline_plan(), Joined())


@pytest.mark.parametrize(
    ("control", "members"),
    [("memory", ("Memory", "MemorySwap")), ("pids", ("PidsLimit",)), ("cpu", ("NanoCpus",))],
)
def test_only_a_waived_control_is_left_out(control: str, members: tuple[str, ...]) -> None:
    """A limit is left out when the operator accepted its absence by name, and no other with it."""
    plan = baseline_plan()
    waived = dataclasses.replace(plan, unsafe=(f"unsafe_missing_{control}",))
    before, after = (request(one)["HostConfig"] for one in (plan, waived))

    assert set(members) == {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(("runtime", "more"), [("runc", 0), ("crun", 0), ("runsc", 128), ("kata", 128)])
def test_a_runtime_with_processes_of_its_own_has_room_for_them(runtime: str, more: int) -> None:
    """The server's bound is as planned where its processes alone are counted, and the runtime's are added elsewhere."""
    plan = dataclasses.replace(baseline_plan(), runtime=runtime)

    assert plan.limits.pids + more == request(plan)["HostConfig"]["PidsLimit"]
    found = kernel.cgroup_differences(plan, procfacts.CgroupLimits(0, 0, plan.limits.pids, 1.0))
    assert bool(more) == ("kernel.pids" in [one.field for one in found])

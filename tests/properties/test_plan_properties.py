"""Rules that every derivation keeps, over generated drivers, hosts and ceilings."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sandbox.errors import CeilingError, PlanProblems
from sandbox.limits import MIB
from sandbox.plan import baseline, compare
from sandbox.plan.derive import derive
from sandbox.plan.model import HostFacts, PathFacts, SandboxPlan
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_values import Ceiling
from sandbox.spec.model import DriverSpec, ExecRules
from tests.planning import default, driver, host, strict

FAST = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return mostly what is accepted, so that properties of plans are not tried on refusals only."""
    return st.integers(0, 11).flatmap(lambda dice: bad if dice == 7 else good)


GOOD = st.builds(
    lambda top, parts: "/".join([top, *parts]),
    st.sampled_from(["/srv/mcp-sandbox/state", "/srv/data", "/home/ada/p"]),
    st.lists(st.sampled_from(["a", "b", "x y", "..."]), min_size=1, max_size=3),
)
BAD = st.builds(
    lambda top, parts: "/".join([top, *parts]),
    st.sampled_from(["/home/ada", "/srv", "/etc", "/var/lib", "/tmp", "/home/ada/drivers/files-mcp"]),
    st.lists(st.sampled_from(["a", ".ssh", "docker.sock", ".config"]), max_size=3),
)
PATHS = mostly(GOOD, BAD)
TARGETS = mostly(
    st.builds(lambda parts: "/d/" + "/".join(parts), st.lists(st.sampled_from("abcdef"), min_size=1, max_size=2)),
    st.sampled_from(["/", "/etc", "/tmp", "/opt", "/d", "/tmp/x"]),
)
HOSTS = st.lists(
    st.sampled_from(
        ["a.example.com", "*.example.com", "b.example.com:8443", "db.example.com:5432", "http://c.example.com"]
    ),
    max_size=2,
    unique=True,
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "memory_bytes": mostly(st.integers(64, 1024), st.integers(1, 8192)).map(lambda size: size * MIB),
        "cpus": mostly(st.floats(0.01, 1), st.floats(0, 8)),
        "pids": mostly(st.integers(1, 256), st.integers(-1, 4096)),
        "nofile": mostly(st.integers(16, 4096), st.integers(0, 200_000)),
        "lifetime": mostly(st.floats(1, 86400), st.floats(0, 1_000_000)),
    },
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[DriverSpec, HostFacts]:
    """Return a driver and a host on which some of its paths are links to others."""
    read = draw(st.dictionaries(PATHS, TARGETS, max_size=3))
    write = draw(st.dictionaries(PATHS, TARGETS, max_size=2))
    below = [f"{path}/{name}" for path in (*read, *write) for name in ("a", "k")]
    deny = draw(st.lists(mostly(st.sampled_from(below), PATHS) if below else PATHS, max_size=2, unique=True))
    facts = {
        path: PathFacts(
            path, draw(mostly(st.just(path), PATHS)), exists=draw(mostly(st.just(True), st.just(False))), kind="dir"
        )
        for path in {*read, *write, *deny}
    }
    spec = driver(
        read=read,
        write=write,
        deny=tuple(deny),
        limits=draw(LIMITS),
        egress=tuple(draw(HOSTS)),
        sandbox={
            "exec": ExecRules(allow=draw(st.booleans())),
            "runtime": draw(st.sampled_from(["", "runc", "runsc"])),
        },
    )
    return spec, host(facts, egress_available=draw(mostly(st.just(True), st.just(False))))


def attempt(spec: DriverSpec, ceiling: Ceiling, facts: HostFacts) -> SandboxPlan | None:
    """Return the plan, or nothing when it is refused; any other error fails the test."""
    try:
        return derive(spec, ceiling, facts)
    except PlanProblems:
        return None


@pytest.mark.claim("P-PLAN-03")
@given(cases())
@FAST
def test_every_plan_satisfies_the_baseline(case: tuple[DriverSpec, HostFacts]) -> None:
    """Whatever is derived satisfies each rule of the baseline, and whatever is refused says why."""
    found = attempt(case[0], default(), case[1])

    if found is not None:
        baseline.check(found)
        assert all(not mount.source.startswith(("/etc", "/var/lib")) for mount in found.mounts)
        assert all(".ssh" not in mount.source.split("/") for mount in found.mounts)


@given(cases())
@FAST
def test_equal_inputs_give_equal_plans_whatever_the_order_of_keys(case: tuple[DriverSpec, HostFacts]) -> None:
    """The digest does not depend on the order in which mappings were filled."""
    spec, facts = case
    turned = dataclasses.replace(facts, paths=dict(reversed(facts.paths.items())))
    respun = spec.model_copy(update={"lines": dict(reversed(spec.lines.items()))})
    first, second = attempt(spec, default(), facts), attempt(respun, default(), turned)

    assert (first and first.digest()) == (second and second.digest())


@pytest.mark.claim("P-PLAN-04")
@given(cases())
@FAST
def test_tightening_the_ceiling_never_adds_a_permission(case: tuple[DriverSpec, HostFacts]) -> None:
    """Under the strict ceiling a driver is refused or permitted nothing beyond what the default permits."""
    tight, loose = (attempt(case[0], ceiling, case[1]) for ceiling in (strict(), default()))

    if tight is not None:
        assert loose is not None
        assert [item for item in compare.excess(tight, loose) if item.kind == "more"] == []


BITES = st.lists(
    st.sampled_from(
        [
            '[limits.memory]\nmax = "1GiB"\ndefault = "128MiB"\nreason = "r"\n',
            '[limits.pids]\nmax = 100\ndefault = 50\nreason = "r"\n',
            '[[mounts.read]]\npath = "/srv"\nreason = "r"\n',
            '[[mounts.write]]\npath = "/srv"\nreason = "r"\n',
            '[[runtimes]]\nname = "runsc"\nstrength = 2\nreason = "r"\n',
            '[[egress.hosts]]\npattern = "*.example.com"\nports = [443]\nreason = "r"\n',
        ]
    ),
    unique=True,
)


@given(cases(), BITES)
@FAST
def test_each_bite_of_a_narrowing_file_takes_away_only(case: tuple[DriverSpec, HostFacts], bites: list[str]) -> None:
    """Any narrowing file gives a plan within the one without it, or none."""
    text = 'version = 1\nname = "own"\nnarrows = "default"\n' + "".join(bites)
    own = load_ceiling(text.encode(), "own.toml", default())
    tight, loose = attempt(case[0], own, case[1]), attempt(case[0], default(), case[1])

    if tight is not None:
        assert loose is not None
        assert [item for item in compare.excess(tight, loose) if item.kind == "more"] == []


@given(cases(), PATHS, st.booleans())
@FAST
def test_adding_a_denial_never_widens(case: tuple[DriverSpec, HostFacts], path: str, exists: bool) -> None:
    """One more denied path gives a plan within the one before, or none."""
    spec, facts = case
    files = spec.sandbox.fs.model_copy(update={"deny": (*spec.sandbox.fs.deny, path)})
    denied = spec.model_copy(update={"sandbox": spec.sandbox.model_copy(update={"fs": files})})
    known = {path: PathFacts(path, path, exists=exists, kind="dir"), **facts.paths}
    before, after = attempt(spec, default(), facts), attempt(denied, default(), dataclasses.replace(facts, paths=known))

    if after is not None:
        assert before is not None
        assert compare.within(after, before)


@given(cases(), st.data())
@FAST
def test_a_misspelt_permission_is_never_granted(case: tuple[DriverSpec, HostFacts], data: st.DataObject) -> None:
    """A destination with a character changed is that destination or refused, never one that was not written."""
    spec, facts = case
    assume(spec.egress)
    entry = data.draw(st.sampled_from(spec.egress))
    at = data.draw(st.integers(0, len(entry) - 1))
    typo = entry[:at] + data.draw(st.characters(codec="utf-8")) + entry[at + 1 :]
    found = attempt(spec.model_copy(update={"egress": (typo,)}), default(), facts)

    if found is not None:
        assert len(found.network.rules) == 1
        assert (
            found.network.rules[0].host
            in {typo.lower().partition("://")[2].partition(":")[0], typo.lower().partition(":")[0]}
            or not typo.isascii()
        )


@given(st.text(st.sampled_from("abc.\"'[]{}=#\n ,*~/-_0123456789"), max_size=200))
@FAST
def test_any_text_is_a_ceiling_within_the_shipped_one_or_refused(text: str) -> None:
    """Whatever follows the heading of a narrowing file, nothing is added and no other error escapes."""
    head = 'version = 1\nname = "own"\nnarrows = "default"\n'
    try:
        own = load_ceiling((head + text).encode(), "own.toml", default())
    except CeilingError:
        return

    assert set(default().never) <= set(own.never)
    assert all(own.bounds[name].max <= default().bounds[name].max for name in default().bounds)


def test_deriving_touches_nothing_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """With files, sockets, clocks, processes and the environment taken away a plan is derived all the same."""
    import builtins
    import os
    import socket

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("a plan was derived with input or output")

    spec, facts, ceiling = driver(read={"/srv/a": "/a"}), host({"/srv/a": "/srv/a"}), default()
    with monkeypatch.context() as patch:
        for place, name in itertools.chain(
            ((builtins, "open"), (socket, "socket"), (os, "getenv"), (os, "stat"), (os, "open"), (os, "scandir")),
            ((time, name) for name in ("time", "monotonic", "time_ns", "sleep")),
        ):
            patch.setattr(place, name, forbidden)
        patch.setattr(os, "environ", None)
        found = derive(spec, ceiling, facts)

    assert found.mounts[0].target == "/a"


def test_importing_the_derivation_loads_no_heavy_module() -> None:
    """A start does not wait for schema, model or engine libraries before it has a plan."""
    script = "import sys, sandbox.plan.derive; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout.split()
    )

    assert not loaded & {
        "pydantic",
        "docker",
        "jsonschema",
        "asyncio",
        "cedarpy",
        "yaml",
        "rich",
        "socket",
        "subprocess",
    }

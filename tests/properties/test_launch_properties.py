"""Laws of translation and read-back, for any plan."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.launch.interface import LABEL_RUN
from sandbox.launch.readback import differences
from sandbox.launch.translate import Joined, create_request, environment, variables
from sandbox.plan.model import EnvEntry, LimitPlan, Mount, SandboxPlan, Tmpfs
from sandbox.testing.plans import baseline_plan
from tests.shared import ROOT

CAPTURE = json.loads((ROOT / "tests" / "data" / "launch" / "inspect-docker-20.10.json").read_text())

names = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)
paths = st.lists(st.from_regex(r"[a-z.]{1,6}", fullmatch=True), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p))


@st.composite
def plans(draw: st.DrawFn) -> SandboxPlan:
    """Return a plan with arbitrary values in every field that a driver or operator chooses."""
    env = draw(st.dictionaries(names, texts, max_size=4))
    targets = draw(st.lists(paths, unique=True, max_size=4))
    half = len(targets) // 2
    number = st.integers(1, 1 << 40)
    return dataclasses.replace(
        baseline_plan(),
        argv=tuple(draw(st.lists(texts, min_size=1, max_size=4))),
        workdir=draw(paths),
        user=f"{draw(st.integers(1, 65533))}:{draw(st.integers(1, 65533))}",
        env=tuple(EnvEntry(name, value) for name, value in sorted(env.items())),
        mounts=tuple(Mount(draw(paths), target, draw(st.booleans())) for target in targets[:half]),
        tmpfs=tuple(Tmpfs(target, draw(number), draw(number), draw(st.booleans())) for target in targets[half:]),
        limits=LimitPlan(*(draw(number) for _ in range(5)), 60.0),
        hostname=draw(st.from_regex(r"[a-z]{1,10}", fullmatch=True)),
        init=draw(st.booleans()),
        transport=draw(st.sampled_from(["stdio", "http"])),
        masked_paths=tuple(draw(st.lists(paths, max_size=3))),
    )


joins = st.builds(
    Joined, st.sampled_from(["none", "container:abc"]), st.just({}), st.dictionaries(names, texts, max_size=2)
)


def faithful(request: dict[str, Any]) -> dict[str, Any]:
    """Return what an engine that does exactly what it is asked says, with everything that a real one adds."""
    found = copy.deepcopy(CAPTURE["inspected"])
    host = found["HostConfig"]
    neutral = {name: value for name, value in host.items() if name not in CAPTURE["request"]["HostConfig"]}
    wanted = copy.deepcopy(request["HostConfig"])
    found["HostConfig"] = neutral | wanted
    found["Config"] = {name: value for name, value in copy.deepcopy(request).items() if name != "HostConfig"}
    argv = [*request["Entrypoint"], *request["Cmd"]]
    found["Path"], found["Args"], found["Image"] = argv[0], argv[1:], request["Image"]
    found["Mounts"] = [
        {
            "Type": "bind",
            "Source": mount["Source"],
            "Destination": mount["Target"],
            "RW": not mount["ReadOnly"],
            "Propagation": mount["BindOptions"]["Propagation"],
        }
        for mount in wanted["Mounts"]
    ]
    mode = wanted["NetworkMode"]
    found["NetworkSettings"] = {"Networks": {"none": {}} if mode == "none" else {}, "Ports": {}}
    return found


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every scalar of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield place
        return
    for key, item in items:
        yield from leaves(item, (*place, key))


@settings(max_examples=60)
@given(plans(), joins)
def test_a_faithful_engine_has_no_difference(plan: SandboxPlan, joined: Joined) -> None:
    """Whatever the plan, an engine that does what it is asked passes the read-back."""
    request = create_request(plan, joined, {LABEL_RUN: "r"}, {}, "{}")

    assert () == differences(request, faithful(request))


@settings(max_examples=150)
@given(plans(), joins, st.data())
def test_any_changed_scalar_is_a_difference(plan: SandboxPlan, joined: Joined, data: st.DataObject) -> None:
    """One scalar anywhere in what was asked for, changed in the engine's answer, is found."""
    request = create_request(plan, joined, {LABEL_RUN: "r"}, {}, "{}")
    inspected = faithful(request)
    place = data.draw(
        st.sampled_from(list(leaves({"HostConfig": request["HostConfig"], "Config": inspected["Config"]})))
    )
    holder = inspected
    for key in place[:-1]:
        holder = holder[key]
    old = holder[place[-1]]
    holder[place[-1]] = (not old) if isinstance(old, bool) else (old + 1 if isinstance(old, int) else f"{old}x")

    assert differences(request, inspected)


@given(plans(), joins)
def test_the_environment_is_the_plans(plan: SandboxPlan, joined: Joined) -> None:
    """Every planned variable has its planned value, and an image's variable that was not planned is unset."""
    image = ["LD_PRELOAD", *(entry.name for entry in plan.env)]
    entries = environment(plan, joined, {}, image)
    by_name = dict(entry.partition("=")[::2] for entry in entries if "=" in entry)

    assert {entry.name: entry.value for entry in plan.env}.items() <= by_name.items()
    assert variables(plan, joined, {}) == by_name
    assert "LD_PRELOAD" in entries or "LD_PRELOAD" in by_name


@given(plans(), joins)
def test_translation_is_a_function_of_the_plan(plan: SandboxPlan, joined: Joined) -> None:
    """The same plan gives the same request, byte for byte."""
    first, second = (json.dumps(create_request(plan, joined, {}, {}, "{}")) for _ in range(2))

    assert first == second


@given(plans())
def test_no_plan_gets_privileges(plan: SandboxPlan) -> None:
    """Whatever a plan says, these members of the request never change."""
    host = create_request(plan, Joined(), {}, {}, "{}")["HostConfig"]

    assert (False, ["ALL"], [], True, "private", [], "none") == (
        host["Privileged"],
        host["CapDrop"],
        host["CapAdd"],
        host["ReadonlyRootfs"],
        host["CgroupnsMode"],
        host["Devices"],
        host["LogConfig"]["Type"],
    )

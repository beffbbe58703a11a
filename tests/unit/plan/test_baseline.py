"""What every plan satisfies whatever anybody says: each rule refuses the plan that breaks it, however it came about."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sandbox.errors import PlanRefused
from sandbox.plan import baseline, demands
from sandbox.plan.model import EgressRule, EnvEntry, Mount, NetworkPlan, SecretFile, Substitute, Tmpfs
from tests.planning import plan

GOOD = plan()
RULE = EgressRule("a.example.com", (443,))


def limits(**parts: Any) -> dict[str, Any]:
    """Return a change of the bounds."""
    return {"limits": dataclasses.replace(GOOD.limits, **parts)}


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("PLAN-101", {"user": "0:0"}),
    ("PLAN-102", {"image_id": "latest"}),
    ("PLAN-102", {"argv": ()}),
    ("PLAN-102", {"argv": ("/x", "a\0b")}),
    ("PLAN-103", {"mounts": (Mount("/srv", "/", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/srv", "/tmp", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/srv", "/proc/sys", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/", "/data", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/srv/..", "/data", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/srv", "data", writable=False),)}),
    ("PLAN-103", {"mounts": (Mount("/srv", baseline.CA_TARGET, writable=True),)}),
    ("PLAN-104", {"mounts": (Mount("/b", "/b", writable=False), Mount("/a", "/a", writable=False))}),
    ("PLAN-104", {"mounts": (Mount("/a", "/a", writable=False), Mount("/b", "/a", writable=False))}),
    ("PLAN-105", {"tmpfs": ()}),
    ("PLAN-105", {"tmpfs": (Tmpfs("/tmp", 0, 1),)}),
    ("PLAN-105", {"tmpfs": (Tmpfs("/tmp", 1, 0),)}),
    ("PLAN-105", {"tmpfs": (Tmpfs("/tmp", 1, 1, executable=True),)}),
    ("PLAN-105", {"tmpfs": (Tmpfs("/tmp", 1, 1), Tmpfs("/x", 1, 1))}),
    ("PLAN-106", limits(memory_bytes=0)),
    ("PLAN-106", limits(pids=-1)),
    ("PLAN-106", limits(cpus=float("nan"))),
    ("PLAN-106", limits(lifetime=float("inf"))),
    ("PLAN-106", limits(core_bytes=1)),
    ("PLAN-107", {"masked_paths": GOOD.masked_paths[1:]}),
    ("PLAN-107", {"readonly_paths": GOOD.readonly_paths[1:]}),
    ("PLAN-108", {"network": NetworkPlan("broker", ())}),
    ("PLAN-108", {"network": NetworkPlan("none", (RULE,))}),
    ("PLAN-108", {"seccomp": "net"}),
    ("PLAN-109", {"seccomp": "nonet-of-mine"}),
    ("PLAN-109", {"seccomp_digest": ""}),
    ("PLAN-110", {"init": False}),
    ("PLAN-111", {"env": (EnvEntry("B"), EnvEntry("A"))}),
    ("PLAN-111", {"env": (EnvEntry("A", "1"), EnvEntry("A", "2"))}),
    ("PLAN-111", {"env": (EnvEntry("LD_PRELOAD", "/x"),)}),
    ("PLAN-111", {"env": (EnvEntry("A", "value", secret="slug"),)}),
    ("PLAN-112", {"argv": ("/x", "${secrets.KEY}")}),
    ("PLAN-113", {"runtime": ""}),
    ("PLAN-114", {"workdir": "/proc/self/fd/7"}),
    ("PLAN-114", {"workdir": "data"}),
    ("PLAN-118", {"secret_files": (SecretFile("key", "/etc/key"),)}),
    ("PLAN-118", {"secret_files": (SecretFile("key", "/run/secrets/../key"),)}),
    ("PLAN-118", {"secret_files": (SecretFile("key", "/run/secrets/key"), SecretFile("b", "/run/secrets/key"))}),
    ("PLAN-119", {"substitutes": (Substitute("key", ("a.example.com",)),)}),
]


@pytest.mark.claim("P-PLAN-03")
@pytest.mark.parametrize(("rule", "change"), BROKEN)
def test_each_rule_refuses_the_plan_that_breaks_it(rule: str, change: dict[str, Any]) -> None:
    """A plan with one field out of the baseline is refused with the number of the rule."""
    with pytest.raises(PlanRefused) as caught:
        baseline.check(dataclasses.replace(GOOD, **change))

    assert caught.value.id == rule


def test_every_rule_has_a_plan_that_breaks_it() -> None:
    """No rule stands untried."""
    assert {rule for rule, _, _ in baseline.RULES} == {rule for rule, _ in BROKEN}


def test_plan_in_order_passes() -> None:
    """The control: the plan that is changed above satisfies every rule."""
    baseline.check(GOOD)


def test_mistake_in_a_step_of_the_derivation_ends_at_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a step weakened a plan by mistake the derivation refuses to hand it out."""
    monkeypatch.setattr(demands, "seccomp", lambda _: ("unconfined", "sha256:x", True))

    with pytest.raises(PlanRefused, match=r"PLAN-10[89]"):
        plan()

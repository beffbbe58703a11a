"""The six phases: each drops what it is for, says why, and the order of what is left is the text's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import CallRefused
from sandbox.serve.route import Wanted, chosen, resolve
from sandbox.spec.model import DriverSpec
from tests.unit.serve.builders import contract_of, spec_of


def driver(name: str, tool: str = "tool", default: str = "", **parts: Any) -> DriverSpec:
    """Return a driver of a tool."""
    made = spec_of(contract_of(id=tool, default_implementation=default))
    return made.model_copy(update={"id": name, **parts})


def reasons(drivers: list[DriverSpec], **wanted: Any) -> dict[str, tuple[int, bool]]:
    """Return the last phase that looked at each driver and whether it was kept."""
    return {step.driver: (step.phase, step.kept) for step in resolve("tool", drivers, Wanted(**wanted)).steps}


@pytest.mark.parametrize(
    ("other", "wanted", "phase"),
    [
        (driver("b", tool="else"), {}, 1),
        (driver("b"), {"unavailable": {"b": "no engine"}}, 2),
        (driver("b", policy_tags=("third-party",)), {"allowed_tags": ["self-hosted"]}, 3),
        (driver("b", region=("us",)), {"regions": ["eu"]}, 3),
        (driver("b"), {"pin": "a"}, 4),
        (driver("b", cost_override={"cost_units_per_call": 2000}), {}, 5),
    ],
)
def test_each_phase_drops_what_it_is_for(other: DriverSpec, wanted: Any, phase: int) -> None:
    """The first driver survives and is bound; the other is dropped where the text says."""
    found = reasons([driver("a"), other], **wanted)

    assert {"a": (6, True), "b": (phase, False)} == found


def test_the_order_is_default_then_cost_then_health_then_id() -> None:
    """Each later rule decides only where the earlier ones do not."""
    cheap = {"cost_units_per_call": 0.5}
    costs = {"c": {"cost_override": cheap}}
    drivers = [driver(name, default="d", **costs.get(name, {})) for name in "dcbae"]
    found = resolve("tool", drivers, Wanted(healthy={"e": 9.0}))

    assert ("d", "c", "e", "a", "b") == found.ranked


def test_a_driver_cannot_promote_itself() -> None:
    """A default counts when every contract names it; one driver's own copy of the contract does not decide."""
    assert ("a", "b") == resolve("tool", [driver("a"), driver("b", default="b")], Wanted()).ranked


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_folders_decides_nothing(names: list[str]) -> None:
    """The same drivers give the same choice however they are found."""
    assert ("a", "b", "c", "d") == resolve("tool", [driver(name) for name in names], Wanted()).ranked


def test_a_driver_of_everywhere_serves_every_region() -> None:
    """``global`` fits; data that must stay does not leave for want of a better one."""
    assert resolve("tool", [driver("a", region=("global",))], Wanted(regions=["eu"])).chosen
    assert resolve("tool", [driver("a", region=("us",))], Wanted(regions=["eu"])).chosen is None


def test_a_pin_that_cannot_be_used_falls_back_to_nothing() -> None:
    """AIP-30 phase 4: ``pinned_provider_unavailable``, never the next one."""
    drivers = [driver("a"), driver("b")]
    wanted = Wanted(pin="b", unavailable={"b": "not there"})

    with pytest.raises(CallRefused, match="GATE-043"):
        chosen("tool", resolve("tool", drivers, wanted), wanted)
    with pytest.raises(CallRefused, match="GATE-042"):
        chosen("none", resolve("none", drivers, Wanted()), Wanted())

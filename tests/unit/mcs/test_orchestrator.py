"""Several drivers as one: names, dispatch, health; and the published orchestrator beside ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcs.driver.core import MCSDriver, MCSToolDriver
from mcs.orchestrator.base import BaseOrchestrator

from sandbox.errors import CallRefused, UsageError
from sandbox.mcs import Orchestrator, OrchestratorSettings
from sandbox.mcs.contract import HealthStatus
from sandbox.mcs.names import Names
from tests.mcs_kit import Ailing, Talking, Toy


def names(orchestrator: Orchestrator) -> list[str]:
    """Return the names that are listed."""
    return [tool.name for tool in orchestrator.list_tools()]


def test_only_names_that_collide_are_changed() -> None:
    """Both drivers' `read` get their label; everything else keeps its name; each call reaches its own driver."""
    first, second = Toy("a", "read", "count"), Toy("b", "read", "fly")
    both = Orchestrator({"one": first, "two": second})

    assert ["one__read", "count", "two__read", "fly"] == names(both)
    assert {"by": "b", "tool": "read"} == both.execute_tool("two__read", {"text": "x"})
    assert {"by": "a", "tool": "count"} == both.execute_tool("count", {})
    with pytest.raises(CallRefused, match="MCS-003"):
        both.execute_tool("read", {})
    assert ([("count", {})], [("read", {"text": "x"})]) == (first.called, second.called)


@pytest.mark.claim("P-MCS-03")
def test_a_name_that_was_shown_is_never_given_to_another_tool() -> None:
    """A driver that joins, or stays when the first one leaves, does not take `read` over: the old name calls nobody."""
    first, second = Toy("a", "read"), Toy("b", "read")
    both = Orchestrator({"one": first})
    assert ["read"] == names(both)

    both.add_driver(second, label="two")
    assert ["read", "two__read"] == names(both)
    assert first is both.remove_driver("one")
    assert ["two__read"] == names(both)

    answer = both.process_llm_response('{"tool": "read", "arguments": {"text": "x"}}')
    assert (True, "two__read") == (answer.call_failed, answer.retry_prompt.split("tools: ")[1].rstrip("."))
    assert ([], []) == (first.called, second.called)


def test_labels_and_tools_that_imitate_a_name_are_refused() -> None:
    """A tool called like another one's unified name, a doubled tool, and labels that are no names."""
    clash = Orchestrator({"one": Toy("a", "read"), "two": Toy("b", "read", "one__read")})
    with pytest.raises(UsageError, match="MCS-012"):
        clash.list_tools()
    with pytest.raises(UsageError, match="MCS-012"):
        Orchestrator({"one": Toy("a", "read", "read")}).list_tools()
    for label in ("one", "", "a__b", "1a", "a b", "x" * 40):
        with pytest.raises(UsageError, match="MCS-011"):
            Orchestrator({"one": Toy("a")}).add_driver(Toy("b"), label=label)


PLACES = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["r", "w", "a__r", "b__r"])), unique=True, max_size=6
)


@given(st.lists(PLACES, max_size=6))
def test_whatever_drivers_list_a_shown_name_means_one_tool(lists: list[list[tuple[str, str]]]) -> None:
    """Over any sequence of lists: one name, one tool, for good; a list either names every tool or is refused."""
    given_names = Names()
    meant: dict[str, Any] = {}
    for places in lists:
        try:
            found = given_names.given(places)
        except UsageError:
            continue
        assert set(places) == set(found.values())
        for name, place in found.items():
            assert place == meant.setdefault(name, place)


def test_it_is_a_driver_itself_and_nests() -> None:
    """An orchestrator stands in another one, and in the published one."""
    inner = Orchestrator({"one": Toy("a", "read"), "two": Toy("b", "read")})
    outer = Orchestrator({"inner": inner, "three": Toy("c", "one__read")})

    assert isinstance(inner, MCSDriver)
    assert isinstance(inner, MCSToolDriver)
    assert {"by": "b", "tool": "read"} == outer.execute_tool("two__read", {})
    assert {"by": "a", "tool": "read"} == outer.execute_tool("inner__one__read", {})


def test_the_published_orchestrator_takes_our_drivers() -> None:
    """Its names, dispatch and answers work on a driver and an orchestrator of ours, unchanged."""
    published = BaseOrchestrator()
    published.add_driver(Talking("a", "read"), label="one")
    published.add_driver(Orchestrator({"x": Toy("b", "read")}), label="two")
    reply = json.dumps({"tool": "two__read", "arguments": {"text": "x"}})

    assert ["one__read", "two__read"] == [tool.name for tool in published.list_tools()]
    assert {"by": "b", "tool": "read"} == json.loads(published.process_llm_response(reply).tool_call_result)
    assert HealthStatus.OK == published.healthcheck()["status"]


def test_ours_takes_the_published_one() -> None:
    """A published orchestrator is one more tool driver."""
    published = BaseOrchestrator()
    published.add_driver(Toy("a", "read"), label="one")

    assert {"by": "a", "tool": "read"} == Orchestrator({"p": published}).execute_tool("read", {})


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        ([HealthStatus.OK, HealthStatus.OK], HealthStatus.OK),
        ([HealthStatus.OK, HealthStatus.WARNING], HealthStatus.WARNING),
        (["OK"], HealthStatus.OK),
        ([HealthStatus.OK, "fine"], HealthStatus.UNKNOWN),
        ([HealthStatus.ERROR, HealthStatus.UNKNOWN], HealthStatus.ERROR),
    ],
)
def test_health_is_the_worst_of_all(statuses: list[Any], worst: HealthStatus) -> None:
    """Words count as the enumeration; what the contract does not name is never well."""
    drivers = {f"d{number}": Ailing("x", status) for number, status in enumerate(statuses)}

    assert {"status": worst} == Orchestrator({**drivers, "plain": Toy("y")}).healthcheck()


def test_a_driver_without_the_flag_is_not_asked() -> None:
    """Feature detection looks at the flag before the method."""
    ailing = Ailing("x", HealthStatus.ERROR)
    ailing.meta = Toy("x").meta

    assert {"status": HealthStatus.OK} == Orchestrator({"x": ailing}).healthcheck()


def test_settings_name_the_drivers() -> None:
    """An orchestrator can come from a file of settings; nothing starts by that."""
    settings = OrchestratorSettings.of({"drivers": {"text": {"driver": "drivers/text-mcp"}}, "style": "schema"})
    with Orchestrator.of(settings) as orchestrator:
        assert (["text"], {"text": {"driver": "text-mcp", "state": "new"}}) == (
            orchestrator.labels,
            orchestrator.get_status(),
        )

"""Tools that several drivers bind: offered once at the common endpoint, carried by the driver that the phases leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.serve.http.routing import Preference, Router, Standing, shared
from sandbox.spec.model import DriverSpec
from sandbox.tenant import TenantId
from sandbox.transport.limiter import TokenBucket
from tests.gateway_lab import modern
from tests.reload_lab import FORBID, RULES, Place, ReloadLab, Session, found_in, reload_lab
from tests.unit.serve.builders import contract_of, spec_of
from tests.unit.supervisor.test_pool import until

pytestmark = pytest.mark.anyio

EU = 'region: ["eu"]\npolicy_tags: ["pii-safe"]\n'
US = 'region: ["us"]\npolicy_tags: ["cloud"]\n'


@contextlib.asynccontextmanager
async def routed(root: Path, routing: str = "[routing]\n", eu: str = EU, us: str = US) -> AsyncIterator[ReloadLab]:
    """Open a gateway whose drivers ``eu`` and ``us`` both bind ``shared``; each binds a tool of its own too."""
    place = Place(root)
    place.driver("eu", ("shared", "tool-c"), more=eu)
    place.driver("us", ("shared", "tool-b"), more=us)
    async with reload_lab(
        root, "lone", config='[driver.eu]\nauth = "none"\n[driver.us]\nauth = "none"\n' + routing
    ) as lab:
        yield lab


def carrier(result: Mapping[str, Any]) -> str:
    """Return which driver carried a call."""
    return str(result["structuredContent"]["driver"])


async def test_a_shared_tool_is_offered_once_and_others_keep_their_names(tmp_path: Path) -> None:
    """Without `[routing]` both are named with their drivers, as before."""
    async with routed(tmp_path / "with") as lab:
        with_it = await (await lab.session("/mcp")).tools()
    async with routed(tmp_path / "without", routing="") as lab:
        without = await (await lab.session("/mcp")).tools()

    assert ["eu__tool-c", "lone__tool-a", "shared", "us__tool-b"] == sorted(with_it)
    assert ["eu__shared", "eu__tool-c", "lone__tool-a", "us__shared", "us__tool-b"] == sorted(without)


@pytest.mark.parametrize(
    ("routing", "expected"),
    [
        ("[routing]\n", "eu"),
        ('[routing]\nregion = ["us"]\n', "us"),
        ('[routing]\nrequire-tags = ["cloud"]\n', "us"),
        ('[routing]\nallow-tags = ["cloud"]\n', "us"),
        ('[routing]\npin = { shared = "us" }\n', "us"),
        ('[routing]\nregion = ["us"]\n[routing.tenant.anonymous]\nregion = ["eu"]\n', "eu"),
    ],
)
async def test_each_phase_chooses_in_both_eras(tmp_path: Path, routing: str, expected: str) -> None:
    """Region, tags, pin and tenant decide who carries the call, and the trail has the reason of every phase."""
    async with routed(tmp_path, routing) as lab:
        session = await lab.session("/mcp")
        said = await session.call("shared")
        body, headers = modern("tools/call", {"name": "shared", "arguments": {}})
        alone = found_in(await lab.post("/mcp", body, **headers))

        assert expected == carrier(said) == carrier(alone)
        choices = lab.facts("route.choose")
        assert [expected, expected] == [one["driver"] for one in choices]
        assert all(any(step.startswith("6 ") for step in one["steps"]) for one in choices)


async def test_a_pinned_driver_that_fits_nothing_is_not_replaced(tmp_path: Path) -> None:
    """A pin is a word, not a wish: no other driver carries the call, and no server sees it."""
    async with routed(tmp_path, '[routing]\nregion = ["eu"]\npin = { shared = "us" }\n') as lab:
        tools = await (await lab.session("/mcp")).tools()
        body, headers = modern("tools/call", {"name": "shared", "arguments": {}})
        refused = await lab.post("/mcp", body, **headers)

        assert "shared" not in tools
        assert 503 == refused.status_code
        assert "GATE-043" in refused.text
        assert not any(one.calls for one in lab.programs.processes)


async def test_a_driver_whose_breaker_is_open_is_passed_over(tmp_path: Path) -> None:
    """Before any call is forwarded the next one in rank is taken; when the breaker closes, the first one is again."""
    async with routed(tmp_path) as lab:
        pool, now = lab.parts.pool, asyncio.get_running_loop().time()
        body, headers = modern("tools/call", {"name": "shared", "arguments": {}})
        for _ in range(6):
            pool._breaker.failed(("eu", TenantId("anonymous")), now)
        passed = found_in(await lab.post("/mcp", body, **headers))
        pool._breaker.forget(lambda _key: True)
        async with pool.lease("eu", TenantId("anonymous")):
            back = found_in(await lab.post("/mcp", body, **headers))

        assert ("us", "eu") == (carrier(passed), carrier(back))
        assert any("circuit breaker" in step for step in lab.facts("route.choose")[0]["steps"])


async def test_a_driver_that_cannot_be_started_is_passed_over_and_named(tmp_path: Path) -> None:
    """What was tried before stands in the trail beside the driver that carried the call."""
    async with routed(tmp_path) as lab:
        lab.parts.pool.remove("eu")
        body, headers = modern("tools/call", {"name": "shared", "arguments": {}})
        said = found_in(await lab.post("/mcp", body, **headers))

        assert "us" == carrier(said)
        assert any("eu: dropped" in step for step in lab.facts("route.choose")[0]["steps"])


async def test_a_call_that_failed_is_not_made_again_elsewhere(tmp_path: Path) -> None:
    """Its server ends while it runs: the caller is told, and the other driver never sees the call."""
    async with routed(tmp_path) as lab:
        body, headers = modern("tools/call", {"name": "shared", "arguments": {"wait": True}})
        hanging = asyncio.create_task(lab.post("/mcp", body, **headers))
        await until(lambda: lab.programs.waiting)
        for held in list(lab.parts.pool._bound.values()):
            held.end()
        said = await hanging

        assert "structuredContent" not in said.text
        assert [1] == [len(one.calls) for one in lab.programs.processes if one.calls]


async def test_rules_decide_on_the_driver_that_was_chosen(tmp_path: Path) -> None:
    """Routing gives nobody a way around policy: the chosen driver's decision counts, and is not escaped to another."""
    forbid = FORBID.replace(");\n", ') when { resource in Driver::"eu" };\n')
    async with routed(tmp_path) as lab:
        control = await (await lab.session("/mcp")).call("shared")
        lab.place.rules(RULES + forbid)
        reloaded = await lab.reload()
        session = await lab.session("/mcp")
        refused = await session.call("shared")

        assert reloaded
        assert "eu" == carrier(control)
        assert refused["isError"]
        assert not any(one.calls for one in lab.programs.processes if one.driver == "us")


async def test_contracts_that_differ_are_not_routed(tmp_path: Path) -> None:
    """Of one id but with another schema: whoever calls has to say which."""
    async with routed(tmp_path) as lab:
        folder = tmp_path / "drivers" / "us" / "tools" / "shared" / "TOOL.md"
        folder.write_text(
            folder.read_text().replace("inputs: {type: object}", "inputs: {type: object, maxProperties: 3}")
        )
        await lab.reload()
        tools = await (await lab.session("/mcp")).tools()

        assert {"eu__shared", "us__shared"} <= set(tools)
        assert "shared" not in tools


async def test_routing_changes_with_a_reload_on_open_sessions(tmp_path: Path) -> None:
    """The same session's next call goes where the new word sends it."""
    async with routed(tmp_path) as lab:
        session = await lab.session("/mcp")
        before = await session.call("shared")
        text = (tmp_path / "gateway.toml").read_text()
        (tmp_path / "gateway.toml").write_text(text.replace("[routing]", '[routing]\nregion = ["us"]'))
        await lab.reload()
        after = await session.call("shared")

        assert ("eu", "us") == (carrier(before), carrier(after))


async def test_who_may_not_use_a_driver_is_not_routed_to_it(tmp_path: Path) -> None:
    """A caller whose credential does not cover the best driver gets the other one."""
    async with routed(tmp_path) as lab:
        text = (tmp_path / "gateway.toml").read_text()
        (tmp_path / "gateway.toml").write_text(text.replace('[driver.eu]\nauth = "none"\n', ""))
        await lab.reload()
        said = await Session.call(await lab.session("/mcp"), "shared")

        assert "us" == carrier(said)
        assert any("credential" in step for step in lab.facts("route.choose")[-1]["steps"])


async def test_a_flood_of_what_is_left_out_is_counted(tmp_path: Path) -> None:
    """A driver that is down for long cannot fill the trail: beyond a rate its absence is only counted."""
    async with routed(tmp_path) as lab:
        lab.parts.pool.remove("lone")
        body, headers = modern("tools/list")
        door = lab.app.endpoints["/mcp"].door
        door._left_out = TokenBucket(20, 5)  # type: ignore[attr-defined]
        for _ in range(30):
            await lab.post("/mcp", body, **headers)
        few = lab.facts("gateway.leave_out")
        door._left_out = TokenBucket(20, 5)  # type: ignore[attr-defined]
        await lab.post("/mcp", body, **headers)
        last = lab.facts("gateway.leave_out")[-1]

        assert 5 <= len(few) < 30
        assert 31 == len(few) + 1 + sum(one.get("unrecorded", 0) for one in [*few, last])


DRIVERS = [
    spec_of(contract_of()).model_copy(update={"id": f"driver-{place}", "region": (region,), "policy_tags": tags})
    for place, (region, tags) in enumerate(
        [("eu", ("a",)), ("us", ("a", "b")), ("global", ("b",)), ("eu", ()), ("us", ("c",))]
    )
]


@given(
    regions=st.sets(st.sampled_from(["eu", "us"])),
    required=st.sets(st.sampled_from(["a", "b"])),
    allowed=st.none() | st.sets(st.sampled_from(["a", "b", "c"])),
    down=st.sets(st.sampled_from([one.id for one in DRIVERS])),
    running=st.sets(st.sampled_from([one.id for one in DRIVERS])),
    mine=st.sets(st.sampled_from([one.id for one in DRIVERS])),
    pin=st.sampled_from(["", *(one.id for one in DRIVERS)]),
)
def test_what_is_chosen_satisfies_every_phase(
    regions: set[str], required: set[str], allowed: set[str] | None, down: set[str], running: set[str], mine: set[str],
    pin: str,
) -> None:  # fmt: skip
    """Whatever is asked for: the chosen driver meets all of it, and none is left out that does."""
    tool = DRIVERS[0].bindings[0].contract.id
    pins = {tool: pin} if pin else {}
    limits = None if allowed is None else tuple(sorted(allowed))
    prefer = Preference(tuple(sorted(regions)), tuple(sorted(required)), limits, pins)
    router = Router(
        DRIVERS, prefer, {}, lambda name, _tenant: Standing("down" if name in down else "", running=name in running)
    )
    found, _ = router.resolve(tool, TenantId("acme"), {}, mine)

    def fits(spec: DriverSpec) -> bool:
        tags = set(spec.policy_tags)
        place = not regions or "global" in spec.region or bool(set(spec.region) & regions)
        return (
            spec.id in mine and spec.id not in down and required <= tags and place
            and (allowed is None or tags <= allowed) and pin in ("", spec.id)
        )  # fmt: skip

    assert {one.id for one in DRIVERS if fits(one)} == set(found.ranked)
    assert (found.chosen is None) == (not found.ranked)


def test_ambiguous_groups_are_not_routed() -> None:
    """Two against two: nobody could say which contract the common name means."""
    other = contract_of(inputs={"type": "object", "maxProperties": 1})
    plain, strange = spec_of(contract_of()), spec_of(other)
    four = [one.model_copy(update={"id": f"d{place}"}) for place, one in enumerate([plain, plain, strange, strange])]

    assert {} == shared(four)
    assert [("d0", "d1")] == list(shared(four[:3]).values())

"""What a reaping pass takes and what it leaves, against an engine that is a list."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.errors import PlatformError
from sandbox.launch import owner
from sandbox.launch.engine import EngineError
from sandbox.launch.interface import LABEL_OWNER, LABEL_RUN, Reaped
from sandbox.launch.reap import reap, reap_of, remains, remove_run

pytestmark = pytest.mark.anyio

ALIVE = owner.own()
DEAD = ":".join([*ALIVE.split(":")[:2], "1", ALIVE.split(":")[3]])


class ListEngine:
    """Holds labelled things and removes them; the order of removals is kept."""

    def __init__(self, **things: dict[str, tuple[str, str]]) -> None:
        self.things = {kind: dict(rows) for kind, rows in things.items()}
        self.removed: list[str] = []
        self.fails: dict[str, int] = {}

    async def labelled(self, kind: str, label: str) -> list[dict[str, Any]]:
        """Return the rows of one kind: all, of one run, or of one owner."""
        what, _, wanted = label.partition("=")
        key = "Name" if kind == "volumes" else "Id"
        return [
            {key: name, "Labels": {LABEL_RUN: run, LABEL_OWNER: who}}
            for name, (run, who) in self.things.get(kind, {}).items()
            if not wanted or (who if what == LABEL_OWNER else run) == wanted
        ]

    async def _remove(self, kind: str, name: str) -> bool:
        if name in self.fails:
            raise EngineError(self.fails[name], "no", "remove")
        self.removed.append(name)
        return self.things[kind].pop(name, None) is not None

    async def remove(self, name: str) -> bool:
        """Remove a container."""
        return await self._remove("containers", name)

    async def remove_network(self, name: str) -> bool:
        """Remove a network."""
        return await self._remove("networks", name)

    async def remove_volume(self, name: str) -> bool:
        """Remove a volume."""
        return await self._remove("volumes", name)


def engine() -> ListEngine:
    """Return an engine with a living, a dead and an unknown owner's things."""
    return ListEngine(
        volumes={"v-dead": ("a", DEAD)},
        networks={"n-dead": ("a", DEAD), "n-alive": ("b", ALIVE)},
        containers={"c-dead": ("a", DEAD), "c-alive": ("b", ALIVE), "c-odd": ("c", "")},
    )


async def test_only_what_the_dead_left_goes() -> None:
    """Containers go before the networks and volumes that they hold; the living and the unknown stay."""
    there = engine()
    found = await reap(there)

    assert Reaped(("c-dead",), ("n-dead",), ("v-dead",), ("c-alive", "c-odd", "n-alive")) == found
    assert ["c-dead", "n-dead", "v-dead"] == there.removed


async def test_all_means_all() -> None:
    """On a person's word the living's and the unknown's things go too."""
    found = await reap(engine(), all=True)

    assert (("c-dead", "c-alive", "c-odd"), ()) == (found.containers, found.spared)


async def test_somebody_else_at_work_is_no_failure() -> None:
    """A container that a watchdog removes at this moment is not counted and not an error."""
    there = engine()
    there.fails["c-dead"] = 409

    assert () == (await reap(there)).containers


async def test_a_failing_engine_is_a_failure() -> None:
    """A container that cannot be removed is not passed over in silence."""
    there = engine()
    there.fails["c-dead"] = 500

    with pytest.raises(PlatformError):
        await reap(there)


async def test_one_run_goes_and_the_others_stay() -> None:
    """A backend's own sweep touches its own run only."""
    there = engine()
    await remove_run(there, "b")

    assert ["c-alive", "n-alive"] == there.removed
    assert () == await remains(there, "b")
    assert ("container c-dead", "network n-dead", "volume v-dead") == await remains(there, "a")


UNSEEN = ALIVE.rpartition(":")[0] + ":1"


@pytest.mark.parametrize(("label", "goes"), [(ALIVE, 0), (DEAD, 3), (UNSEEN, 1)], ids=["living", "dead", "unseen"])
async def test_what_a_gateway_whose_heartbeat_ended_left_goes_unless_it_is_seen_to_live(label: str, goes: int) -> None:
    """A living process is spared whatever its heartbeat says; one of another PID namespace is not; no other's goes."""
    there = engine()
    there.things["containers"]["c-unseen"] = ("d", UNSEEN)
    before = {name for rows in there.things.values() for name, (_, who) in rows.items() if who != label}

    assert goes == await reap_of(there, label)  # type: ignore[arg-type]
    assert before <= {name for rows in there.things.values() for name in rows}
    assert len(there.removed) == goes

"""The official conformance suite through the gateway: check for check what it says of the same server directly.

Each difference below is meant, and explained in docs/conformance.md; a new one fails, and so does one that is gone.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from sandbox.serve.http.bounds import JSON_WAIT
from tests import conformance_kit as kit
from tests.conformance_kit import LEGS, NEW, OLD, V25, V26, Leg
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240)]

STREAMS = "server-sse-multiple-streams server-sse-streams-functional SUCCESS x1"
POLLING = "server-sse-polling"
ROOTS = "input-required-result-basic-list-roots sep-2322-list-roots"
MANY = "input-required-result-multiple-input-requests sep-2322-multiple-inputs"
UNASKED = "input-required-result-ignore-extra-params sep-2322-ignore-unexpected-params"

EXPECTED: dict[Leg, list[str]] = {
    Leg(OLD, V25): [
        f"- {STREAMS}",
        f"- {POLLING} server-sse-priming-event WARNING x1",
        f"- {POLLING} server-sse-retry-field WARNING x1",
        f"+ {POLLING} server-sse-priming-event SUCCESS x1",
        f"+ {POLLING} server-sse-retry-field SUCCESS x1",
    ],
    Leg(NEW, V25): [
        f"- {STREAMS}",
        f"- {POLLING} server-sse-disconnect-resume SUCCESS x1",
    ],
    Leg(NEW, V26): [
        f"- {ROOTS}-complete SUCCESS x1",
        f"- {ROOTS}-incomplete SUCCESS x1",
        f"- {UNASKED} SUCCESS x1",
        f"- {MANY}-complete SUCCESS x1",
        f"- {MANY}-incomplete SUCCESS x1",
        f"+ {ROOTS}-incomplete FAILURE x1",
        f"+ {UNASKED} WARNING x1",
        f"+ {MANY}-incomplete FAILURE x1",
    ],
}
"""What is found only directly (``-``) and only behind the gateway (``+``)."""

ATTEMPTS = 3
"""Runs of one leg while nothing differs but checks with a window (``kit.WINDOWS``): the suite looks after a second or
less at what has come, which a crowded machine exceeds. Any other difference counts in the first run that has it."""

LEAST = {Leg(OLD, V25): 44, Leg(NEW, V25): 84, Leg(NEW, V26): 164}
"""Checks that succeed directly: a fixture that is broken makes everything alike."""


async def test_the_suite_finds_behind_the_gateway_what_it_finds_directly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both suites, both eras, one container for each: the checks are equal but for the differences that are meant."""
    repeated: list[str] = []
    async with kit.direct() as straight, kit.behind(tmp_path) as through:

        async def once(leg: Leg, out: Path) -> tuple[kit.Checks, kit.Checks]:
            return await asyncio.gather(
                kit.run(leg, straight[leg.revision], out / "direct"),
                kit.run(leg, through[leg.revision], out / "through"),
            )

        async def both(leg: Leg) -> tuple[kit.Checks, kit.Checks]:
            for attempt in range(ATTEMPTS):
                checks = await once(leg, tmp_path / f"{leg.name}-{attempt}")
                wrong = kit.beyond(kit.differences(*checks), EXPECTED[leg])
                if not wrong or not kit.crowded(wrong):
                    break
                repeated.append(f"{leg.name}, run {attempt + 1} of {ATTEMPTS}: {'; '.join(wrong)}")
            return checks

        async def in_turn(*legs: Leg) -> dict[Leg, tuple[kit.Checks, kit.Checks]]:
            return {leg: await both(leg) for leg in legs}  # a handshake server's questions name no request

        handshake, stateless = await asyncio.gather(in_turn(*LEGS[:2]), in_turn(*LEGS[2:]))
        found = handshake | stateless

    with capfd.disabled():  # also of a run that succeeds: what needs a second run now and then may be ours
        lines = [f"\nconformance: {len(repeated)} repetitions", *repeated]
        sys.stderr.write("\n  ".join(lines) + "\n")
    for leg, (direct, _) in found.items():
        assert LEAST[leg] <= sum(count for key, count in direct.items() if key[2] == "SUCCESS"), leg
    assert EXPECTED == {leg: kit.differences(*checks) for leg, checks in found.items()}


def test_each_window_is_the_suites_own() -> None:
    """Every check that a run may be repeated for has its time in the suite's code, close to its name; one is ours."""
    program = (kit.CACHE / NEW / kit.PROGRAM).read_text()
    ours = STREAMS.split()[1]
    for check, window in kit.WINDOWS.items():
        names = [match.start() for match in re.finditer(f"`{check}`", program)]
        near = "".join(program[max(0, at - 1500) : at + 1500] for at in names)

        assert names, check
        assert check == ours or re.search(rf",{short(window)}[,)]", near), check
    assert 1000 * JSON_WAIT == kit.WINDOWS[ours]


def short(number: int) -> str:
    """Return a number as a minifier writes it."""
    zeros = len(str(number)) - len(str(number).rstrip("0"))
    return f"(?:{number}|{str(number)[: len(str(number)) - zeros]}e{zeros})"


@pytest.mark.parametrize(
    ("lines", "again"),
    [
        (["- server-stateless sep-2575-server-sends-subscription-ack SUCCESS x1"], True),
        (["+ tools-call-with-logging tools-call-with-logging FAILURE x1"], True),
        (["- server-stateless sep-2575-server-implements-discover SUCCESS x1"], False),
        (["+ tools-call-with-logging tools-call-with-logging FAILURE x1", "- ping ping SUCCESS x1"], False),
        (["+ tools-call-with-logging wire-schema-valid FAILURE x1"], False),
    ],
)
def test_only_a_difference_of_checks_with_a_window_is_looked_at_again(lines: list[str], again: bool) -> None:
    """One other difference beside it, or in the same scenario, counts at once; so does one that is gone."""
    expected = EXPECTED[LEGS[2]]

    assert lines == kit.beyond([*expected, *lines], expected)
    assert again == kit.crowded(kit.beyond([*expected, *lines], expected))
    assert expected[:1] == kit.beyond(expected[1:], expected)
    assert not kit.crowded(expected[:1])


def test_every_difference_is_explained() -> None:
    """docs/conformance.md has a row for each check that differs, and none for one that does not."""
    text = (ROOT / "docs" / "conformance.md").read_text()
    listed = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    differing = {line.split()[2] for lines in EXPECTED.values() for line in lines}

    assert differing == listed

"""Bounds of calls: constants, the shipped policy and an operator's file agree, and each bound bites when lowered."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import pytest

from sandbox import limits
from sandbox.cli.bounds import call_bounds, pool_bounds
from sandbox.errors import CallRefused, CeilingError, ServerFault
from sandbox.policy.call_bounds import UNITS, CallBounds, load_call_bounds
from sandbox.resources import shipped
from sandbox.serve import asking, ratelimit, results
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.ratelimit import Buckets, Rate
from sandbox.serve.results import ResultCleaner
from sandbox.supervisor import bounds as pool
from sandbox.supervisor import fair
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantId
from sandbox.transport.stderr import StderrTail
from sandbox.wire.jsonrpc import Failure, Request
from tests.wire_kit import serving

pytestmark = pytest.mark.anyio
SHIPPED = load_call_bounds(shipped("policies", "default.toml").read_bytes(), "policies/default.toml")
CONSTANTS = {
    "message": limits.MAX_LINE_BYTES,
    "depth": limits.MAX_JSON_DEPTH,
    "in_flight": limits.MAX_IN_FLIGHT,
    "running": fair.MAX_RUNNING,
    "running_of_tenant": fair.MAX_RUNNING_OF_TENANT,
    "waiting_of_tenant": fair.MAX_WAITING_OF_TENANT,
    "wait": fair.MAX_WAIT,
    "result": results.MAX_RESULT_CHARS,
    "stderr": limits.MAX_STDERR_BYTES,
    "questions": asking.MAX_QUESTIONS,
    "sampling_tokens": asking.MAX_SAMPLING_TOKENS,
    "session_tokens": asking.MAX_SESSION_TOKENS,
    "instances": pool.MAX_INSTANCES,
    "instances_of_tenant": pool.MAX_INSTANCES_OF_TENANT,
    "idle": pool.IDLE_TIMEOUT,
}


def test_the_shipped_file_says_what_the_constants_say() -> None:
    """Whoever reads the policy reads what holds; rate and burst of one person's machine are wider than a gateway's."""
    assert CONSTANTS == {name: getattr(SHIPPED, name) for name in CONSTANTS}
    assert set(UNITS) == {*CONSTANTS, "rate", "burst"}
    assert SHIPPED.rate > ratelimit.RATE


def lowered(tmp_path: Path, text: str) -> CallBounds:
    """Return the bounds under an operator's file."""
    file = tmp_path / "policy.toml"
    file.write_text(f'version = 1\nname = "mine"\nnarrows = "default"\n{text}\n')
    return call_bounds(argparse.Namespace(policy=file))


def one(name: str, amount: str) -> str:
    """Return one lowered bound."""
    return f'[calls.{name}]\nmax = {amount}\nreason = "less here"\n'


def test_an_operator_may_lower_each_bound_and_raise_none(tmp_path: Path) -> None:
    """Lower values hold; a higher one, a missing reason, an unknown name, a wrong unit are errors with their line."""
    assert 3 == lowered(tmp_path, one("in_flight", "3")).in_flight
    for text, number in (
        (one("in_flight", "257"), "PLAN-086"),
        ("[calls.in_flight]\nmax = 3", "PLAN-083"),
        (one("in_flght", "3"), "PLAN-081"),
        (one("message", "3"), "PLAN-082"),
        (one("depth", "0"), "PLAN-082"),
    ):
        with pytest.raises(CeilingError) as wrong:
            lowered(tmp_path, text)
        assert number in [problem.id for problem in wrong.value.problems]
        assert min(problem.line for problem in wrong.value.problems) >= 4


async def test_in_flight_bites(tmp_path: Path) -> None:
    """The request beyond the bound is refused at once, and those before it are not disturbed."""
    most = lowered(tmp_path, one("in_flight", "2")).in_flight
    async with serving(options=SessionOptions(max_in_flight=most)) as stage:
        for number in range(1, 4):
            stage.client.call("tools/call", {"name": "echo", "arguments": {}}, 100 + number)
        refusal = await stage.client.receive(Failure)

        assert (103, "SESS-009") == (refusal.id, refusal.data["id"])
        assert 2 == len([await stage.server.expect("tools/call") for _ in range(2)])


@pytest.mark.parametrize(
    ("name", "amount", "line"), [("message", '"1KiB"', "x" * 2000), ("depth", "4", "[[[[[[]]]]]]")]
)
async def test_message_and_depth_bite(tmp_path: Path, name: str, amount: str, line: str) -> None:
    """A message beyond the operator's bound never becomes a request; one within it does."""
    own = lowered(tmp_path, one(name, amount))
    async with serving(opened=False) as stage:
        stage.client_channel.bound(own.message, own.depth)
        stage.client.send(Request(1, "ping", {}))
        bad = b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"x":' + (
            line.encode() if line.startswith("[") else b'"' + line.encode() + b'"'
        )
        stage.client.send_bytes(bad + b"}}\n")
        answers = [await stage.client.unread.get() for _ in range(2)]

        assert 1 == answers[0].id
        assert isinstance(answers[1], Failure)
        assert answers[1].data["id"] in {"WIRE-001", "WIRE-007"}


async def test_rate_running_and_waiting_bite(tmp_path: Path) -> None:
    """Bucket and gate of an operator's numbers refuse the call beyond them."""
    text = one("rate", "1") + one("burst", "2") + one("running", "1") + one("running_of_tenant", "1")
    own = lowered(tmp_path, text + one("waiting_of_tenant", "1") + one("wait", '"1s"'))
    buckets: Buckets[str] = Buckets(Rate(own.rate, own.burst))
    gate = Gate(own.running, own.running_of_tenant, own.waiting_of_tenant, 0.05)
    ids = []

    async def enter() -> None:
        try:
            async with gate.slot(TenantId("t")):
                pass
        except CallRefused as refusal:
            ids.append(refusal.id)

    async with gate.slot(TenantId("t")):
        await asyncio.gather(enter(), enter())

    assert [True, True, False] == [buckets.take("k", 0.0).allowed for _ in range(3)]
    assert ["CALL-051", "CALL-052"] == ids


def test_result_and_stderr_bite(tmp_path: Path) -> None:
    """A result beyond the bound is the server's fault, and of its stderr only the end is kept."""
    own = lowered(tmp_path, one("result", '"1KiB"') + one("stderr", '"1KiB"'))
    tail = StderrTail(most=own.stderr)
    for number in range(100):
        tail.feed(f"{number:063}\n".encode())

    with pytest.raises(ServerFault) as fault:
        ResultCleaner(None, None, own.result).clean({"content": [{"type": "text", "text": "x" * 1100}]})
    assert "CALL-060" == fault.value.id
    assert len(tail.text()) <= own.stderr
    assert tail.text().endswith("99")
    assert tail.dropped


def test_a_pool_takes_its_bounds_from_the_file(tmp_path: Path) -> None:
    """Number of servers, in all and of a tenant, and idle time."""
    made = pool_bounds(lowered(tmp_path, one("instances", "3") + one("instances_of_tenant", "2") + one("idle", '"9s"')))

    assert (3, 2, 9.0) == (made.instances, made.of_tenant, made.idle)

"""Each shipped contract broken in twenty ways: `vet` says no, and the real server refuses the very value it shows.

Seven of the eight servers validate their arguments themselves. One does not: it is counted apart, and its witnesses are
only held against the schema that it published.
"""

from __future__ import annotations

import argparse
import copy
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sandbox.cli.bench import engine
from sandbox.cli.offline import offline
from sandbox.cli.progress import quiet_progress
from sandbox.errors import SandboxError
from sandbox.events import Scope, Trace
from sandbox.spec.model import Binding
from sandbox.supervisor import open_server
from sandbox.supervisor.admission import LiveServer
from sandbox.testing.memory import MemoryRecorder
from sandbox.transport.outcomes import RemoteError
from sandbox.vet.bind import exposed_inputs
from sandbox.vet.directions import Fit, check_inputs
from tests.engine.drivers import EXAMPLES, Example
from tests.shared import ROOT
from tests.unit.vet.test_directions_shipped import CHANGES, Change, with_inputs

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 5.0
"""A call that does not answer in this time was taken."""

VALIDATION = re.compile(
    r"valid|required|missing|schema|expected|unrecognized|unexpected|must be|type|enum|invalid_", re.IGNORECASE
)
LAX = {"signing-mcp": "it does not validate: it ends with an exception at the first value outside its schema"}
"""Drivers whose server does not hold arguments against its own schema, with what was seen."""

INVALID_PARAMS = -32602
"""JSON-RPC 2.0, section 5.1."""


def broken(binding: Binding, change: Change, tool: Any) -> tuple[Binding, Fit] | None:
    """Return the first member's mutation that `vet` refuses, ``None`` when the server takes every one of them.

    Refused with a witness where there is one; a bound of a million characters is undecided, which refuses as well.
    """
    undecided = None
    for name in binding.contract.inputs.get("properties", {}):
        inputs = copy.deepcopy(dict(binding.contract.inputs))
        change(inputs, name)
        changed = with_inputs(binding, inputs)
        fit = check_inputs(changed, tool)
        if fit.status == "refuted":
            return changed, fit
        undecided = (changed, fit) if fit.status == "undecided" else undecided
    return undecided


async def answered(live: LiveServer, binding: Binding, witness: Any) -> str:
    """Return what the real server does with a witness: ``validation``, ``otherwise`` (another error) or ``taken``."""
    sent = {binding.argument_mapping.get(name, name): value for name, value in witness.items()}
    try:
        params = {"name": binding.tool_name, "arguments": sent}
        result = await live.peer.request("tools/call", params, timeout=SECONDS)
    except RemoteError as error:
        return "validation" if error.code == INVALID_PARAMS or VALIDATION.search(error.text) else "otherwise"
    except SandboxError:
        return "taken"
    if not result.get("isError"):
        return "taken"
    text = " ".join(str(block.get("text", "")) for block in result.get("content", ()))
    return "validation" if VALIDATION.search(text) else "otherwise"


@pytest.mark.claim("P-VET-12")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
async def test_the_real_server_refuses_what_vet_shows(example: Example, tmp_path: Path) -> None:
    """Each witness is valid under the contract, invalid under the server's schema, and refused by the server."""
    counts: Counter[str] = Counter()
    arguments = argparse.Namespace(
        driver=ROOT / "drivers" / example.name, root=example.options(tmp_path)[1:], memory=None, runtime="", policy=None
    )
    async with engine() as backend:
        review, secrets = await offline(arguments, backend, quiet_progress())
        scope = Scope(MemoryRecorder(), Trace.new())
        async with open_server(backend, review.spec, review.plan, scope, secrets) as live:
            assert live.exposure.surface is not None
            offered = live.exposure.surface.tools
            for binding in review.spec.bindings:
                for change in CHANGES.values():
                    found = broken(binding, change, offered[binding.tool_name])
                    if found is None:
                        counts["server takes it"] += 1
                        continue
                    changed, fit = found
                    if fit.status == "undecided":
                        assert "block" == fit.findings[0].severity
                        counts["undecided"] += 1
                        continue
                    takes = jsonschema.Draft202012Validator(offered[binding.tool_name]["inputSchema"])

                    assert jsonschema.Draft202012Validator(exposed_inputs(changed)).is_valid(fit.witness)
                    assert not takes.is_valid(fit.witness)

                    counts[await answered(live, binding, fit.witness)] += 1
    unvalidated = counts["taken"] + counts["otherwise"]
    assert counts["validation"] + unvalidated >= 10, counts
    assert bool(unvalidated) == (example.name in LAX), counts

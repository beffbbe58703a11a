"""Runs code of the dialect's clients in sandboxes of this host: a driver of ours, started for one run and removed.

The driver ships with the package and goes through the ordinary flow: reviewed, planned under the operator's ceiling,
launched, read back, vetted, its steps decided by rules and recorded for the caller's tenant.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from sandbox.cli.approved import opening
from sandbox.cli.bench import bench
from sandbox.cli.bounds import call_bounds
from sandbox.cli.pipeline import caller_of, serving_of
from sandbox.cli.progress import quiet_progress
from sandbox.cli.rules import load_rules
from sandbox.dialect import inside
from sandbox.dialect.code import Code, CodeRequest, Step
from sandbox.dialect.handshake import needs
from sandbox.dialect.model import to_json
from sandbox.dialect.routes import body_of, unless_gone
from sandbox.dialect.service import Who
from sandbox.dialect.site import Answer, Ask, Site, json_answer, only
from sandbox.errors import ServerFault
from sandbox.events import Recorder, Scope
from sandbox.serve.extract import first_text
from sandbox.serve.identity.model import Identity
from sandbox.supervisor import open_server

RUNNER: Final = Path(inside.__file__).parent / "code-runner-mcp"
"""The driver in which code runs."""

TOOL: Final = "code-step"


def add_code(site: Site, arguments: argparse.Namespace, scope: Scope) -> None:
    """Let a site run code (``POST code``)."""
    code = Code(site.service, _Sandboxes(arguments, scope.recorder).opened, scope)

    async def run(ask: Ask) -> Answer:
        only(ask, "POST")
        request = await body_of(ask, CodeRequest)
        agreement = await site.agreements.find(request.session, ask.arrival.identity.owner, ask.place.base)
        needs("code_exec", agreement.capabilities)
        who = Who(ask.place, ask.arrival.identity, agreement.capabilities, "http")
        return json_answer(to_json(await unless_gone(ask, code.run(who, request))))

    site.routes["code"] = run


class _Sandboxes:
    """Starts one sandbox for each run."""

    def __init__(self, arguments: argparse.Namespace, recorder: Recorder) -> None:
        self._arguments, self._recorder = arguments, recorder

    @contextlib.asynccontextmanager
    async def opened(self, identity: Identity) -> AsyncIterator[Step]:
        """Start the runner for a caller's tenant and yield what carries a run one step further.

        Raises:
            SandboxError: it cannot be planned, started or vetted.
        """
        given = {"driver": RUNNER, "tenant": identity.tenant.tenant, "user": identity.tenant.user, "names": "contract"}
        own = argparse.Namespace(**{**vars(self._arguments), **given, "memory": None, "root": []})
        async with (
            bench(own, self._recorder, quiet_progress()) as ready,
            open_server(ready.backend, ready.spec, ready.plan, ready.scope, ready.secrets, opening(own)) as live,
        ):
            pipeline = serving_of(live, load_rules(own.rules), ready.secrets, call_bounds(own)).pipeline
            timeout = min(ready.plan.limits.call_timeout, live.exposure.tools[TOOL].binding.timeout_ms / 1000)

            async def forward(name: str, mapped: dict[str, Any]) -> dict[str, Any]:
                return await live.peer.request("tools/call", {"name": name, "arguments": mapped}, timeout=timeout)

            async def step(given: Mapping[str, Any]) -> dict[str, Any]:
                result = await pipeline.call(TOOL, dict(given), caller_of(own), live.scope.child(), forward)
                value = result.get("structuredContent")
                if result.get("isError") or not isinstance(value, dict):
                    text = first_text(result) or "the sandbox of the code gave no answer"
                    raise ServerFault("DIA-064", f"the code was stopped: {text}", "do less at a time")
                return value

            yield step

"""A supervisor as small as possible, to be killed by tests: it launches one probe and waits for its client to leave.

Usage: ``supervisor.py <engine socket> <image id> <run id> <stage>``. Stages: ``run`` holds a started server;
``created`` stops between create and start; ``creating`` has sent the create request and does not wait for its answer;
``network`` holds a network and a volume of the run as well. It prints ``ready`` when it is there, and closes in good
order when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from sandbox.events import Scope, Trace
from sandbox.launch import translate
from sandbox.launch.docker import DockerBackend
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan

NETWORK = {
    "Driver": "bridge",
    "Internal": True,
    "Options": {"com.docker.network.bridge.inhibit_ipv4": "true"},
    "IPAM": {"Config": [{"Subnet": "198.51.100.240/29"}]},
}
"""A network that reaches nothing."""


async def main(socket_path: str, image: str, run_id: str, stage: str) -> None:
    """Reach a stage and stay there."""
    backend = DockerBackend(socket_path, run_id)
    plan = baseline_plan(image_id=image, argv=("/probe", "stubborn"))
    if stage in {"created", "creating"}:
        backend._watch()
        body = translate.create_request(plan, translate.Joined(), backend.labels(plan), {}, "{}")
        pending: Any = asyncio.ensure_future(backend.engine.create(body, f"mcp-sandbox-test-{run_id[:12]}"))
        await (asyncio.sleep(0.004) if stage == "creating" else pending)
    else:
        await backend.launch(plan, Scope(MemoryRecorder(), Trace.new()), {})
    if stage == "network":
        labels = backend.labels(plan)
        body = {"Name": f"mcp-sandbox-test-{run_id[:12]}", "Labels": labels}
        await backend.engine.call("POST", "/networks/create", what="create a network", body=body | NETWORK)
        await backend.engine.call("POST", "/volumes/create", what="create a volume", body=body)
    print("ready", flush=True)  # noqa: T201 - its word to the test
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await backend.close()


asyncio.run(main(*sys.argv[1:]))

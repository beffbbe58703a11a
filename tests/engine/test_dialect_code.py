"""Code of a caller in a real sandbox: it uses its caller's tools, gets nowhere else, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.client import Client
from sandbox.dialect.links import HttpLink
from sandbox.dialect.validate import Asked, validate
from tests.engine.drivers import COMMAND
from tests.engine.test_serve import free_port
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(240)]

ATTACKS = """
import json, os, socket
found = {{}}
def attempt(name, work):
    try:
        work()
        found[name] = "done"
    except BaseException as error:
        found[name] = type(error).__name__
attempt("connect", lambda: socket.create_connection(("127.0.0.1", {port}), 2).close())
attempt("read", lambda: open({secret!r}).read())
attempt("write", lambda: open({folder!r} + "/written", "w").close())
attempt("fork", lambda: os._exit(0) if os.fork() == 0 else os.wait())
attempt("exec", lambda: json.dumps(os.spawnv(os.P_WAIT, "/bin/true", ["true"])) == "0" or 1 / 0)
result = found
print(json.dumps(found))
"""


@contextlib.asynccontextmanager
async def gateway(scratch: Path) -> AsyncIterator[str]:
    """Serve the text tools in the dialect, with code, to a tenant; yield the dialect's address."""
    shutil.copytree(ROOT / "drivers" / "text-mcp", scratch / "drivers" / "text-mcp")
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(scratch / "drivers"), "--listen", f"127.0.0.1:{port}", "--unsafe-tenant", "t1",
        "--dialect", "2025-11", "--code-exec", "--jobs", str(scratch / "jobs.sqlite"),
        "--audit-dir", str(scratch / "audit"), stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(120):
            while b"text-mcp/2025-11/ speaks" not in (line := await process.stderr.readline()):
                assert line
        yield f"http://127.0.0.1:{port}/mcp/text-mcp/2025-11"
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


def on_this_host(code: str) -> bytes:
    """Run code without a sandbox and return what it printed."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout


def there(container: str) -> bool:
    """Return whether the engine still knows a container."""
    return subprocess.run(["docker", "inspect", container], capture_output=True, check=False).returncode == 0


def records(audit: Path) -> list[dict[str, Any]]:
    """Return the records of a trail."""
    return [json.loads(line) for path in sorted(audit.rglob("*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.claim("P-DIA-20")
async def test_code_uses_tools_and_gets_nowhere_else(tmp_path: Path) -> None:
    """Forty calls give one value and spare tokens; attacks that work on this host fail; two runs share nothing."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    (tmp_path / "open").mkdir(mode=0o777)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = ATTACKS.format(port=listener.getsockname()[1], secret=str(secret), folder=str(tmp_path / "open"))
        free = json.loads(on_this_host(code))
        (tmp_path / "open" / "written").unlink()
        async with gateway(tmp_path) as url, HttpLink(url) as link:
            client = Client(link)
            await client.connect()

            async def run(text: str, *imports: str) -> dict[str, Any]:
                shake = await link.handshake(client._handshake("2025-11"))
                body = {"request_id": str(uuid.uuid4()), "code": text, "session": shake.body["session"]}
                files = [{"import": f"tools/{one}.json"} for one in imports]
                return dict((await link.send("POST", "code", {**body, "imports": files})).body)

            text = "result = sum(text_count(text='a b ' * n)['words'] for n in range(40))"
            worked, attacked, left = await asyncio.gather(
                run(text, "text-count"),
                run(code),
                run("import pathlib\npathlib.Path('/tmp/left').write_text('x')\nresult = 1"),
            )
            looked = await run("import pathlib\nresult = pathlib.Path('/tmp/left').exists()")
            died = await run("import os\nos._exit(3)")
            greedy = await run("result = len(bytearray(2 << 30))")
            checks = await validate(link, Asked(tool="text-count", arguments={"text": "a b"}))

    assert {"connect", "read", "write", "fork", "exec"} == {name for name, how in free.items() if how == "done"}
    assert not any(how == "done" for how in attacked["result"]["value"].values()), attacked
    assert not (tmp_path / "open" / "written").exists()
    assert "success" == worked["status"], worked
    assert (1560, 40) == (worked["result"]["value"], worked["result"]["calls"])
    assert worked["result"]["tokens"]["saved_percent"] > 90
    assert ("success", False) == (left["status"], looked["result"]["value"])
    assert {"error"} == {died["status"], greedy["status"]}
    assert {} == {one.check: one.message for one in checks if one.outcome == "fail"}
    trail = records(tmp_path / "audit")
    made = {r["attrs"]["container"] for r in trail if r.get("name") == "launch.create" and r["phase"] == "outcome"}
    assert 7 == len(made)
    assert [] == [one for one in made if there(one)]
    forwarded = [r for r in trail if r.get("name") == "call.forward" and r["phase"] == "intent"]
    assert 41 <= len([r for r in forwarded if r["attrs"]["tool"] == "text-count"])
    assert {"t1"} == {r["tenant"] for r in forwarded}
    assert 6 == len([r for r in trail if r.get("name") == "code.run" and r["phase"] == "outcome"])

"""The operator's page of a real gateway: a server in a container changes, is read about, approved, and goes on."""

from __future__ import annotations

import asyncio
import html
import re
import signal
from pathlib import Path

import httpx2
import pytest

from sandbox.cli.gateway.reload import LOOK
from tests.engine.drivers import COMMAND
from tests.engine.test_rug_pull_container import image, write
from tests.engine.test_serve import free_port
from tests.gateway_lab import EVENTS, call, request
from tests.ui_lab import last

__all__ = ["image"]

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timeout(120)]
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.claim("P-UI-05")
async def test_a_changed_server_in_a_container_is_approved_and_goes_on(
    tmp_path: Path,
    image: str,
) -> None:
    """From the link on stderr to the call that works again; the lock and the trail say what was approved by whom."""
    folder, port = tmp_path / "drivers" / "shifting-mcp", free_port()
    url, audit = f"http://127.0.0.1:{port}", ["--audit-dir", str(tmp_path / "audit")]
    write(folder, image, "honest")
    await run("pins", "approve", str(folder), *audit)
    before = (folder / "driver.lock").read_text()
    write(folder, image, "announced")
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", str(folder.parent), "--listen", f"127.0.0.1:{port}", "--unsafe-tenant", "me", "--ui-link",
        *audit, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(60):
            while "everybody who sends no token" not in said:
                said += (await process.stderr.readline()).decode()
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as http:
            code = re.findall(r"/ui/sign-in\?code=(\S+)", said)[0]
            signed = await http.post(f"{url}/ui/sign-in", content=f"code={code}", headers={**FORM, "origin": url})
            opened = request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
            opened["params"]["clientInfo"] = {"name": "t", "version": "1"}
            first = await http.post(f"{url}/mcp/shifting-mcp", json=opened, headers=EVENTS)
            own = {"mcp-session-id": first.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}

            async def ask(number: int) -> bool:
                body = call(number)
                body["params"] = {"name": "my-read", "arguments": {"path": "a"}}
                answer = await http.post(f"{url}/mcp/shifting-mcp", json=body, headers={**EVENTS, **own})
                return not last(answer)["result"]["isError"]

            worked = [await ask(number) for number in range(2, 7)]
            page = (await http.get(f"{url}/ui")).text
            path = html.unescape(re.findall(r'href="(/ui/change\?[^"]+)"', page)[0])
            shown = (await http.get(url + path)).text
            fields = dict(re.findall(r'<input type="hidden" name="(form|driver|digest|base)" value="([^"]*)"', shown))
            form = {**FORM, "origin": url}
            approved = await http.post(f"{url}/ui/approve", content=str(httpx2.QueryParams(fields)), headers=form)
            again = await ask(9)
            await asyncio.sleep(3 * LOOK)  # the gateway looks at its files, and finds what it wrote itself
            later = (await http.get(f"{url}/ui")).text
    finally:
        process.send_signal(signal.SIGTERM)
        status = await asyncio.wait_for(process.wait(), 60)

    assert (303, 303, 0) == (signed.status_code, approved.status_code, status)
    assert (True, False, True) == (worked[0], worked[-1], again)
    first_container = re.findall(r'data-label="Instance"><code>([0-9a-f]+)', page)
    assert first_container == re.findall(r'data-label="Instance"><code>([0-9a-f]+)', later), "nothing was restarted"
    assert "UNAPPROVED: before anything else" in shown
    assert before != (folder / "driver.lock").read_text()
    told = await run("audit", "query", "--json", *audit)
    assert re.search(r'"by": ?"link [0-9a-f]{8}"', told)
    assert code not in told


async def run(*argv: str) -> str:
    """Run a command to its end."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert 0 == process.returncode
    return out.decode()

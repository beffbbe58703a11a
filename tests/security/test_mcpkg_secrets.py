"""A tool's credential: put in by the broker for the endpoint's host, and never inside the tool's sandbox."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.cli import wiring
from sandbox.errors import PlanRefused
from sandbox.events import Scope, Trace
from sandbox.mcpkg.contents import FolderContents
from sandbox.mcpkg.install import Order, install
from sandbox.mcpkg.manifest import read_package
from sandbox.mcpkg.select import Surroundings
from sandbox.mcpkg.signatures import Signed
from sandbox.mcpkg.store import Store
from sandbox.supervisor import Options, open_server
from sandbox.testing.memory import MemoryRecorder
from tests.conftest import ENGINE_SOCKET
from tests.egress_lab import Lab, certificate, laboratory
from tests.mcpkg_kit import ECHO, folder
from tests.remote_lab import policy

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.slow]

HOST = "intended.test"
NAME = "VENDOR_API_KEY"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=96) as made:
        yield made


def installed(place: Path, kind: str, url: str = f"https://{HOST}/big/0") -> Path:
    """Install a tool that authenticates itself and return its driver folder."""
    manifest = {
        **ECHO,
        "endpoint": {"type": "http", "method": "POST", "url": url},
        "auth": {"type": kind, "configHints": {"env": [NAME]}},
        "output_schema": {"type": "object"},
        "tests": [],
    }
    contents = FolderContents(folder(place / "source", {"manifest.json": manifest}))
    found, _, _ = read_package(contents)
    store = Store(place / "store")
    with store.changing():
        order = Order(contents, found, Signed("unsigned"), found.implementations[0], Surroundings("linux-x64", {}))
        install(store, order)
    return store.link("demo.echo")


@pytest.mark.claim("P-PKG-10")
@pytest.mark.parametrize(
    ("kind", "header", "prefix"),
    [("bearer", "authorization", "Bearer "), ("oauth2", "authorization", "Bearer "), ("api_key", "x-api-key", "")],
)
async def test_the_broker_puts_the_credential_in(lab: Lab, kind: str, header: str, prefix: str, tmp_path: Path) -> None:
    """The endpoint gets the value in the header of its kind; plan, driver folder, result and facts never have it."""
    value = f"c4nary-{os.urandom(12).hex()}"
    bundle = tmp_path / "ca.pem"
    bundle.write_text(certificate()[0])
    own = policy(tmp_path, ca=str(bundle))
    driver = installed(tmp_path, kind)
    asked = argparse.Namespace(driver=driver, policy=own, root=[], memory=None, runtime="")
    review = await asyncio.get_running_loop().run_in_executor(None, wiring.review, asked, str(ENGINE_SOCKET))
    recorder = MemoryRecorder()
    await lab.forget()
    async with lab.backend() as (backend, _):
        review.planned(await backend.facts())
        scope = Scope(recorder, Trace.new())
        secrets = dict.fromkeys(review.plan.secrets(), value)
        async with open_server(backend, review.spec, review.plan, scope, secrets, Options()) as live:
            result = await _called(live)
        arrived = await lab.arrived("good", "request")

    assert {"structuredContent": {}, "isError": False} == {key: result[key] for key in ("structuredContent", "isError")}
    assert [f"{prefix}{value}"] == [request["headers"].get(header) for request in arrived]
    everything = repr([review.plan.to_json(), result, [(fact.name, dict(fact.attrs)) for fact in recorder.facts]])
    assert value not in everything + "".join(path.read_text() for path in driver.resolve().rglob("*") if path.is_file())
    assert not any(entry.value == value for entry in review.plan.env)


async def _called(live: Any) -> Any:
    return await live.peer.request("tools/call", {"name": "demo.echo", "arguments": {"message": "x"}}, timeout=30)


@pytest.mark.parametrize("url", [f"http://{HOST}/", f"https://{HOST}:8443/"])
def test_a_credential_never_goes_where_the_broker_cannot_put_it_in(url: str, tmp_path: Path) -> None:
    """In clear, or on another port: refused when it is installed; without a credential the same address is fine."""
    with pytest.raises(PlanRefused, match="PKG-030"):
        installed(tmp_path / "a", "bearer", url)
    with pytest.raises(PlanRefused, match="PKG-030"):
        installed(tmp_path / "b", "api_key", url)
    assert installed(tmp_path / "c", "none", url).is_dir()

"""What `validate` and the client make of servers that lie about the form of everything."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from sandbox.dialect.client import Client
from sandbox.dialect.links import Reply
from sandbox.dialect.validate import Asked, validate
from sandbox.errors import SandboxError

pytestmark = pytest.mark.anyio


class Lying:
    """A server whose answers have the right members, each of a wrong type in its turn."""

    transport = "http"

    def __init__(self, **false: Any) -> None:
        self.false = false

    def _told(self, **true: Any) -> Reply:
        return Reply(200, {**true, **{name: value for name, value in self.false.items() if name in true}})

    async def handshake(self, body: Mapping[str, Any]) -> Reply:
        """Agree."""
        return self._told(
            version="2025-11", server_id="x", transport="http", capabilities=["async"], session="s",
            client_id=body["client_id"],
        )  # fmt: skip

    async def invoke(self, body: Mapping[str, Any]) -> Reply:
        """Answer with success."""
        return self._told(
            request_id=body["request_id"], status="success", result={}, job_id="j", poll_after=0, metadata={}
        )

    async def job(self, job: str) -> Reply:
        """Answer for a job."""
        return self._told(request_id=job, status="success", result={}, metadata={"duration_ms": 1})

    async def file(self, path: str, etag: str = "") -> Reply:
        """Give a descriptor, or the listing of one."""
        if path == "tools/":
            return self._told(files=[{"path": "tools/a.json"}])
        schema = {"type": "object"}
        return self._told(tool_id="a", name="a", input_schema=schema, output_schema=schema, metadata={"latency": "1ms"})


@pytest.mark.parametrize("name", ["metadata", "capabilities", "files", "input_schema", "server_id", "job_id", "result"])
@pytest.mark.parametrize("value", [[1], 7, "text", {"a": [1]}, True], ids=["list", "number", "text", "object", "truth"])
async def test_a_lying_server_fails_checks_and_ends_none(name: str, value: Any) -> None:
    """Whatever stands in a member, every check has a finding, and none is passed by an answer of a wrong form."""
    found = await validate(Lying(**{name: value}), Asked(tool="a"))

    assert 12 == len(found)
    assert any(one.outcome == "fail" for one in found)


@pytest.mark.parametrize(
    "name", ["capabilities", "files", "input_schema", "version", "session", "request_id", "result"]
)
@pytest.mark.parametrize("value", [None, [1], 7, "text", {"a": [1]}], ids=["null", "list", "number", "text", "object"])
async def test_a_client_is_told_of_a_lying_server_and_never_broken_by_it(name: str, value: Any) -> None:
    """Whatever stands in a member, the client has a result or an error of the documented kinds."""
    lying = Client(Lying(**{name: value}))
    with contextlib.suppress(SandboxError):
        await lying.connect()
        assert all(isinstance(one, str) for one in lying.capabilities)
    with contextlib.suppress(SandboxError):
        assert ("tools/a.json",) == await lying.tools()
    with contextlib.suppress(SandboxError):
        await lying.call("a", {})
    with contextlib.suppress(SandboxError):
        await lying.resume("j")

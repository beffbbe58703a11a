"""A server of the 2025-11 dialect that keeps every rule, and can be told to break one of them."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from typing import Any

from starlette.types import Receive, Scope, Send

RELEASES = ("2024-10", "2024-11", "2025-03", "2025-06", "2025-11")
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
DEFECTS = {
    "agrees to anything": "mismatch",
    "no capabilities": "handshake",
    "another version": "handshake",
    "no schema": "schema",
    "bad latency": "schema",
    "reference to the network": "reference",
    "etag of nothing": "etag",
    "sends again": "etag",
    "unknown tools succeed": "unknown",
    "unknown jobs succeed": "unknown",
    "takes any arguments": "arguments",
    "another request": "call",
    "result of another shape": "call",
    "job without end": "async",
    "no time to poll": "async",
    "kept by anybody": "headers",
    "no limit": "headers",
    "open to all": "headers",
}
"""Defect → the check that has to find it."""


class DialectServer:
    """Answers messages; what a transport adds stands in :func:`asgi` and :func:`main`."""

    def __init__(self, defect: str = "", token: str = "") -> None:
        self.defect, self.token = defect, token
        self.jobs: dict[str, list[Any]] = {}

    def descriptor(self) -> dict[str, Any]:
        """Return the one descriptor."""
        inputs: dict[str, Any] = dict(SCHEMA)
        if self.defect == "no schema":
            inputs = {"type": "nothing"}
        if self.defect == "reference to the network":
            inputs["properties"] = {"text": {"$ref": "https://evil.example/text.json"}}
        latency = "soon" if self.defect == "bad latency" else "5ms"
        return {
            "tool_id": "echo", "name": "Echo", "description": "", "input_schema": inputs, "output_schema": dict(SCHEMA),
            "metadata": {"latency": latency},
        }  # fmt: skip

    def handshake(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a handshake."""
        version = body.get("version")
        spoken = version in RELEASES[-2:]
        if not spoken and self.defect != "agrees to anything":
            return self.error(None, "that release is not spoken here")
        said: dict[str, Any] = {
            "version": "2025-06" if self.defect == "another version" else version, "client_id": body["client_id"],
            "server_id": "server of tests", "transport": body["transport"], "capabilities": ["async"],
            "session": str(uuid.uuid4()),
        }  # fmt: skip
        if self.defect == "no capabilities":
            del said["capabilities"]
        return said

    @staticmethod
    def error(request: Any, message: str) -> dict[str, Any]:
        """Return a refusal."""
        error = {"id": "X-1", "code": "invalid", "message": message, "mend": "", "retryable": False}
        return {"request_id": request, "status": "error", "error": error, "metadata": {"duration_ms": 0}}

    def invoke(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a request."""
        request, given = body["request_id"], body.get("arguments", {})
        if body["tool_id"] != "echo" and self.defect != "unknown tools succeed":
            return self.error(request, "there is no such tool")
        fits = isinstance(given.get("text"), str) and set(given) == {"text"}
        if not fits and self.defect not in ("takes any arguments", "unknown tools succeed"):
            return self.error(request, "the arguments do not fit")
        result = {"words": 1} if self.defect == "result of another shape" else {"text": given.get("text", "")}
        named = str(uuid.uuid4()) if self.defect == "another request" else request
        done = {"request_id": named, "status": "success", "result": result, "metadata": {"duration_ms": 1}}
        if body.get("mode") != "async":
            return done
        job = str(uuid.uuid4())
        self.jobs[job] = [2, {**done, "request_id": request}]
        handle = {"request_id": request, "status": "in_progress", "job_id": job, "poll_after": 0.01}
        if self.defect == "no time to poll":
            del handle["poll_after"]
        return handle

    def job(self, job: str) -> dict[str, Any]:
        """Answer for a job."""
        if job not in self.jobs:
            return (
                {"status": "success", "result": {}} if self.defect == "unknown jobs succeed" else self.error(None, "?")
            )
        left = self.jobs[job]
        left[0] -= self.defect != "job without end"
        return left[1] if left[0] <= 0 else {"request_id": left[1]["request_id"], "status": "in_progress"}

    def file(self, path: str) -> bytes | None:
        """Return a file of the view."""
        if path == "tools/":
            return json.dumps({"files": [{"path": "tools/echo.json"}]}).encode()
        return canonical(self.descriptor()) if path == "tools/echo.json" else None


def canonical(value: Any) -> bytes:
    """Return a value as the file view has it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def asgi(server: DialectServer) -> Any:
    """Return the server over HTTP."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path, sent = scope["path"].lstrip("/").removeprefix("2025-11/"), dict(scope["headers"])
        fields = {
            "content-type": "application/json", "cache-control": "no-store", "x-content-type-options": "nosniff",
            "x-mcp-limit": "limit=60;window=60;remaining=59",
        }  # fmt: skip
        if server.defect == "kept by anybody":
            fields["cache-control"] = "public, max-age=600"
        if server.defect == "no limit":
            del fields["x-mcp-limit"]

        async def reply(status: int, data: bytes, **more: str) -> None:
            headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in {**fields, **more}.items()]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": data})

        known = not server.token or sent.get(b"authorization") == f"Bearer {server.token}".encode()
        if not known and server.defect != "open to all":
            await reply(401, canonical(server.error(None, "sign in")), www_authenticate="Bearer")
            return
        if scope["method"] == "POST":
            body = json.loads((await receive())["body"])
            said = server.handshake(body) if path == "handshake" else server.invoke(body)
            await reply(400 if said.get("status") == "error" else 200, canonical(said))
        elif path.startswith("jobs/"):
            said = server.job(path.removeprefix("jobs/"))
            await reply(404 if said.get("status") == "error" and not said["request_id"] else 200, canonical(said))
        else:
            data = server.file(path) or b"{}"
            digest = hashlib.sha256(b"" if server.defect == "etag of nothing" else data).hexdigest()
            known = sent.get(b"if-none-match") == f'"{digest}"'.encode() and server.defect != "sends again"
            await reply(304 if known else 200, b"" if known else data, etag=f'"{digest}"')

    return app


def main() -> None:
    """Speak over standard input and output."""
    server = DialectServer(sys.argv[1] if len(sys.argv) > 1 else "")
    for line in sys.stdin:
        body = json.loads(line)
        if "resume" in body:
            said = server.job(body["resume"])
        elif "import" in body:
            data = server.file(body["import"]) or b"null"
            digest = hashlib.sha256(b"" if server.defect == "etag of nothing" else data).hexdigest()
            said = {"import": body["import"], "etag": f'"{digest}"', "file": json.loads(data)}
        else:
            said = server.invoke(body) if "tool_id" in body else server.handshake(body)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

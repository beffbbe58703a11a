#!/usr/bin/env python3
"""Runs one piece of code inside a sandbox of its own, step by step: MCP on stdio, on the standard library alone.

The tool ``step`` is called with ``begin`` (the code, and the names of the tools it may use), and then with what each
tool gave. A step ends when the code asks for a tool, when it ends, or when it fails. The code is a thread of this
process: it waits while the tool is called outside, by whoever started this. Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import threading
import traceback
from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MOST_PRINTED = 65536
MOST_TOLD = 4000
STEP: dict[str, Any] = {
    "name": "step",
    "description": "Run code until it asks for a tool, ends or fails.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "begin": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "maxLength": 262144},
                    "tools": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 64},
                },
                "required": ["code", "tools"],
                "additionalProperties": False,
            },
            "go": {
                "type": "object",
                "properties": {"ok": {"type": "boolean"}, "value": {}, "message": {"type": "string"}},
                "required": ["ok"],
                "additionalProperties": False,
            },
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    },
    "outputSchema": {
        "type": "object",
        "properties": {
            "state": {"enum": ["call", "done", "failed"]},
            "tool": {"type": "string"},
            "arguments": {"type": "object"},
            "value": {},
            "message": {"type": "string"},
            "printed": {"type": "string", "maxLength": MOST_PRINTED},
        },
        "required": ["state", "printed"],
        "additionalProperties": False,
    },
}


class ToolError(Exception):
    """A tool was refused or failed; its message says why."""


class Run:
    """One run of some code."""

    def __init__(self, code: str, tools: dict[str, str]) -> None:
        self.asked: queue.Queue[dict[str, Any]] = queue.Queue()
        self.given: queue.Queue[dict[str, Any]] = queue.Queue()
        self.printed = io.StringIO()
        self.names: dict[str, Any] = {"tools": Tools(self, tools)}
        self.names |= {name: Tool(self, tool) for name, tool in tools.items()}
        threading.Thread(target=self.work, args=(code,), daemon=True).start()

    def work(self, code: str) -> None:
        """Run the code; its result is what it calls ``result``."""
        try:
            with contextlib.redirect_stdout(self.printed), contextlib.redirect_stderr(self.printed):
                exec(compile(code, "<code>", "exec"), self.names)  # noqa: S102 - what this sandbox is for
            value = self.names.get("result")
            json.dumps(value, allow_nan=False)
            self.asked.put({"state": "done", "value": value})
        except BaseException as error:  # noqa: BLE001 - whatever the code raised is its answer
            trace = traceback.extract_tb(error.__traceback__)
            frames = [f"line {one.lineno}" for one in trace if one.filename == "<code>"]
            text = f"{type(error).__name__}: {error}"[:MOST_TOLD]
            self.asked.put({"state": "failed", "message": f"{text} ({', '.join(frames[-3:])})" if frames else text})

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Ask for a tool and wait for what it gave."""
        self.asked.put({"state": "call", "tool": tool, "arguments": json.loads(json.dumps(arguments, allow_nan=False))})
        answer = self.given.get()
        if not answer.get("ok"):
            raise ToolError(str(answer.get("message", "the tool failed")))
        return answer.get("value")

    def step(self) -> dict[str, Any]:
        """Return what the code wants next."""
        said = self.asked.get()
        return {**said, "printed": self.printed.getvalue()[:MOST_PRINTED]}


class Tool:
    """Calls one tool with keyword arguments."""

    def __init__(self, run: Run, tool: str) -> None:
        self.run, self.tool = run, tool

    def __call__(self, **arguments: Any) -> Any:
        """Call it."""
        return self.run.call(self.tool, arguments)


class Tools:
    """The tools by their own names, which may be no names of Python."""

    def __init__(self, run: Run, tools: dict[str, str]) -> None:
        self.run, self.tools = run, tools

    def __getitem__(self, tool: str) -> Tool:
        """Return a tool."""
        if tool not in self.tools.values():
            raise ToolError(f"{tool!r} was not imported")
        return Tool(self.run, tool)


RUN: Run | None = None


def step(arguments: dict[str, Any]) -> dict[str, Any]:
    """Carry the run one step further; a process runs one piece of code."""
    global RUN  # noqa: PLW0603 - one process, one run
    if "begin" in arguments:
        if RUN is not None:
            return {"state": "failed", "message": "this sandbox has run its code", "printed": ""}
        RUN = Run(arguments["begin"]["code"], arguments["begin"]["tools"])
    elif RUN is None:
        return {"state": "failed", "message": "nothing runs", "printed": ""}
    else:
        RUN.given.put(arguments["go"])
    return RUN.step()


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; ``None`` for a method that there is not."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in VERSIONS else VERSIONS[0]
        info = {"name": "code-runner-mcp", "version": "1.0.0"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [STEP]}
    if method == "tools/call":
        value = step(params.get("arguments") or {})
        text = json.dumps(value, ensure_ascii=False)
        return {"content": [{"type": "text", "text": text}], "structuredContent": value, "isError": False}
    return {} if method == "ping" else None


def main() -> None:
    """Answer until EOF; the code has no way to these descriptors but through the operating system's own doors."""
    talk_in, talk_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    while line := talk_in.readline():
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        body = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        reply = {"jsonrpc": "2.0", "id": request["id"], **body}
        talk_out.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
        talk_out.flush()


if __name__ == "__main__":
    main()

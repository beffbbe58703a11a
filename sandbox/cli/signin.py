"""``run --clients FILE``: nobody is served, and nothing started, before a client has proved with its key who it is.

The exchange (:mod:`sandbox.serve.identity.proof`) takes place on the bare descriptors, one byte at a time: not a byte
of what follows is taken, so that the channel of the session finds all of it.
"""

from __future__ import annotations

import argparse
import os
import select
import time
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import orjson

from sandbox.cli import options
from sandbox.errors import Refused, UsageError
from sandbox.events import Recorder, Scope, Trace
from sandbox.serve.identity.proof import KEY, MAX_AUDIENCE, LocalClient, challenge, is_pin, proved
from sandbox.serve.identity.tokens import usable

MAX_LINE: Final = 1024
"""Bytes of a proof; one has about 200."""

TIMEOUT: Final = 30.0
"""Seconds in which the proof has to be there."""

IN, OUT = 0, 1
"""Standard input and output."""

REFUSED: Final = -31006
"""JSON-RPC code of an answer to a client that did not sign in; as over HTTP."""

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_AUDIENCE)]


class KeyConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``[[client]]``: whom the holder of a key calls for."""

    key: Text
    tenant: Text
    user: str = ""


class ClientsConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file of ``--clients``: the name that clients sign in to, and their keys."""

    audience: Text
    client: tuple[KeyConfig, ...] = ()


def load_clients(path: Path) -> tuple[str, dict[str, LocalClient]]:
    """Return the audience, and clients by key.

    Raises:
        UsageError: ``CLI-202``, the file is not valid; ``CLI-011``, it cannot be read.
    """
    try:
        config = msgspec.convert(tomllib.loads(options.read_file(path).decode("utf-8")), ClientsConfig)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _invalid(path, str(error)) from None
    found = {one.key: LocalClient(one.tenant, one.user) for one in config.client}
    if len(found) != len(config.client) or not found:
        raise _invalid(path, "it names no key, or one twice")
    if len(config.audience.encode()) > MAX_AUDIENCE or not config.audience.isprintable():
        raise _invalid(path, "`audience` is no plain name")
    for one in config.client:
        if not is_pin(one.key):
            raise _invalid(path, f"{one.key[:80]!r} is no public key (`{KEY}…`)")
        if not usable(one.tenant) or not (one.user == "" or usable(one.user)):
            raise _invalid(path, f"a client has no usable tenant or user: {one.tenant!r}")
    return config.audience, found


def _invalid(path: Path, why: str) -> UsageError:
    return UsageError("CLI-202", f"{path}: {why}", "see docs/serve.md, section Keys on stdio")


def sign_in(arguments: argparse.Namespace, recorder: Recorder) -> None:
    """Make tenant and user of a run those of the client that proves itself on stdin and stdout.

    Raises:
        Refused: ``GATE-075`` … ``GATE-077``; the client has been told, and it is recorded.
        UsageError: ``CLI-202``; also for a tenant or user on the command line, which would decide instead.
    """
    if arguments.tenant != "local" or arguments.user:
        raise _invalid(arguments.clients, "it says tenant and user, and so do `--tenant` or `--user`")
    audience, clients = load_clients(arguments.clients)
    asked, scope = challenge(audience), Scope(recorder, Trace.new())
    _write(OUT, asked.message())
    message: Any = None
    try:
        message = _parsed(_line(IN, time.monotonic() + TIMEOUT))
        key, client = proved(message, asked, clients)
    except Refused as error:
        scope.fact("client.refuse", reason=error.id, audience=audience)
        _write(OUT, _failure(message, error))
        raise
    scope.within(tenant=client.tenant).fact("client.sign_in", key=key, user=client.user, audience=audience)
    arguments.tenant, arguments.user, arguments.tenant_source = client.tenant, client.user, "key"


def _line(descriptor: int, until: float) -> bytes:
    """Return one line, without a byte beyond it."""
    line = bytearray()
    while len(line) < MAX_LINE:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
        byte = os.read(descriptor, 1) if ready else b""
        if not byte or byte == b"\n":
            break
        line += byte
    return bytes(line)


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


def _failure(message: Any, error: Refused) -> dict[str, Any]:
    """Return what a client is told: an answer to what it asked, if it asked something."""
    number = message.get("id") if isinstance(message, dict) else None
    said = {"code": REFUSED, "message": error.message, "data": {"id": error.id, "mend": error.mend}}
    return {"jsonrpc": "2.0", "id": number if isinstance(number, int | str) else None, "error": said}


def _write(descriptor: int, message: dict[str, Any]) -> None:
    data = orjson.dumps(message) + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]

"""Messages between holder and broker: one JSON object and its descriptors on a unix SEQPACKET socket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any, Final

from sandbox.launch.egress.inside.bounds import FDS_PER_MESSAGE, MAX_PASSED

SOCKET_PATH: Final = "/run/egress/broker.sock"
"""On the volume that holders and broker share and no server mounts."""

UID: Final = 65531
"""User of the broker, and of a holder after its set-up; never the server's (65532)."""


class PassingError(RuntimeError):
    """The other end sent something else than one whole message."""


def deafen(sock: socket.socket) -> None:
    """Make a listening socket refuse, in every process that has it; it can listen again later.

    Only a socket that listens: shutting down one that is merely bound would leave a mark that every connection of a
    later listen inherits, and each of them would look as if its peer had ended (inet_shutdown and tcp_disconnect of
    Linux).
    """
    with contextlib.suppress(OSError):
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            sock.shutdown(socket.SHUT_RD)


def send(sock: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    """Send one message with at most :data:`~.bounds.FDS_PER_MESSAGE` descriptors."""
    socket.send_fds(sock, [json.dumps(message, separators=(",", ":")).encode()], descriptors)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the next message and its descriptors, which the caller owns; an empty message is the end.

    Raises:
        PassingError: it was cut off or is no JSON object; its descriptors are closed.
        BlockingIOError: nothing is there yet.
    """
    data, descriptors, flags, _ = socket.recv_fds(sock, MAX_PASSED, FDS_PER_MESSAGE)
    if not data:
        return {}, descriptors
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a message that is cut off")  # noqa: TRY301 - one place closes the descriptors
        return dict(json.loads(data)), descriptors
    except (ValueError, TypeError) as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise PassingError(str(error)) from None

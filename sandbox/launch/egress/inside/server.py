"""Answers DNS inside a namespace: allowed names have a synthetic address, everything else does not exist.

Nothing is forwarded, ever: what a question says goes nowhere but into the record. Every address answers, so a
program with a resolver of its own choice meets the same policy.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from sandbox.launch.egress.inside import dns, passing, reasons
from sandbox.launch.egress.inside.bounds import ACCEPT_BATCH, BACKLOG, DNS_TCP_IDLE, MAX_DNS_MESSAGE, MAX_DNS_TCP
from sandbox.launch.egress.inside.names import NameTable

_IP_PKTINFO: Final = 8
_DATAGRAMS_PER_TURN: Final = 64
_ANCILLARY: Final = 256
_LOCALHOST: Final = {dns.A: "127.0.0.1", dns.AAAA: "::1"}

Event = dict[str, Any]


class NameServer:
    """The resolver of one namespace.

    Args:
        table: names and their addresses.
        told: takes each question, allowed or not.
        congested: whether evidence cannot be taken now; then SERVFAIL.
    """

    def __init__(self, table: NameTable, told: Callable[[Event], None], congested: Callable[[], bool]) -> None:
        self._table, self._told, self._congested = table, told, congested
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._ears: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def datagrams(self, sock: socket.socket) -> None:
        """Answer questions on a datagram socket, from the address that was asked."""
        self._sockets.append(sock)
        self._loop.add_reader(sock, self._datagram, sock)

    def streams(self, sock: socket.socket) -> None:
        """Answer questions on connections to a listening socket (RFC 7766)."""
        self._ears.append(sock)
        with contextlib.suppress(OSError):  # the server has taken the port meanwhile: then it asks nobody but itself
            sock.listen(BACKLOG)
            self._loop.add_reader(sock, self._accept, sock)

    def close(self) -> None:
        """Stop answering."""
        for sock in self._sockets + self._ears:
            self._loop.remove_reader(sock)
        for sock in self._ears:
            passing.deafen(sock)  # the holder has it too: closing alone would leave it open
        for sock in self._sockets + self._ears:
            sock.close()
        for task in self._tasks:
            task.cancel()

    def answer(self, data: bytes, transport: str) -> bytes:
        """Return the answer to one message, empty when it deserves none; tells what was asked.

        Steps:

        1. One well-formed question, or the error it deserves.
        2. ``localhost`` is this namespace (RFC 6761 §6.3).
        3. A host name that the table has: its address for A; no data for every other type.
        4. Everything else does not exist.
        """
        # 1
        try:
            question = dns.parse(data)
        except dns.BadQuestion as bad:
            self._tell(f"({bad})", "", transport, reasons.NAME)
            return bad.answer
        if question.edns:
            return dns.reply(question, dns.NOERROR)
        # 2
        if question.name == "localhost" or question.name.endswith(".localhost"):
            return dns.reply(question, dns.NOERROR, _LOCALHOST.get(question.type, ""))
        if self._congested():
            return dns.reply(question, dns.SERVFAIL)
        # 3
        try:
            address = self._table.address(question.name) if question.host else None
        except OverflowError:
            self._tell(question.name, question.type_name, transport, reasons.NAMES)
            return dns.reply(question, dns.SERVFAIL)
        if address is not None:
            self._tell(question.name, question.type_name, transport, "", address)
            return dns.reply(question, dns.NOERROR, address if question.type == dns.A else "")
        # 4
        self._tell(question.name, question.type_name, transport, reasons.NAME)
        return dns.reply(question, dns.NXDOMAIN)

    def _tell(self, name: str, kind: str, transport: str, reason: str, address: str = "") -> None:
        event = {"ev": "dns", "name": name, "type": kind, "transport": transport, "reason": reason, "address": address}
        self._told(event)

    def _datagram(self, sock: socket.socket) -> None:
        for _ in range(_DATAGRAMS_PER_TURN):
            try:
                data, ancillary, _, asker = sock.recvmsg(MAX_DNS_MESSAGE, _ANCILLARY)
            except OSError:
                return
            answer = self.answer(data, "udp")
            if answer:
                try:
                    sock.sendmsg([answer], _asked(ancillary), 0, asker)
                except OSError:
                    continue  # the asker has gone

    def _accept(self, ear: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                client, _ = ear.accept()
            except OSError:
                return
            if len(self._tasks) >= MAX_DNS_TCP:
                client.close()
                continue
            client.setblocking(False)
            task = self._loop.create_task(self._converse(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _converse(self, client: socket.socket) -> None:
        try:
            while True:
                async with asyncio.timeout(DNS_TCP_IDLE):
                    size = int.from_bytes(await self._exactly(client, 2))
                    answer = self.answer(await self._exactly(client, size), "tcp")
                    if not answer:
                        return
                    await self._loop.sock_sendall(client, len(answer).to_bytes(2) + answer)
        except (OSError, EOFError):
            pass  # the asker has gone, or is too slow
        finally:
            client.close()

    async def _exactly(self, client: socket.socket, size: int) -> bytes:
        if size > MAX_DNS_MESSAGE:
            raise EOFError
        data = b""
        while len(data) < size:
            piece = await self._loop.sock_recv(client, size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data


def _asked(ancillary: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data that makes an answer come from the address that was asked (ip(7), ipv6(7))."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
            return [(level, kind, struct.pack("=I", 0) + data[8:12] + b"\0\0\0\0")]
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            return [(level, kind, data[:16] + struct.pack("=I", 0))]
    return []

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import socket
import stat
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import PlatformError, SandboxError, ServerFault, UsageError
from sandbox.limits import MAX_WRITE_BUFFER, WRITE_HIGH_WATER
from sandbox.transport.attached import attach, connect
from sandbox.transport.descriptors import take
from sandbox.transport.lines import LineChannel
from sandbox.transport.stdio import open_pair
from sandbox.wire.errors import WireError
from sandbox.wire.jsonrpc import Message, Notification, Request, encode

pytestmark = pytest.mark.anyio

PING = Request(1, "ping", {})
BIG = Notification("big", {"x": "y" * 100_000})


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Run under both event loops: their transports differ in small things."""
    return "asyncio", {"use_uvloop": request.param}


class Receiver:
    """Keeps what a channel says, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.log: list[str] = []
        self.error: SandboxError | None = None
        self.changed = asyncio.Event()

    def message_received(self, message: Message) -> None:
        self.messages.append(message)
        self._note("message")

    def line_refused(self, error: WireError) -> None:
        self._note(error.id)

    def input_ended(self) -> None:
        self._note("eof")

    def channel_closed(self, error: SandboxError | None) -> None:
        self.error = error
        self._note("closed")

    def pressure_changed(self, full: bool) -> None:
        self._note("full" if full else "free")

    def _note(self, what: str) -> None:
        self.log.append(what)
        self.changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Return when something is true."""
        async with asyncio.timeout(10):
            while not done():
                self.changed.clear()
                await self.changed.wait()


async def pump(fd: int, size: int) -> bytes:
    """Read that many bytes of a descriptor without blocking the loop."""
    data = b""
    while len(data) < size:
        piece = await asyncio.to_thread(os.read, fd, 1 << 16)
        if not piece:
            break
        data += piece
    return data


async def filled(fd: int) -> None:
    """Write messages until the kernel takes no more, which shows that nobody reads."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(10_000):
            os.write(fd, encode(PING))
            await asyncio.sleep(0)
        raise AssertionError("somebody reads")


class Pipes:
    """Two pipes with a channel at one end."""

    def __init__(self) -> None:
        self.read_here, self.write_there = os.pipe()
        self.read_there, self.write_here = os.pipe()

    async def channel(self) -> LineChannel:
        """Return the channel."""
        channel = await open_pair(take(self.read_here, os.O_RDONLY), take(self.write_here, os.O_WRONLY))
        os.close(self.read_here)
        os.close(self.write_here)
        return channel


async def test_pipes_both_ways() -> None:
    """Messages pass, EOF is told, and closing ends the peer's input."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    os.write(pipes.write_there, encode(PING)[:10])
    os.write(pipes.write_there, encode(PING)[10:])
    await receiver.until(lambda: bool(receiver.messages))
    channel.send(PING)
    assert encode(PING) == await pump(pipes.read_there, len(encode(PING)))
    os.close(pipes.write_there)
    await receiver.until(lambda: "eof" in receiver.log)
    channel.send(BIG)
    channel.close()
    rest = await pump(pipes.read_there, 10**9)
    await channel.wait_closed()
    os.close(pipes.read_there)

    assert [PING] == receiver.messages
    assert ["message", "eof", "closed"] == receiver.log
    assert encode(BIG) == rest


async def test_what_came_before_the_start_is_not_lost() -> None:
    """Bytes and EOF that arrive before there is a receiver are handed over with it."""
    pipes, receiver = Pipes(), Receiver()
    os.write(pipes.write_there, encode(PING))
    os.close(pipes.write_there)
    channel = await pipes.channel()
    await asyncio.sleep(0.05)
    channel.start(receiver)
    await receiver.until(lambda: "eof" in receiver.log)
    channel.abort()
    await channel.wait_closed()
    os.close(pipes.read_there)

    assert ["message", "eof", "closed"] == receiver.log


async def test_a_torn_last_line() -> None:
    """A message without its line end is refused when the stream ends."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    os.write(pipes.write_there, encode(PING)[:-1])
    os.close(pipes.write_there)
    await receiver.until(lambda: "eof" in receiver.log)
    channel.abort()
    await channel.wait_closed()
    os.close(pipes.read_there)

    assert ["WIRE-002", "eof", "closed"] == receiver.log


async def test_a_client_that_is_gone() -> None:
    """Writing to a closed pipe ends the channel without an error: the client has left."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    os.close(pipes.read_there)
    channel.send(PING)
    await receiver.until(lambda: "closed" in receiver.log)
    channel.send(PING)
    os.close(pipes.write_there)

    assert receiver.error is None


async def test_backpressure_of_a_client() -> None:
    """A client that does not read is reported at the high-water mark and again when it has read."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    count = 0
    while "full" not in receiver.log:
        channel.send(BIG)
        count += 1
        await asyncio.sleep(0)
    assert count * len(encode(BIG)) < 3 * WRITE_HIGH_WATER
    read = await pump(pipes.read_there, count * len(encode(BIG)))
    await receiver.until(lambda: "free" in receiver.log)
    channel.close()
    await channel.wait_closed()
    os.close(pipes.read_there)
    os.close(pipes.write_there)

    assert encode(BIG) * count == read


@pytest.mark.claim("P-WIRE-10")
async def test_a_client_that_never_reads_is_dropped() -> None:
    """Beyond the last bound the channel ends with the client's fault."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    huge = Notification("huge", {"x": "y" * (8 << 20)})
    sent = 0
    while "closed" not in receiver.log:
        channel.send(huge)
        sent += 8 << 20
        await asyncio.sleep(0)
        assert sent <= 2 * MAX_WRITE_BUFFER
    os.close(pipes.read_there)
    os.close(pipes.write_there)

    assert isinstance(receiver.error, UsageError)
    assert "WIRE-042" == receiver.error.id


async def test_paused_reading_leaves_bytes_in_the_kernel() -> None:
    """While reading is paused a writer blocks; pauses nest."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    channel.pause_reading()
    channel.pause_reading()
    os.set_blocking(pipes.write_there, False)
    await filled(pipes.write_there)
    channel.resume_reading()
    await asyncio.sleep(0.05)
    assert [] == receiver.messages
    channel.resume_reading()
    await receiver.until(lambda: bool(receiver.messages))
    channel.abort()
    await channel.wait_closed()
    os.close(pipes.read_there)
    os.close(pipes.write_there)


async def test_regular_files(tmp_path: Path) -> None:
    """Stdin and stdout may be files, which no event loop can watch."""
    (tmp_path / "in").write_bytes(encode(PING) * 3 + encode(BIG))
    reading = os.open(tmp_path / "in", os.O_RDONLY)
    writing = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    receiver = Receiver()
    channel = await open_pair(take(reading, os.O_RDONLY), take(writing, os.O_WRONLY))
    channel.start(receiver)
    channel.pause_reading()
    channel.resume_reading()
    await receiver.until(lambda: "eof" in receiver.log)
    channel.send(PING)
    channel.close()
    await channel.wait_closed()
    os.close(reading)
    os.close(writing)

    assert [PING, PING, PING, BIG] == receiver.messages
    assert encode(PING) == (tmp_path / "out").read_bytes()


async def test_dev_null() -> None:
    """A stdin that is nothing is an immediate EOF."""
    null = os.open(os.devnull, os.O_RDWR)
    receiver = Receiver()
    channel = await open_pair(take(null, os.O_RDONLY), take(null, os.O_WRONLY))
    channel.start(receiver)
    await receiver.until(lambda: "eof" in receiver.log)
    channel.send(PING)
    channel.close()
    await channel.wait_closed()
    os.close(null)

    assert ["eof", "closed"] == receiver.log


async def test_a_terminal() -> None:
    """A person may type messages; the terminal is not left in non-blocking mode."""
    master, slave = pty.openpty()
    mode = termios.tcgetattr(slave)
    mode[3] &= ~(termios.ECHO | termios.ICANON)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    receiver = Receiver()
    channel = await open_pair(take(slave, os.O_RDONLY), take(slave, os.O_WRONLY))
    channel.start(receiver)
    os.write(master, encode(PING))
    await receiver.until(lambda: bool(receiver.messages))
    channel.send(PING)
    echoed = await pump(master, len(encode(PING)))
    assert os.get_blocking(slave)
    channel.abort()
    await channel.wait_closed()
    assert os.get_blocking(slave)
    os.close(slave)
    os.close(master)

    assert encode(PING) == echoed


async def test_a_socket_as_stdio() -> None:
    """Some clients use a socket pair; its blocking mode is restored at the end."""
    here, there = socket.socketpair()
    receiver = Receiver()
    channel = await open_pair(take(here.fileno(), os.O_RDONLY), take(here.fileno(), os.O_WRONLY))
    channel.start(receiver)
    there.sendall(encode(PING))
    await receiver.until(lambda: bool(receiver.messages))
    channel.send(PING)
    echoed = await pump(there.fileno(), len(encode(PING)))
    channel.abort()
    await channel.wait_closed()

    assert encode(PING) == echoed
    assert os.get_blocking(here.fileno())
    here.close()
    there.close()


def test_taken_descriptors_are_our_own() -> None:
    """The mode of a taken pipe does not show on the descriptor that others hold."""
    reading, writing = os.pipe()
    taken = take(reading, os.O_RDONLY)

    assert not os.get_blocking(taken.fd)
    assert os.get_blocking(reading)
    assert stat.S_ISFIFO(os.fstat(taken.fd).st_mode)
    for fd in (reading, writing, taken.fd):
        os.close(fd)


def frame(stream: int, payload: bytes) -> bytes:
    """Return one frame as the engine writes it."""
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4, "big") + payload


async def test_an_attached_server() -> None:
    """Frames are separated, stderr is kept apart, writes are plain, and our EOF half-closes."""
    here, there = socket.socketpair()
    there.setblocking(False)
    loop = asyncio.get_running_loop()
    receiver = Receiver()
    channel = await attach(here)
    channel.start(receiver)
    data = (
        frame(2, b"starting\n") + frame(1, encode(PING)[:7]) + frame(2, b"\x1b[31mwarn\n") + frame(1, encode(PING)[7:])
    )
    for at in range(len(data)):
        await loop.sock_sendall(there, data[at : at + 1])
    await receiver.until(lambda: bool(receiver.messages))
    channel.send(PING)
    sent = await loop.sock_recv(there, 1000)
    channel.finish()
    after = await loop.sock_recv(there, 1000)
    await loop.sock_sendall(there, frame(1, encode(PING)))
    await receiver.until(lambda: len(receiver.messages) == 2)
    there.close()
    await receiver.until(lambda: "eof" in receiver.log)
    channel.abort()
    await channel.wait_closed()

    assert (encode(PING), b"") == (sent, after)
    assert "starting\n\\u001b[31mwarn" == channel.stderr.text()
    assert ["message", "message", "eof", "closed"] == receiver.log


async def test_an_engine_that_speaks_something_else() -> None:
    """A broken frame is the platform's failure, never the server's."""
    here, there = socket.socketpair()
    receiver = Receiver()
    channel = await attach(here)
    channel.start(receiver)
    there.sendall(b"HTTP/1.1 500 oops")
    await receiver.until(lambda: "closed" in receiver.log)
    there.close()

    assert isinstance(receiver.error, PlatformError)
    assert "WIRE-030" == receiver.error.id


@pytest.mark.claim("P-WIRE-10")
async def test_a_server_that_never_reads() -> None:
    """Requests pile up to a bound, and then it is the server's fault."""
    here, there = socket.socketpair()
    receiver = Receiver()
    channel = await connect(here, "server")
    channel.start(receiver)
    while "closed" not in receiver.log:
        channel.send(Notification("huge", {"x": "y" * (8 << 20)}))
        await asyncio.sleep(0)
    there.close()

    assert "full" in receiver.log
    assert isinstance(receiver.error, ServerFault)
    assert "WIRE-042" == receiver.error.id


async def test_a_broken_connection_is_an_end() -> None:
    """A reset is an end like EOF, told once."""
    here, there = socket.socketpair()
    receiver = Receiver()
    channel = await attach(here)
    channel.start(receiver)
    there.close()
    await receiver.until(lambda: "eof" in receiver.log)
    channel.send(PING)
    await receiver.until(lambda: "closed" in receiver.log)
    channel.abort()
    channel.close()
    await channel.wait_closed()

    assert 1 == receiver.log.count("closed")
    assert receiver.error is None


async def test_starting_on_a_closed_channel() -> None:
    """A receiver that comes too late is told at once."""
    here, there = socket.socketpair()
    channel = await attach(here)
    channel.abort()
    await channel.wait_closed()
    receiver = Receiver()
    channel.start(receiver)
    there.close()

    assert ["closed"] == receiver.log


async def test_nothing_is_received_after_a_line_too_long() -> None:
    """After a fatal line the receiver hears nothing more of the stream."""
    here, there = socket.socketpair()
    receiver = Receiver()
    channel = await connect(here, "client")
    channel._decoder._max = 10
    channel.start(receiver)
    there.sendall(b"x" * 20 + b"\n" + encode(PING))
    await receiver.until(lambda: "WIRE-001" in receiver.log)
    there.sendall(encode(PING))
    await asyncio.sleep(0.02)
    channel.abort()
    await channel.wait_closed()
    there.close()

    assert ["WIRE-001", "closed"] == receiver.log


async def test_closing_waits_for_what_is_buffered() -> None:
    """A slow reader gets everything that was written before the close."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    for _ in range(20):
        channel.send(BIG)
    channel.close()
    closing = asyncio.ensure_future(channel.wait_closed())
    await asyncio.sleep(0.02)
    assert not closing.done()
    read = await pump(pipes.read_there, 20 * len(encode(BIG)))
    await closing
    os.close(pipes.read_there)
    os.close(pipes.write_there)

    assert encode(BIG) * 20 == read


async def test_many_messages_are_written_together() -> None:
    """What is sent in one turn of the event loop arrives whole and in order."""
    pipes, receiver = Pipes(), Receiver()
    channel = await pipes.channel()
    channel.start(receiver)
    sent = [Request(number, "ping", {}) for number in range(500)]
    for request in sent:
        channel.send(request)
    channel.close()
    read = await pump(pipes.read_there, 10**9)
    await channel.wait_closed()
    os.close(pipes.read_there)
    os.close(pipes.write_there)

    assert b"".join(encode(request) for request in sent) == read

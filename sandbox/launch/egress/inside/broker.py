"""The broker: serves the namespaces of one supervisor, each under its own policy.

It runs without capabilities on an ordinary network and listens on nothing but a unix socket on a volume that only
holders mount. The supervisor commands it over standard input; when that ends, the broker ends.

Commands (JSON lines; ``id`` is answered):

- ``attach``  ``id, holder, sandbox, rules, allowed, learning, names, quotas``: put a policy in force in a holder's
  namespace; a refusal with ``of: holder`` says that the holder did not come or has gone, and another one may do better
- ``detach``  ``id, sandbox``: end its connections, and its holder
- ``go``      ``sandbox, flow, recorded``: the supervisor's word on an intent
- ``status``  ``id``

Events: ``ready``, ``holder`` (one has said hello), ``answer``, ``lost`` (a holder in use has gone), ``dns``,
``connect``, ``flood``.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import resource
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from sandbox.launch.egress.inside import passing, reasons
from sandbox.launch.egress.inside.bounds import ATTACH_TIMEOUT, BACKLOG, FDS_PER_MESSAGE, MAX_LISTENERS, MAX_PAST
from sandbox.launch.egress.inside.control import Control
from sandbox.launch.egress.inside.guest import Guest, Policy, Socket
from sandbox.launch.egress.inside.resolver import Resolver


class HolderError(RuntimeError):
    """A holder has not said hello, or has gone."""


class Holder:
    """The broker's end of one holder.

    Attributes:
        token: what the supervisor calls it; empty until it has said hello.
        roster: its sockets.
    """

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.token = ""
        self.roster: list[Socket] = []
        self.listened: asyncio.Future[None] | None = None
        self._fresh: list[Socket] = []

    def receive(self) -> bool:
        """Take one message; return whether a hand-over is complete.

        Raises:
            EOFError: the holder has gone.
            passing.PassingError: it broke the protocol.
        """
        message, descriptors = passing.receive(self.link)
        if not message:
            raise EOFError
        self.token = self.token or str(message.get("holder", ""))
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        self._fresh += zip(message["sockets"], sockets, strict=True)
        return bool(message["last"])

    def taken(self) -> list[Socket]:
        """Return what was handed over since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def close(self) -> None:
        """Close everything this end has of it."""
        self.link.close()
        for _, sock in self.roster + self._fresh:
            sock.close()


class Broker:
    """All of it.

    Args:
        path: of the holders' socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._resolver = Resolver()
        self._holders: dict[str, Holder] = {}
        self._awaited: dict[str, asyncio.Future[Holder]] = {}
        self._past: collections.deque[str] = collections.deque(maxlen=MAX_PAST)
        self._guests: dict[str, tuple[Guest, Holder]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._control = Control(0, 1, self._command, self._over.set)

    async def run(self) -> None:
        """Serve until the supervisor's stream ends."""
        with _door(self._path) as door:
            self._loop.add_reader(door, self._arrive, door)
            self._control.send({"ev": "ready", "pid": os.getpid()})
            await self._over.wait()

    # --- holders ---
    def _arrive(self, door: socket.socket) -> None:
        link, _ = door.accept()
        link.setblocking(False)
        holder = Holder(link)
        self._loop.add_reader(link, self._heard, holder)

    def _heard(self, holder: Holder) -> None:
        try:
            complete = holder.receive()
        except BlockingIOError:
            return
        except (EOFError, OSError, KeyError, ValueError, passing.PassingError) as error:
            self._gone(holder, "" if isinstance(error, EOFError) else str(error))
            return
        if not complete:
            return
        if holder.listened is not None:
            if not holder.listened.done():
                holder.listened.set_result(None)
            return
        holder.roster = holder.taken()
        self._holders[holder.token] = holder
        waiting = self._awaited.pop(holder.token, None)
        if waiting is not None:
            waiting.set_result(holder)
        self._control.send({"ev": "holder", "holder": holder.token})

    def _gone(self, holder: Holder, why: str) -> None:
        """Close what a holder had; its namespace may live on, but without a way out."""
        self._loop.remove_reader(holder.link)
        if self._holders.pop(holder.token, None) is not None:
            self._past.append(holder.token)
        if holder.listened is not None and not holder.listened.done():
            holder.listened.set_exception(HolderError(f"it has gone while it bound its sockets {why}".rstrip()))
        for name, (guest, owner) in list(self._guests.items()):
            if owner is holder:
                self._start(self._lose(name, guest, {"ev": "lost", "sandbox": name, "detail": why}))
        holder.close()

    async def _lose(self, name: str, guest: Guest, event: dict[str, Any]) -> None:
        await self._end(name, guest)
        self._control.send(event)

    async def _end(self, name: str, guest: Guest) -> None:
        """Close a namespace and wait until its outcomes have been told."""
        self._guests.pop(name, None)
        await guest.close(reasons.DETACHED)
        self._resolver.forget(guest)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- commands ---
    def _command(self, message: dict[str, Any]) -> None:
        if message["op"] == "go":
            found = self._guests.get(message["sandbox"])
            if found is not None:
                found[0].answer(message["flow"], recorded=bool(message["recorded"]))
            return
        self._start(self._do(message))

    async def _do(self, message: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"ev": "answer", "id": message["id"], "ok": True}
        try:
            answer |= await {"attach": self._attach, "detach": self._detach, "status": self._status}[message["op"]](
                message
            )
        except HolderError as error:
            answer |= {"ok": False, "of": "holder", "error": str(error)[:300]}
        except (KeyError, ValueError, TypeError, OSError, RuntimeError) as error:  # TimeoutError included
            answer |= {"ok": False, "error": f"{type(error).__name__}: {error}"[:300]}
        self._control.send(answer)

    async def _attach(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put a policy in force.

        Steps:

        1. The holder has said hello.
        2. It binds what the policy allows and hands it over.
        3. Everything is served; only now is the command answered.

        Raises:
            HolderError: there is no such holder, or it did not do its part in time.
            ValueError: the command cannot be carried out with any holder.
        """
        policy = Policy.of(message)
        if message["sandbox"] in self._guests:
            raise ValueError("this sandbox is attached already")
        guest = Guest(message["sandbox"], policy, self._control, self._resolver)
        wanted = policy.listeners(guest.table)
        if len(wanted) > MAX_LISTENERS:
            raise ValueError(f"{len(wanted)} names and ports; {MAX_LISTENERS} is the bound")
        doing = "say hello"
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT):
                # 1
                holder = await self._holder(message["holder"])
                doing = "bind its sockets"
                # 2
                bound = await self._listen(holder, wanted)
        except OSError as error:  # TimeoutError included
            raise HolderError(f"it did not {doing}: {type(error).__name__}: {error}") from None
        # 3
        self._guests[message["sandbox"]] = (guest, holder)
        taken = guest.open(holder.roster)
        holder.roster = []
        missing = sorted(set(wanted) - bound | set(taken))
        return {"missing": [f"{address}:{port}" for address, port in missing]}

    async def _holder(self, token: str) -> Holder:
        if token not in self._holders:
            if token in self._past:
                raise HolderError("it has gone before it was needed")
            self._awaited[token] = self._loop.create_future()
            try:
                return await self._awaited[token]
            finally:
                self._awaited.pop(token, None)
        return self._holders[token]

    async def _listen(self, holder: Holder, wanted: list[tuple[str, int]]) -> set[tuple[str, int]]:
        """Have the holder bind what it has not bound yet; return everything that is bound."""
        bound = {(what[1], what[2]) for what, _ in holder.roster if what[0] == "listen"}
        asked = [pair for pair in wanted if pair not in bound]
        for at in range(0, len(asked), FDS_PER_MESSAGE):
            holder.listened = self._loop.create_future()
            passing.send(holder.link, {"listen": asked[at : at + FDS_PER_MESSAGE]}, [])
            await holder.listened
            holder.listened = None
            fresh = holder.taken()
            holder.roster += fresh
            bound |= {(what[1], what[2]) for what, _ in fresh}
        return bound

    async def _detach(self, message: dict[str, Any]) -> dict[str, Any]:
        found = self._guests.get(message["sandbox"])
        if found is None:
            return {}
        guest, holder = found
        await self._end(message["sandbox"], guest)
        self._loop.remove_reader(holder.link)
        self._holders.pop(holder.token, None)
        with contextlib.suppress(OSError):
            passing.send(holder.link, {"end": True}, [])
        holder.close()
        return {}

    async def _status(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        return {
            "descriptors": _descriptors(),
            "flows": {name: len(guest.flows) for name, (guest, _) in self._guests.items()},
            "holders": sorted(self._holders),
            "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }


def _door(path: str) -> socket.socket:
    """Return the socket that holders connect to, for this user only."""
    Path(path).unlink(missing_ok=True)
    os.umask(0o177)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(path)
    door.listen(BACKLOG)
    door.setblocking(False)
    return door


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def main() -> int:
    """Run the broker; return the exit status."""
    asyncio.run(_main())
    return 0


async def _main() -> None:
    await Broker(passing.SOCKET_PATH).run()

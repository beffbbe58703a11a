"""What servers ask the owners of running jobs: shown under keys that are used once, answered in any order.

The questions are those of the job's own call (:mod:`sandbox.serve.client_asking` has judged and recorded them), all of
a round together. A key is the number of the attempt, of the round, and the question's name, so that none comes twice in
the life of a job, also when its call is repeated after a crash (extension ``io.modelcontextprotocol/tasks``, Task
Update Requests). Questions are kept in memory: with the process the call ends that asked them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox.dialect.invoke import AskOwner
from sandbox.serve.client_model import CallInfo

Answers = dict[str, Mapping[str, Any]]


@dataclass(slots=True)
class Round:
    """Questions that came together: key → the question (``method``, ``params``), key → its name; what came back."""

    open: dict[str, Mapping[str, Any]]
    names: Mapping[str, str]
    done: asyncio.Future[None]
    answers: Answers = field(default_factory=dict)


class Board:
    """The questions of every running job."""

    def __init__(self) -> None:
        self._rounds: dict[str, Round] = {}
        self._changed: dict[str, float] = {}
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def asker(self, job: str, attempt: int) -> AskOwner:
        """Return what puts the questions of one attempt."""
        rounds = 0

        async def ask(requests: Mapping[str, Any], call: CallInfo | None) -> Answers | None:
            nonlocal rounds
            rounds += 1
            names = {f"{attempt}.{rounds}.{name}": name for name in requests}
            shown = {key: requests[name] for key, name in names.items()}
            return await self._asked(job, Round(shown, names, _future()), call)

        return ask

    async def _asked(self, job: str, one: Round, call: CallInfo | None) -> Answers | None:
        """Return every answer; ``None`` when the call has ended before."""
        self._rounds[job] = one
        self._tell(job)
        try:
            task = call.task if call is not None else None
            await asyncio.wait([one.done, *([task] if task is not None else [])], return_when=asyncio.FIRST_COMPLETED)
            return one.answers if one.done.done() else None
        finally:
            one.done.cancel()
            del self._rounds[job]
            if job in self._changed:  # it has not ended meanwhile
                self._tell(job)

    def questions(self, job: str) -> Mapping[str, Mapping[str, Any]]:
        """Return what is open, by key; empty when nothing is."""
        found = self._rounds.get(job)
        return dict(found.open) if found is not None else {}

    def answer(self, job: str, responses: Mapping[str, Any]) -> None:
        """Take answers to what is open; what belongs to no open key, or is no object, is not looked at."""
        found = self._rounds.get(job)
        if found is None:
            return
        for key in [key for key, one in responses.items() if key in found.open and isinstance(one, Mapping)]:
            found.answers[found.names[key]] = responses[key]
            del found.open[key]
        if found.open:
            self._tell(job)
        elif not found.done.done():
            found.done.set_result(None)

    def changed(self, job: str) -> float:
        """Return when questions of a job last came or were answered, seconds of the wall clock; 0 for never."""
        return self._changed.get(job, 0.0)

    def change(self, job: str) -> asyncio.Future[None]:
        """Return what is done with the next change of a job's questions, or with the job."""
        told = _future()
        self._waiting.setdefault(job, set()).add(told)
        return told

    def leave(self, job: str, told: asyncio.Future[None]) -> None:
        """Wait for it no more."""
        told.cancel()
        waiting = self._waiting.get(job, set())
        waiting.discard(told)
        if not waiting:
            self._waiting.pop(job, None)

    def forget(self, job: str) -> None:
        """Forget a job that has ended, and wake who waits for that."""
        self._tell(job)
        del self._changed[job]

    def _tell(self, job: str) -> None:
        self._changed[job] = time.time()
        for told in self._waiting.get(job, ()):
            if not told.done():
                told.set_result(None)


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()

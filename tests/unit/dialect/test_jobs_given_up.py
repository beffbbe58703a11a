"""Jobs whose client goes away or gives up in the middle: nothing is forgotten, nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.dialect.bounds import MAX_OPEN_CALLS, JobBounds
from sandbox.dialect.handshake import Offer
from sandbox.dialect.invoke import Outcome, message_of
from sandbox.dialect.jobs.desk import Jobs
from sandbox.dialect.jobs.model import Asked, Job
from sandbox.dialect.model import Limits, ToolRequest
from sandbox.dialect.service import Place, Service
from sandbox.dialect.talk import Say, Talk
from sandbox.dialect.versions import CAPABILITIES
from sandbox.serve.identity.model import anonymous
from tests.dialect_lab import OPEN, DialectLab, dialect_lab, invocation, shake, until

pytestmark = pytest.mark.anyio


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep the file of jobs busy, so that every change of it waits."""
    other = sqlite3.connect(folder / "jobs.sqlite", isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


def jobs_of(lab: DialectLab) -> Jobs:
    """Return the jobs of a gateway."""
    desk: Any = lab.stage.app.sessions.tasks
    found: Jobs = desk(anonymous(), door_of(lab)).jobs
    return found


def door_of(lab: DialectLab) -> Any:
    """Return the open endpoint's door."""
    return next(one for one in lab.stage.app.doors if one.name == "open")


def talking(lab: DialectLab, jobs: Jobs, say: Say) -> Talk:
    """Return a conversation with the open endpoint."""
    gateway, door = lab.stage.app.gateway, door_of(lab)
    offer = Offer(
        "com.example/open", CAPABILITIES, Limits(calls_per_second=1.0, calls_at_once=1, jobs=1, message_bytes=1)
    )
    return Talk(Place(door, OPEN, offer), anonymous(), Service(gateway.quotas, jobs, gateway.scope), "ws", say)


def asked(**arguments: Any) -> Asked:
    """Return a call of the open endpoint's tool."""
    request = ToolRequest(request_id=uuid.uuid4(), tool_id="tool", arguments=arguments, mode="async")
    message = message_of(request)
    return Asked("dialect", str(request.request_id), "/mcp/open", "tool", anonymous(), message.params, "d", 60.0)


async def test_a_job_whose_client_goes_away_while_it_is_taken_runs(tmp_path: Path) -> None:
    """A job that reached the disk is run, though nobody waited for its handle; the repeated request finds it."""
    async with dialect_lab(tmp_path) as lab:
        jobs, wanted = jobs_of(lab), asked(a=7)
        with held(tmp_path):
            taking = asyncio.create_task(jobs.take(wanted))
            await until(lambda: bool(lab.stage.recorder.named("job.accept")))
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        again = await jobs.take(wanted)
        await until(lambda: bool(lab.stage.server.calls))
        said = await lab.ended(again.id)

    assert ([{"a": 7}], "success") == (lab.stage.server.calls, said["status"])


async def test_a_job_whose_client_goes_away_while_it_is_cancelled_is_cancelled_at_its_server(tmp_path: Path) -> None:
    """A job that is cancelled on disk does not go on at the server, whoever waited for that."""
    async with dialect_lab(tmp_path) as lab:
        lab.stage.server.slow = 300.0
        jobs = jobs_of(lab)
        door_of(lab).call_timeout = 300.0  # what ends the call is not its own deadline
        job = await jobs.take(asked(slow=True))
        await until(lambda: bool(lab.stage.server.calls))
        with held(tmp_path):
            cancelling = asyncio.create_task(jobs.cancel(job.id, job.identity, job.door))
            await until(lambda: bool(lab.stage.recorder.named("job.cancel")))
            cancelling.cancel()
            await asyncio.gather(cancelling, return_exceptions=True)
        await until(lambda: bool(lab.stage.server.cancelled))
        said = await lab.ended(job.id)

    assert "DIA-016" == said["error"]["id"]


async def test_a_request_that_is_cancelled_while_it_becomes_a_job_leaves_no_job_that_runs(tmp_path: Path) -> None:
    """Who cancels before the handle is there is told of a cancelled job, and nothing of it goes on."""
    said: list[Any] = []

    async def say(message: Any) -> None:
        said.append(message)

    async with dialect_lab(tmp_path) as lab:
        lab.stage.server.slow = 30.0
        talk = talking(lab, jobs_of(lab), say)
        await talk.take(json.dumps(shake("ws", capabilities=["async"])).encode())
        request = invocation(mode="async", slow=True)
        with held(tmp_path):
            await talk.take(json.dumps(request).encode())
            await until(lambda: bool(lab.stage.recorder.named("job.accept")))
            cancelling = asyncio.create_task(talk.take(json.dumps({"cancel": request["request_id"]}).encode()))
            for _ in range(50):  # the loop's turns, not time: the message is read before the file is free
                await asyncio.sleep(0)
        await cancelling
        handle = said[1].get("job_id")
        after = await lab.ended(str(handle))
        await talk.close()

    assert ["in_progress", "error"] == [one["status"] for one in said[1:]]
    assert "DIA-016" == said[2]["error"]["id"] == after["error"]["id"]
    assert handle == said[2]["job_id"]


async def test_a_client_that_reads_nothing_is_not_prepared_files_without_end(tmp_path: Path) -> None:
    """Attack: imports without number on a connection that is not read; a few wait, the others are refused."""
    said: list[Any] = []
    read = asyncio.Event()

    async def say(message: Any) -> None:
        if "file" in message:
            await read.wait()
        said.append(message)

    async with dialect_lab(tmp_path) as lab:
        talk = talking(lab, jobs_of(lab), say)
        await talk.take(json.dumps(shake("ws")).encode())
        for _ in range(3 * MAX_OPEN_CALLS):
            await talk.take(json.dumps({"import": "tools/tool.json"}).encode())
        waiting = len(talk._others)
        refused = [one["error"]["id"] for one in said[1:]]
        read.set()
        await until(lambda: sum("file" in one for one in said) == MAX_OPEN_CALLS)
        await talk.close()

    assert (MAX_OPEN_CALLS, ["DIA-020"] * (2 * MAX_OPEN_CALLS)) == (waiting, refused)


async def test_a_cancelled_job_is_not_kept_waiting_for_its_turn(tmp_path: Path) -> None:
    """Jobs that are cancelled before their turn leave memory at once, however long the ones before them take."""
    async with dialect_lab(tmp_path, jobs=JobBounds(running=1)) as lab:
        lab.stage.server.slow = 30.0
        jobs = jobs_of(lab)
        await jobs.take(asked(slow=True))
        others = [await jobs.take(asked(number=number)) for number in range(5)]
        for one in others[1:]:
            await jobs.cancel(one.id, one.identity, one.door)
        left = [one.id for queue in jobs._waiting.values() for one in queue]

    assert [others[0].id] == left


async def test_a_call_that_ends_while_it_becomes_a_job_leaves_none_that_runs(tmp_path: Path) -> None:
    """Attack: a client goes away right then, again and again; no job stays that nobody carries and nobody can end."""
    async with dialect_lab(tmp_path) as lab:
        jobs = jobs_of(lab)

        async def goes_on(_job: Job) -> Outcome:
            return Outcome(result={"content": []})

        with held(tmp_path):
            adopting = asyncio.create_task(jobs.adopt(replace(asked(), going=False), goes_on))
            await until(lambda: bool(lab.stage.recorder.named("job.accept")))
            adopting.cancel()
            await asyncio.gather(adopting, return_exceptions=True)
        await until(lambda: states(tmp_path) == ["cancelled"])
        done = await jobs.adopt(replace(asked(), going=False), goes_on)
        said = await lab.ended(done.id)

    assert "success" == said["status"]


def states(folder: Path) -> list[str]:
    """Return the states of all jobs on disk."""
    with contextlib.closing(sqlite3.connect(folder / "jobs.sqlite")) as db:
        return [str(row[0]) for row in db.execute("SELECT state FROM jobs ORDER BY number")]

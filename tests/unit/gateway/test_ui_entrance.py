"""Ways into the operator's page that are no request: times, files, cookies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox.cli.gateway.operating import token_of
from sandbox.errors import UsageError
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.identity.keeper import Gatekeeper
from sandbox.serve.ui.entrance import IDLE_SECONDS, LINK_SECONDS, MAX_SESSIONS, SESSION_SECONDS, Entrance, digest_of

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def entrance(clock: Clock, *, secure: bool = False) -> Entrance:
    """Return an entrance without issuers."""
    return Entrance(lambda: Gatekeeper("http://127.0.0.1:1", unsafe_tenant="me"), clock, secure, 8080, digest_of("t"))


async def inside(door: Entrance, session: str, *, acting: bool = True) -> bool:
    """Return whether a session opens."""
    try:
        await door.admit({"cookie": f"{door.cookie}={session}"}, acting=acting)
    except HttpRefused:
        return False
    return True


async def test_links_and_sessions_end_by_themselves() -> None:
    """A link after a quarter of an hour, a session that nobody uses after one, any after a day's work."""
    clock = Clock()
    door = entrance(clock)
    link = door.link()
    clock.at += LINK_SECONDS
    late = door.knows(link)
    session, _ = door.sign_in("token-file")
    clock.at += IDLE_SECONDS / 2
    renewed = await inside(door, session, acting=False)
    clock.at += IDLE_SECONDS / 2 + 1
    idle = await inside(door, session)
    second, _ = door.sign_in("token-file")
    used = []
    for _ in range(int(SESSION_SECONDS / IDLE_SECONDS * 2) + 1):
        used.append(await inside(door, second))
        clock.at += IDLE_SECONDS / 2

    assert ("", True, False) == (late, renewed, idle)
    assert (True, False) == (used[0], await inside(door, second))


async def test_a_new_link_ends_the_one_before_and_sessions_are_few() -> None:
    """There is one link at a time and a bounded number of sessions; the oldest makes room."""
    door = entrance(Clock())
    first, second = door.link(), door.link()
    assert ("", "link", "") == (door.knows(first), door.knows(second), door.knows(""))
    sessions = [door.sign_in("token-file")[0] for _ in range(MAX_SESSIONS + 1)]
    assert [False, True] == [await inside(door, sessions[0]), await inside(door, sessions[-1])]
    assert MAX_SESSIONS + 1 == len(set(sessions))


async def test_with_tls_the_cookie_belongs_to_this_host_alone() -> None:
    """Its name and attributes are those that browsers take from no other host and never send in the clear."""
    door = entrance(Clock(), secure=True)
    field = door.cookie_field("x")
    assert field.startswith("__Host-mcp-sandbox-ui=x; Path=/; Secure; HttpOnly; SameSite=Strict")


@pytest.mark.parametrize("kind", ["open", "link", "folder", "short", "lines", "fifo"])
async def test_a_token_file_that_others_may_use_is_refused(kind: str, tmp_path: Path) -> None:
    """Readable by others, a link, no file, too short or with more lines: the gateway does not start with it."""
    path, good = tmp_path / "token", "x" * 40
    path.touch(0o600)
    if kind == "open":
        path.write_text(good)
        path.chmod(0o644)
    elif kind == "link":
        path.write_text(good)
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    elif kind == "folder":
        path = tmp_path
    elif kind == "fifo":
        path.unlink()
        os.mkfifo(path, 0o600)
    else:
        path.write_text("short" if kind == "short" else f"{good}\n{good}")
    with pytest.raises(UsageError) as caught:
        token_of(path)
    assert caught.value.id == ("CLI-206" if kind in ("short", "lines") else "CLI-205")


async def test_a_token_file_is_made_when_there_is_none(tmp_path: Path) -> None:
    """It holds 256 random bits, only its owner reads it, and it is the same at the next start."""
    path = tmp_path / "token"
    first, second = token_of(path), token_of(path)
    assert (first, 0o600) == (second, path.stat().st_mode & 0o777)
    assert digest_of(path.read_text().strip()) == first
    assert len(path.read_text().strip()) >= 43
    assert "" == token_of(None)

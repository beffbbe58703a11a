"""Wires the operator's page: what it shows of the gateway, who may see it, and how somebody gets in from a terminal."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import secrets
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from sandbox import __version__
from sandbox.cli.gateway.state import state_of
from sandbox.cli.report import say
from sandbox.errors import UsageError
from sandbox.events import Recorder, Scope
from sandbox.serve.client_model import Handler
from sandbox.serve.http.fields import places_of
from sandbox.serve.http.refusals import HttpRefused
from sandbox.serve.ui.app import Page
from sandbox.serve.ui.calls import Calls, Followed
from sandbox.serve.ui.entrance import PATH, SECRET_BYTES, Entrance, digest_of
from sandbox.serve.ui.model import ChangeRow, State
from sandbox.serve.ui.seen import Seen
from sandbox.supervisor.desk import Desk, Offer

if TYPE_CHECKING:
    from sandbox.cli.gateway.building import Parts
    from sandbox.serve.http.app import App

MIN_TOKEN: Final = 32
"""Characters of the token in a file: one that nobody guesses."""

MAX_TOKEN: Final = 512


@dataclass(slots=True)
class Watch:
    """What the page follows from the start.

    Attributes:
        seen: records for everybody.
        link: print a sign-in link.
        token: digest of the token in the operator's file, empty without one.
    """

    seen: Seen
    link: bool = False
    token: str = ""
    calls: Calls = field(default_factory=Calls)
    desk: Desk = field(default_factory=Desk)

    def following(self, handler: Handler, driver: str) -> Handler:
        """Return a handler whose calls are seen."""
        return Followed(handler, self.calls, driver)


def watch_of(arguments: argparse.Namespace, recorder: Recorder) -> Watch:
    """Return what the page follows; recording goes through it.

    Raises:
        UsageError: ``CLI-205``, ``CLI-206``, the token file cannot be used.
    """
    seen = Seen(recorder)
    found = Watch(seen, link=arguments.ui_link, token=token_of(arguments.ui_token_file))
    seen.on_denied = found.calls.denied
    return found


def token_of(path: Path | None) -> str:
    """Return the digest of the token in a file, which is made when it is not there; empty without a file.

    Raises:
        UsageError: ``CLI-205`` others can read or replace it, or it cannot be read; ``CLI-206`` it holds no token.
    """
    if path is None:
        return ""
    try:
        if not path.exists():
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "w") as file:
                file.write(secrets.token_urlsafe(SECRET_BYTES) + "\n")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            about = os.fstat(opened.fileno())
            text = opened.read(MAX_TOKEN + 1)
    except OSError as error:
        raise _unusable(path, error.strerror or type(error).__name__) from None
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise _unusable(path, "it is not a file that only its owner, who starts this, can use")
    token = text.strip()
    if not MIN_TOKEN <= len(token) <= MAX_TOKEN or not token.isascii() or b"\n" in token:
        problem = f"{path} holds no token of {MIN_TOKEN} or more characters in one line"
        raise UsageError("CLI-206", problem, "delete the file: a token is made when there is none")
    return digest_of(token.decode("ascii"))


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError("CLI-205", f"{path}: {why}", f"run `chmod 600 {path}`, or name another file")


class Operating:
    """The state of a gateway, for the page: :class:`sandbox.serve.ui.model.Source`."""

    def __init__(self, parts: Parts, watch: Watch, app: App) -> None:
        self.seen = watch.seen
        self.calls = watch.calls
        self.scope: Scope = parts.scope
        self.about = {"url": parts.public_url, "version": __version__}
        self._desk = watch.desk
        self._state = functools.partial(state_of, parts, watch, app)
        self._told: dict[str, list[str]] = {}

    def state(self) -> State:
        """Return everything as it is now."""
        return self._state()

    async def told(self, driver: str, digest: str, base: str) -> tuple[ChangeRow, list[str]] | None:
        """Return one change and what a person has to read of it, without known secrets."""
        offer = self._pending(driver, digest, base)
        if offer is None:
            return None
        key = f"{driver}\0{digest}\0{base}"
        if key not in self._told:
            self._told = {key: await asyncio.to_thread(self._read, offer)}  # one is read at a time
        return change_row(offer), self._told[key]

    async def approve(self, driver: str, digest: str, base: str, by: str) -> Any:
        """Approve exactly that."""
        return await self._desk.approve(driver, digest, base, self.scope, by=by)

    def _read(self, offer: Offer) -> list[str]:
        """Return what a person has to read: known secrets leave it, and nothing else."""
        return [self.seen.text(line, MAX_LINE + 8 * len(line)) for line in offer.told()]

    def _pending(self, driver: str, digest: str, base: str) -> Offer | None:
        offers = self._desk.pending()
        return next((one for one in offers if (one.spec.id, one.digest, one.base) == (driver, digest, base)), None)


MAX_LINE: Final = 2000
"""Characters that may stand for secrets of a line, which are shorter than what stands for them."""


def change_row(offer: Offer) -> ChangeRow:
    """Return what the page says of an offer."""
    waiting = sum(change.waits for change in offer.changes)
    held = dict(offer.held)
    return ChangeRow(
        offer.spec.id, offer.digest, offer.base, offer.first, offer.spec.file, offer.tenants, held, waiting, offer.seen
    )


def with_page(pages: ASGIApp, parts: Parts, watch: Watch, app: App) -> ASGIApp:
    """Return the pages with the operator's in front, where there is a way in; without one nothing says that it exists.

    Args:
        pages: answer everything else.
        parts: of the gateway.
        watch: from the start.
        app: of the gateway.
    """
    keeper = app.gateway.keeper
    if not (watch.link or watch.token or keeper.verifier is not None or keeper.clients):
        return pages
    secure = parts.public_url.startswith("https://")
    entrance = Entrance(lambda: app.gateway.keeper, time.monotonic, secure, parts.listen[1], watch.token)
    own = places_of(parts.listen, parts.public_url).origins
    page = Page(Operating(parts, watch, app), entrance, own, functools.partial(_note, app))
    if watch.link:
        say(f"mcp-sandbox: the operator's page, once and within 15 minutes: {_address(parts)}{_code(entrance.link)}")
    elif watch.token:
        say(f"mcp-sandbox: the operator's page: {_address(parts)}, with the token of the file")

    async def answer(scope: AsgiScope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        await (page if path == PATH or path.startswith(f"{PATH}/") else pages)(scope, receive, send)

    return answer


def _note(app: App, error: HttpRefused, *, path: str, method: str, peer: str) -> None:
    app.refusals.note(error, time.monotonic(), path=path, method=method, peer=peer)


def _address(parts: Parts) -> str:
    return f"{parts.public_url}{PATH}"


def _code(link: Callable[[], str]) -> str:
    return f"/sign-in?code={link()}"

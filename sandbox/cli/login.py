"""Log in to a remote server that wants OAuth (`server.auth: {type: oauth2}`), so that `run` can use it.

Prints an address on stderr; open it in a browser on this machine, log in, and it comes back to 127.0.0.1. Nothing is
opened by itself unless `--open` asks for it. The login holds for this driver as its files are now, this server and one
tenant. `--status` says what there is; `mcp-sandbox logout` ends it.

Exit status 3 when `--status` finds no login.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import TYPE_CHECKING, Final

from sandbox.cli import options
from sandbox.cli.bench import Bench, bench, keep_out, run_async
from sandbox.cli.evidence import trail
from sandbox.cli.progress import person
from sandbox.cli.report import line_of, say
from sandbox.cli.run import until_signalled
from sandbox.errors import PlanRefused, UsageError
from sandbox.events import Recorder
from sandbox.limits import LOGIN_TIMEOUT

if TYPE_CHECKING:
    from sandbox.plan.model import OAuthPlan
    from sandbox.transport.remote.oauth.asking import Asking
    from sandbox.transport.remote.oauth.store import Binding, Login, Store

MAX_PORT: Final = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_login_of(parser)
    parser.add_argument("--status", action="store_true", help="say whether there is a login, and nothing else")
    parser.add_argument("--open", action="store_true", help="open the address in the browser of this desktop")
    parser.add_argument(
        "--scope", action="append", default=[], metavar="SCOPE", help="confirm a scope of a driver that declares none"
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="come back to this port of 127.0.0.1 (default: a free one)"
    )


def add_login_of(parser: argparse.ArgumentParser) -> None:
    """Declare whose login it is."""
    options.add_driver(parser)
    options.add_plan_options(parser)
    options.add_audit_options(parser)
    parser.add_argument("--tenant", type=options.tenant, default="local", help="tenant that the login is for")


def execute(arguments: argparse.Namespace) -> int:
    """Log in, or say whether somebody has."""
    if not 0 <= arguments.port <= MAX_PORT:
        raise UsageError("CLI-241", f"--port {arguments.port} is no port", "write 0 to 65535")
    with trail(arguments) as recorder:
        return run_async(functools.partial(until_signalled, functools.partial(_login, arguments, recorder)))


async def _login(arguments: argparse.Namespace, recorder: Recorder) -> int:
    async with bench(arguments, recorder, person()) as ready:
        auth, asking, store, binding = parts_of(ready, recorder)
        if arguments.status:
            return _status(store.read(binding), auth)
        from sandbox.transport.remote.oauth.login import Choices, log_in  # only here

        show = functools.partial(_show, opening=arguments.open)
        choices = Choices(show, tuple(dict.fromkeys(arguments.scope)), arguments.port)
        login = await log_in(asking, auth, ready.secrets, store, binding, choices)
    for line in _lines(login):
        print(line_of(line))
    return 0


def parts_of(ready: Bench, recorder: Recorder) -> tuple[OAuthPlan, Asking, Store, Binding]:
    """Return what a login works with.

    Raises:
        UsageError: ``CLI-240``, the driver's server is one that nobody logs in to.
    """
    from sandbox.transport.remote.oauth.asking import Asking  # few commands log in
    from sandbox.transport.remote.oauth.store import Binding, Store
    from sandbox.transport.remote.opening import dialer_of

    auth = ready.plan.auth
    if auth is None or auth.grant != "authorization_code":
        why = "gets its tokens with a client's id and secret" if auth else "has no server.auth of the type oauth2"
        raise UsageError("CLI-240", f"nobody logs in to {ready.spec.id}: it {why}", "just run it")
    known = getattr(recorder, "add_secrets", keep_out)
    asking = Asking(dialer_of(ready.plan, ready.scope), ready.scope, known)
    return auth, asking, Store(options.STATE / "logins"), Binding.of(ready.plan, ready.scope.tenant)


def _show(address: str, *, opening: bool) -> None:
    say(
        "Open this address in a browser on this machine, and see that it is where you want to log in:",
        "",
        f"  {address}",  # printable ASCII: an https address that was checked, and what is percent-encoded
        "",
        f"Waiting {LOGIN_TIMEOUT / 60:g} minutes for you to come back …",
    )
    if opening:
        import webbrowser  # only when asked for: whoever sees the processes of this host sees the address

        webbrowser.open(address)


def _status(login: Login | None, auth: OAuthPlan) -> int:
    if login is None:
        issuer = f" at {auth.issuer}" if auth.issuer else ""
        print(f"not logged in{issuer}: run `mcp-sandbox login`")
        return PlanRefused.exit_code
    for line in _lines(login):
        print(line_of(line))
    return 0


def _lines(login: Login) -> list[str]:
    """Return what a person may know of a login; no token is in it."""
    until = "the server says no"
    if login.tokens.expires_at:
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(login.tokens.expires_at))
    renewed = ", and is then renewed" if login.tokens.refresh else ""
    return [
        f"logged in at {login.issuer}",
        f"scopes: {' '.join(login.tokens.scopes) or 'those that the issuer gives by itself'}",
        f"the token holds until {until}{renewed}",
    ]

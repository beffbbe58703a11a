"""The registry of the dialect at a gateway, ``registry/`` below each base with one store for all; and publishing."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from sandbox.cli.report import line_of, say
from sandbox.dialect.links import HttpLink
from sandbox.dialect.refusals import DialectRefused
from sandbox.dialect.registrar import TIMEOUT, Registrar, address
from sandbox.dialect.registrations import Entry, Registrations, Registry
from sandbox.dialect.routes import body_of
from sandbox.dialect.shared_registrations import SharedRegistrations
from sandbox.dialect.site import ROOT, Answer, Ask, Site, json_answer, only
from sandbox.errors import UsageError
from sandbox.serve.http.app import App, Gateway
from sandbox.serve.http.doors import Door, DriverDoor
from sandbox.serve.shared.team import GATEWAYS

TOKEN: Final = "MCP_SANDBOX_REGISTER_TOKEN"  # noqa: S105 - name of the variable
"""Variable of the environment with the bearer token for ``--register``."""

Able = Callable[[Door], tuple[str, ...]]
"""Gives the capabilities of a door."""


def add_registry(site: Site, registrations: Registry | None = None) -> Registry:
    """Let a site keep registrations (``registry/``): in the store that gateways share, else in memory."""
    kept = _registrations(site.app.gateway) if registrations is None else registrations

    async def registry(ask: Ask) -> Answer:
        name, identity = ask.rest.partition("/")[2], ask.arrival.identity
        if not name:
            only(ask, "GET", "POST")
            if ask.method == "GET":
                return json_answer({"servers": await kept.listed(identity)})
            return json_answer(await kept.register(await body_of(ask, Entry), identity))
        only(ask, "GET", "PUT", "DELETE")
        if ask.method == "GET":
            return json_answer(await kept.find(name, identity))
        if ask.method == "DELETE":
            await kept.remove(name, identity)
            return json_answer({"removed": name})
        entry = await body_of(ask, Entry)
        if entry.server_id != name:
            raise DialectRefused("DIA-071", "address and `server_id` differ", "write the same name in both")
        return json_answer(await kept.register(entry, identity))

    site.routes["registry"] = registry
    return kept


def _registrations(gateway: Gateway) -> Registry:
    if gateway.together is None:
        return Registrations(gateway.scope, time.monotonic)
    return SharedRegistrations(gateway.scope, gateway.together.team.store)


async def _is_last(gateway: Gateway) -> bool:
    """Return whether no other gateway that shares this one's state goes on.

    Raises:
        StateUnavailable: nobody can say.
    """
    if gateway.together is None:
        return True
    team = gateway.together.team
    return all(one.name == team.id for one in await team.store.all("gateway", GATEWAYS))


def own_entries(app: App, namespace: str, url: str, capabilities: Able) -> tuple[Entry, ...]:
    """Return a gateway's public servers as registrations: those that strangers are told of.

    Args:
        app: the gateway.
        namespace: before the ids of its servers.
        url: under which clients reach it.
        capabilities: gives those of a door.
    """
    doors = [one for one in app.doors if isinstance(one, DriverDoor) and one.access.visibility == "public"]
    return tuple(
        Entry(
            server_id=f"{namespace}/{door.name}",
            version=str(door.info["version"]),
            endpoint=f"{url}{door.path}{ROOT}",
            tools=tuple(sorted(door.tools)),
            auth="none" if door.access.anonymous else "bearer",
            capabilities=tuple(capabilities(door)),
            visibility="public",
        )
        for door in doors
    )


@contextlib.asynccontextmanager
async def publishing(
    arguments: argparse.Namespace, app: App, namespace: str, url: str, capabilities: Able
) -> AsyncIterator[None]:
    """Publish a gateway's public servers at another registry (``--register``) while this lasts.

    Raises:
        UsageError: ``DIA-075``, the address or the token will not do.
    """
    if not arguments.register:
        yield
        return
    where, token = address(arguments.register), os.environ.get(TOKEN, "").strip()
    if not token and where.startswith("https://"):  # on this machine a registry may ask for none
        raise UsageError("DIA-075", f"`--register` needs a token in {TOKEN}", "set that variable")
    async with HttpLink(where, token, timeout=TIMEOUT) as link:
        registrar = Registrar(
            link,
            lambda: own_entries(app, namespace, url, capabilities),
            app.gateway.scope,
            lambda text: say(line_of(f"mcp-sandbox: {text}")),
            last=functools.partial(_is_last, app.gateway),
        )
        async with registrar.running():
            yield

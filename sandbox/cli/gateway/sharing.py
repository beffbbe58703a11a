"""Makes a gateway one of several: opens the store that ``[state]`` names and joins the others there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandbox.cli.gateway.config import LOOPBACK, GatewayConfig, LimitConfig, StateConfig
from sandbox.errors import UsageError
from sandbox.events import Scope
from sandbox.launch import owner
from sandbox.launch.docker import DockerBackend
from sandbox.launch.reap import reap_of
from sandbox.serve.calls import Limiter
from sandbox.serve.http.app import App
from sandbox.serve.http.bounds import HttpBounds
from sandbox.serve.http.doors import Lender
from sandbox.serve.http.quotas import Quotas
from sandbox.serve.http.together import Together
from sandbox.serve.ratelimit import Rate
from sandbox.serve.shared.interface import check_rate
from sandbox.serve.shared.lending import HomeLender, SharedLender
from sandbox.serve.shared.limiting import SharedLimiter
from sandbox.serve.shared.opening import place_of, store_of
from sandbox.serve.shared.team import Duties, Team
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantId

if TYPE_CHECKING:
    from sandbox.supervisor.pool import Instances


@dataclass(slots=True)
class Sharing:
    """What a gateway shares with others.

    Attributes:
        team: this gateway among them.
        peers: addresses that requests may be forwarded to.
        lender: counts a tenant's servers over all of them; set by :meth:`over`.
        door: sends requests where they belong; set by :meth:`together`.
    """

    team: Team
    peers: tuple[str, ...]
    lender: SharedLender | None = None
    door: Together | None = None

    def over(self, pool: Instances) -> SharedLender:
        """Return what counts and lends a pool's instances."""
        if self.lender is None:
            self.lender = SharedLender(pool, self.team)
        return self.lender

    def lender_of(self, pool: Instances, *, stateless: bool) -> Lender:
        """Return what lends one driver's instances: at every gateway, or where the tenant is at home."""
        return self.over(pool) if stateless else HomeLender(self.over(pool), self.team)

    def together(self, quotas: Quotas, bounds: HttpBounds) -> Together:
        """Return what sends requests where they belong."""
        self.door = Together(self.team, self.peers, quotas, bounds)
        return self.door

    def limiting(self, driver: str) -> Callable[[Rate, Gate], Limiter]:
        """Return what makes the limiter of a driver whose servers run at several gateways for one tenant."""
        return lambda rate, gate: SharedLimiter(self.team.store, driver, rate, gate)

    def serve(self, app: App, pool: Instances) -> None:
        """Have an application and a pool let go of what this gateway may not hold any more."""
        lender = self.over(pool)

        def lost() -> None:
            app.sessions.drop_where(lambda _session: True)
            lender.forget()
            pool.expel()

        def needed(tenant: TenantId) -> bool:
            return bool(app.sessions.of(tenant)) or pool.serves_tenant(tenant)

        self.team.duties.needed, self.team.duties.lost = needed, lost


@contextlib.asynccontextmanager
async def sharing(
    config: GatewayConfig, listen: tuple[str, int], scope: Scope, backend: DockerBackend
) -> AsyncIterator[Sharing | None]:
    """Be one of several gateways for the caller's block, if the operator says so.

    Raises:
        UsageError: ``CLI-195`` … ``CLI-199``.
    """
    state = config.state
    if state is None:
        yield None
        return
    url, address = url_of(state), address_of(state, listen, tls=config.tls is not None)
    check_peers(state, address)
    check_audience(config)
    check_limits(config.limits)
    store = store_of(url, unsafe_clear=state.unsafe_clear)
    await store.open()
    team = Team(store, scope, address, state.lease)
    team.duties = Duties(owner=owner.own(), clean=_cleaning(backend))
    try:
        scope.fact(
            "gateway.share", gateway=team.id, store=place_of(urlsplit(url)), address=address, peers=list(state.peers),
            unsafe=["unsafe-clear"] if state.unsafe_clear else [],
        )  # fmt: skip
        await team.begin()
        made = Sharing(team, state.peers)
        try:
            yield made
        finally:
            await team.leave()
            if made.door is not None:
                await made.door.close()
    finally:
        await store.close()


def url_of(state: StateConfig) -> str:
    """Return the URL of the store.

    Raises:
        UsageError: ``CLI-195``, there is none, or a password stands in the file.
    """
    if bool(state.url) == bool(state.url_env):
        raise UsageError("CLI-195", "`[state]` needs either `url` or `url-env`", "write sqlite:///PATH, or a variable")
    if state.url_env:
        found = os.environ.get(state.url_env, "")
        if not found:
            text = f"the variable {state.url_env} that `url-env` names is empty"
            raise UsageError("CLI-195", text, "set it to the URL of the store")
        return found
    with contextlib.suppress(ValueError):
        if urlsplit(state.url).password or "password=" in urlsplit(state.url).query:
            text = "the `url` of `[state]` has a password in it"
            raise UsageError("CLI-195", text, "put the URL into a variable and name that in `url-env`")
    return state.url


def address_of(state: StateConfig, listen: tuple[str, int], *, tls: bool) -> str:
    """Return where other gateways reach this one."""
    host = f"[{listen[0]}]" if ":" in listen[0] else listen[0]
    return (state.address or f"http{'s' if tls else ''}://{host}:{listen[1]}").rstrip("/")


def check_peers(state: StateConfig, address: str) -> None:
    """Refuse peers that tokens would reach in the clear, and a gateway that the others would not forward to.

    Raises:
        UsageError: ``CLI-195``, ``CLI-199``.
    """
    for peer in (*state.peers, address):
        parts = urlsplit(peer)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
            raise UsageError("CLI-195", f"{peer[:100]!r} is no address of a gateway", "write http://HOST:PORT")
        if parts.scheme == "http" and parts.hostname not in LOOPBACK and peer in state.peers and not state.unsafe_clear:
            text = f"tokens would be forwarded to {peer} in the clear"
            raise UsageError("CLI-199", text, "use https, or say `unsafe-clear = true` on a network of your own")
    if state.peers and address not in state.peers:
        text = f"this gateway is {address}, which `peers` does not name, so that nobody would forward to it"
        raise UsageError("CLI-195", text, "name it there, or set `address`")


def check_audience(config: GatewayConfig) -> None:
    """Refuse tokens that would be made for one gateway and forwarded to another.

    Raises:
        UsageError: ``CLI-195``.
    """
    if config.issuer and not config.public_url:
        text = "several gateways take tokens, and nothing says for which common URL they are made"
        raise UsageError("CLI-195", text, "name the balancer's URL in `public-url`")


def hosts_of(state: StateConfig | None) -> tuple[str, ...]:
    """Return the values of ``Host`` under which clients may reach one gateway and be forwarded to another."""
    return tuple(urlsplit(peer).netloc for peer in state.peers) if state is not None else ()


def check_limits(limits: LimitConfig) -> None:
    """Refuse limits that cannot be counted exactly.

    Raises:
        UsageError: ``CLI-195``.
    """
    check_rate(Rate(limits.calls_per_second, limits.calls_at_once), "calls-per-second")
    check_rate(Rate(limits.requests_per_second, limits.requests_at_once), "requests-per-second")


def _cleaning(backend: DockerBackend) -> Callable[[str], Awaitable[int]]:
    async def clean(label: str) -> int:
        return await reap_of(backend.engine, label)

    return clean

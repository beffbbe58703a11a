"""Makes the call pipeline of a live server from its plan and policy."""

from __future__ import annotations

import argparse
import functools
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from sandbox.cli.bounds import shipped_bounds
from sandbox.cli.report import line_of, say
from sandbox.cli.tokens import redactor_of
from sandbox.errors import PolicyError
from sandbox.policy.call_bounds import CallBounds
from sandbox.policy.cedar import PolicySet
from sandbox.policy.request import DriverFacts, ToolFacts
from sandbox.policy.schema import check
from sandbox.serve.asking import AskBounds, Asking
from sandbox.serve.calls import BoundTool, Caller, Collaborators, Limiter, Pipeline
from sandbox.serve.client_model import SessionOptions
from sandbox.serve.context import ASSERTION
from sandbox.serve.decide import CedarDecider
from sandbox.serve.guard import ContextInjector, ToolGuard, UriGuard
from sandbox.serve.handler import ServerHandler
from sandbox.serve.paths import Roots
from sandbox.serve.paths_fs import HostTree
from sandbox.serve.ratelimit import Buckets, Rate, RateLimiter
from sandbox.serve.results import ResultCleaner
from sandbox.serve.templates import Template
from sandbox.serve.uris import UriRules, egress_of
from sandbox.spec.model import Binding
from sandbox.supervisor.admission import LiveServer
from sandbox.supervisor.fair import Gate
from sandbox.tenant import TenantContext, TenantId
from sandbox.vet.model import Exposure


def caller_of(arguments: argparse.Namespace) -> Caller:
    """Return who calls, by the flags of whoever started this process."""
    return Caller(
        TenantContext(TenantId(arguments.tenant), arguments.user, source=getattr(arguments, "tenant_source", "flags"))
    )


def tell_operator(line: str) -> None:
    """Say on stderr which rule denied; the client reads only what was refused."""
    say(line_of(line))


@dataclass(frozen=True, slots=True)
class Serving:
    """What carries requests to one live server, made once from its plan and the operator's rules."""

    pipeline: Pipeline
    decider: CedarDecider
    resources: UriGuard
    cleaner: ResultCleaner
    bounds: CallBounds

    def prepare(self, exposure: Exposure) -> None:
        """Make ready the tools of an exposure that are not yet, such as one that was approved meanwhile."""
        self.decider.prepare(exposure)
        self.pipeline.prepare(exposure)


def serving_of(
    live: LiveServer,
    rules: PolicySet,
    given: Mapping[str, str],
    bounds: CallBounds | None = None,
    before: Serving | None = None,
    limiting: Callable[[Rate, Gate], Limiter] | None = None,
) -> Serving:
    """Return the pipeline of one live server with every step that its plan and contracts ask for.

    Args:
        live: the server.
        rules: the operator's.
        given: slug → value of what the server was given, kept out of its results.
        bounds: the operator's; the shipped ones when there are none.
        before: what carried its requests under earlier rules: what was counted stays counted.
        limiting: makes what counts calls from their rate; ``None``: they are counted here.
    """
    bounds = bounds or shipped_bounds()
    uris = uri_rules(live)
    host = HostTree((mount.target, mount.source) for mount in live.plan.mounts)
    calls = before.decider.calls if before is not None else None
    decider = CedarDecider(rules, live.spec, live.exposure, live.plan.unsafe, tell=tell_operator, calls=calls)
    refuse_typos(rules, decider.driver, decider.tools.values())

    def equip(bound: BoundTool) -> BoundTool:
        binding = bound.tool.binding
        bound.guard = ToolGuard(binding, uris, host)
        bound.injector = _injector(binding, live.spec.id) if binding.context else None
        return bound

    gate = Gate(bounds.running, bounds.running_of_tenant, bounds.waiting_of_tenant, bounds.wait)
    rate = Rate(bounds.rate, bounds.burst)
    limiter = limiting(rate, gate) if limiting is not None else RateLimiter(Buckets(rate), gate, time.monotonic)
    cleaner = ResultCleaner(uris, redactor_of(given, live.instance), bounds.result)
    pipeline = Pipeline(live.exposure, Collaborators(decider, limiter, cleaner, live.instance.during), equip)
    return Serving(pipeline, decider, UriGuard(uris, host), cleaner, bounds)


def _injector(binding: Binding, driver: str) -> ContextInjector:
    """Return what injects a binding's context; the key that signs it is read only where a driver asks for proof."""
    if ASSERTION not in binding.context.values():
        return ContextInjector(binding)
    from sandbox.cli.signing import signer_for  # few drivers ask for it

    return ContextInjector(binding, signer_for(driver), time.time, functools.partial(secrets.token_hex, 16))


def refuse_typos(rules: PolicySet, driver: DriverFacts, tools: Collection[ToolFacts]) -> None:
    """Hold the rules against what a driver's contracts are, before anything is served.

    Raises:
        PolicyError: a rule names an attribute or argument that does not exist.
    """
    problems = check(rules.rules, (driver,), tools)
    errors = tuple(problem for problem in problems if problem.severity == "error")
    if errors:
        raise PolicyError(errors)


def uri_rules(live: LiveServer) -> UriRules:
    """Return what paths and URIs of one live server are held to: the plan's mounts, network and declared templates."""
    return UriRules(
        roots=Roots(mount.target for mount in live.plan.mounts),
        cwd=live.plan.workdir,
        templates=tuple(Template(resource.uri_template) for resource in live.spec.resources),
        egress=egress_of(live.plan.network.rules, live.plan.network.allowed_private),
    )


def session_options(live: LiveServer, serving: Serving, arguments: argparse.Namespace) -> SessionOptions:
    """Return the options of one client's session with a live server."""
    spec, asking, bounds = live.spec, asking_of(live, serving), serving.bounds
    return SessionOptions(
        server_info={"name": spec.id, "title": spec.name, "version": spec.version},
        call_timeout=live.plan.limits.call_timeout,
        max_in_flight=bounds.in_flight,
        clean=serving.cleaner.clean,
        asking=asking() if asking is not None else None,
        asker=caller_of(arguments) if asking is not None else None,
    )


def asking_of(live: LiveServer, serving: Serving) -> Callable[[], Asking] | None:
    """Return what makes the judge of a server's questions to one client; ``None`` where no rule could allow any."""
    if not live.options.capabilities:
        return None
    bounds = serving.bounds
    budget = AskBounds(bounds.questions, bounds.sampling_tokens, bounds.session_tokens)
    return functools.partial(Asking, serving.decider, live.spec.id, serving.cleaner.clean, budget)


def handler_of(serving: Serving, arguments: argparse.Namespace) -> ServerHandler:
    """Return what carries the requests of one client."""
    return ServerHandler(serving.pipeline, serving.cleaner, caller_of(arguments), serving.resources, serving.decider)

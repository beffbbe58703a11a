"""The plan of a remote server: where it is, how it is verified, what is sent along; there is no sandbox.

What a driver asks of a sandbox (folders, programs, variables, memory) cannot be enforced on somebody else's machine, so
each of it is refused rather than ignored (AIP-29: a host that cannot enforce refuses).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sandbox.plan import baseline
from sandbox.plan.bounds import bounds
from sandbox.plan.model import HeaderEntry, LimitPlan, NetworkPlan, SandboxPlan
from sandbox.plan.network import authorities, network
from sandbox.plan.oauth import oauth
from sandbox.policy.ceiling_values import PLAIN_HTTP
from sandbox.policy.destinations import HTTP_PORT, HTTPS_PORT, match
from sandbox.policy.hosts import canonical_name

if TYPE_CHECKING:
    from sandbox.plan.draft import Draft

_SECRET: Final = re.compile(r"(?P<before>(?:[A-Za-z][A-Za-z0-9._-]* )?)\$\{secrets\.(?P<slug>[A-Za-z0-9_./-]{1,128})\}")
_BOUNDS: Final = ("memory_bytes", "cpus", "pids", "nofile", "fsize_bytes", "tmp_bytes")
"""Limits that only a container has."""


def finish(draft: Draft) -> SandboxPlan:
    """Return the plan.

    Steps: 1 nothing is asked of a sandbox; 2 bounds of calls and of life; 3 destinations, the server's own among them;
    4 plain HTTP only where the operator allows it; 5 header fields, and how tokens are got; 6 all refusals at once;
    7 the baseline.

    Raises:
        PlanProblems: everything that may not or cannot be given.
    """
    _nothing_local(draft)  # 1
    limits, _ = bounds(draft)  # 2
    destinations = network(draft)  # 3
    _own_host(draft, destinations)  # 3, 4
    headers = _headers(draft)  # 5
    auth = oauth(draft, destinations, headers)  # 5
    trusted = authorities(draft)
    draft.finish()  # 6
    plan = replace(_plan(draft, limits, destinations, headers, trusted), auth=auth)
    baseline.check_remote(plan)  # 7
    return plan


def _plan(
    draft: Draft,
    limits: LimitPlan,
    destinations: NetworkPlan,
    headers: tuple[HeaderEntry, ...],
    trusted: tuple[str, ...],
) -> SandboxPlan:
    spec = draft.spec
    draft.because("remote_url", spec.server.url, "the server's address", draft.at("server.url"))  # type: ignore[union-attr]
    return SandboxPlan(
        driver_id=spec.id,
        driver_version=spec.version,
        driver_digest=spec.digest,
        policy_digest=draft.ceiling.digest,
        server_kind="remote",
        image_id="",
        image_named="",
        argv=(),
        workdir="",
        user="",
        env=(),
        mounts=(),
        tmpfs=(),
        network=destinations,
        limits=limits,
        runtime="",
        seccomp="",
        seccomp_digest="",
        masked_paths=(),
        readonly_paths=(),
        hostname="",
        init=False,
        transport=spec.transport,
        remote_url=spec.server.url,  # type: ignore[union-attr]
        headers=headers,
        authorities=trusted,
        unsafe=tuple(draft.unsafe),
        reasons=tuple(draft.reasons),
    )


def _nothing_local(draft: Draft) -> None:
    spec, rules = draft.spec, draft.spec.sandbox
    asked = {
        "sandbox.fs": rules.fs.read or rules.fs.write or rules.fs.deny,
        "sandbox.exec": not rules.exec.allow or rules.exec.spawn,
        "sandbox.env": rules.env.passed or rules.env.fixed,
        "sandbox.runtime": rules.runtime or draft.overrides.runtime,
        "install": spec.install,
        "version_check": spec.version_check,
        "requires": spec.requires,
        "limits": any(getattr(spec.limits, name) is not None for name in _BOUNDS),
        "server.auth": _other_auth(getattr(spec.server, "auth", None)),
    }
    for path, value in asked.items():
        if value:
            message = "this cannot be enforced on a remote server"
            mend = "write `type: oauth2`, or use server.headers" if path == "server.auth" else "remove it"
            draft.refuse("PLAN-060", path, message, mend=mend)


def _other_auth(auth: Mapping[str, Any] | None) -> bool:
    """Return whether ``server.auth`` is of a type that nobody carries out."""
    return bool(auth) and auth.get("type") != "oauth2"  # type: ignore[union-attr]


def _own_host(draft: Draft, destinations: NetworkPlan) -> None:
    """Refuse a server that its own rules do not reach, and plain HTTP that the operator did not allow for its host."""
    parts = urlsplit(getattr(draft.spec.server, "url", ""))
    plain = parts.scheme == "http"
    host = _canonical(parts.hostname or "")
    port = parts.port or (HTTP_PORT if plain else HTTPS_PORT)
    if destinations.rules and match(destinations.rules, host, port) is None:
        mend = f'add "{host}:{port}" to network.egress'
        draft.refuse(
            "PLAN-061", "server.url", "network.egress does not reach the server", found=f"{host}:{port}", mend=mend
        )
    name = f"{PLAIN_HTTP}:{host}"
    if plain and not draft.weaken(name):
        allowed = f"https ({draft.ceiling.where('unsafe')})"
        mend = f'use https, or have the operator allow [[unsafe]] name = "{name}"'
        message = "calls and credentials would be sent in the clear"
        draft.refuse("PLAN-062", "server.url", message, found=f"http://{host}", allowed=allowed, mend=mend)


def _canonical(host: str) -> str:
    try:
        return canonical_name(host)
    except ValueError:
        return host  # an address


def _headers(draft: Draft) -> tuple[HeaderEntry, ...]:
    """Return the driver's header fields, secrets by their slugs."""
    found = []
    declared = {secret.slug for secret in draft.spec.secrets}
    for name, value in sorted(getattr(draft.spec.server, "headers", {}).items()):
        path = f"server.headers.{name}"
        secret = _SECRET.fullmatch(value)
        if secret is None:
            found.append(HeaderEntry(name, value))
            draft.because(f"headers.{name}", value, "set by the driver", draft.at(path))
            continue
        if secret["slug"] not in declared:
            mend = "add it to SECRETS.md"
            draft.refuse("PLAN-045", path, "the secret is not declared", found=secret["slug"], mend=mend)
        found.append(HeaderEntry(name, secret["before"], secret["slug"]))
        draft.because(f"headers.{name}", f"secret {secret['slug']}", "set by the driver", draft.at(path))
    return tuple(found)

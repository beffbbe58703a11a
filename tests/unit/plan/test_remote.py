"""Plans of remote servers: reachable by their own rules, over TLS, and with nothing that only a container can do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sandbox.errors import PlanProblems, PlanRefused
from sandbox.plan import baseline
from sandbox.plan.derive import derive
from sandbox.plan.model import HeaderEntry, SandboxPlan
from sandbox.policy.ceiling import load_ceiling
from sandbox.policy.ceiling_values import Ceiling
from sandbox.resources import shipped
from sandbox.spec.model import ExecRules, RemoteServer
from tests import planning

URL = "https://mcp.example.com/v1"


def ceiling(more: str) -> Ceiling:
    """Return the shipped ceiling with more in it."""
    text = shipped("policies", "default.toml").read_text()
    text = text.replace('name = "default"', 'name = "own"\nreplaces = "default"', 1)
    return load_ceiling((text + more).encode(), "own.toml", planning.default())


def made(
    url: str = URL, *, own: Ceiling | None = None, egress: tuple[str, ...] = ("mcp.example.com",), **parts: Any
) -> SandboxPlan:
    """Derive the plan of a remote server."""
    server = RemoteServer(kind="remote", url=url, **parts.pop("server", {}))
    spec = planning.driver(server=server, transport="http", egress=egress, **parts)
    facts = dataclasses.replace(planning.host(), image=None, remote_available=True, engine=planning.ENGINE)
    return derive(spec, own or planning.default(), facts)


def refused(*arguments: Any, **parts: Any) -> list[str]:
    """Return the ids of every refusal."""
    with pytest.raises(PlanProblems) as caught:
        made(*arguments, **parts)
    return [problem.id for problem in caught.value.problems]


def test_a_plan_without_a_container() -> None:
    """Nothing runs here; destinations, bounds and headers are planned, secrets by their slugs."""
    found = made(server={"headers": {"X-Team": "a"}})

    assert ("remote", "remote", URL, "http") == (
        found.server_kind,
        found.network.mode,
        found.remote_url,
        found.transport,
    )
    assert ("", (), (), "") == (found.image_id, found.argv, found.env, found.seccomp)
    assert (HeaderEntry("X-Team", "a"),) == found.headers


@pytest.mark.parametrize(
    "parts",
    [
        {"read": {"/srv": "/srv"}},
        {"sandbox": {"exec": ExecRules(allow=False)}},
        {"sandbox": {"runtime": "runsc"}},
        {"limits": {"memory_bytes": 1 << 26}},
        {"requires": {"os": ["linux"]}},
        {"server": {"auth": {"type": "oauth"}}},
    ],
)
def test_what_only_a_container_can_do_is_refused(parts: dict[str, Any]) -> None:
    """Nothing that cannot be enforced elsewhere is silently ignored."""
    assert "PLAN-060" in refused(**parts)


def test_an_undeclared_secret_is_refused() -> None:
    """A header's secret must be declared."""
    assert ["PLAN-045"] == refused(server={"headers": {"Authorization": "Bearer ${secrets.nobody}"}})


@pytest.mark.parametrize("egress", [("other.example.com",), ("mcp.example.com:8443",)])
def test_the_server_must_be_within_its_own_rules(egress: tuple[str, ...]) -> None:
    """Rules that do not reach the server's host and port refuse it."""
    assert ["PLAN-061"] == refused(egress=egress)


@pytest.mark.parametrize(
    ("entry", "ids"),
    [
        ("", ["PLAN-062"]),
        ("unsafe_plain_http:other.example.com", ["PLAN-062"]),
        ("unsafe_plain_http:mcp.example.com", []),
    ],
)
def test_plain_http_is_allowed_host_by_host(entry: str, ids: list[str]) -> None:
    """Only the operator's word for this very host allows plain HTTP, and it stands in the plan."""
    own = ceiling(f'[[unsafe]]\nname = "{entry}"\nreason = "r"\n' if entry else "")
    arguments: dict[str, Any] = {"own": own, "egress": ("http://mcp.example.com",)}
    if ids:
        assert ids == refused("http://mcp.example.com/v1", **arguments)
    else:
        assert (entry,) == made("http://mcp.example.com/v1", **arguments).unsafe


@pytest.mark.parametrize(
    "name", ["unsafe_plain_http", "unsafe_plain_http:", "unsafe_plain_http:*", "unsafe_plain_http:A b"]
)
def test_plain_http_for_everybody_cannot_be_written(name: str) -> None:
    """The weakening names one host."""
    with pytest.raises(Exception, match="PLAN-08"):
        ceiling(f'[[unsafe]]\nname = "{name}"\nreason = "r"\n')


@pytest.mark.parametrize(
    "changes",
    [
        {"image_id": "sha256:1"},
        {"remote_url": "http://mcp.example.com/"},
        {"server_kind": "npm"},
        {"headers": (HeaderEntry("A", "x"), HeaderEntry("a", "y"))},
        {"headers": (HeaderEntry("A", "x\r\nB: y"),)},
    ],
)
def test_a_broken_plan_fails_the_baseline(changes: dict[str, Any]) -> None:
    """Whatever a mistake of ours would weaken ends at the baseline."""
    with pytest.raises(PlanRefused):
        baseline.check_remote(dataclasses.replace(made(), **changes))

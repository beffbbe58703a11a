"""What a plan takes of ``server.auth``: tokens for the server itself, over TLS, from an issuer that can be reviewed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jsonschema
import pytest

from sandbox.errors import PlanProblems, PlanRefused
from sandbox.plan import baseline, compare, explain
from sandbox.plan.model import OAuthPlan, SandboxPlan
from sandbox.plan.oauth import covers
from sandbox.resources import shipped
from tests.planning import secret
from tests.unit.plan.test_remote import URL, made

ISSUER = "https://login.example.com"
EGRESS = ("mcp.example.com", "login.example.com")
CLIENT = {"issuer": ISSUER, "client_id": "c", "client_secret": "${secrets.K}"}


def planned(url: str = URL, egress: tuple[str, ...] = EGRESS, headers: Any = None, **auth: Any) -> SandboxPlan:
    """Derive a plan with ``server.auth``."""
    server = {"auth": {"type": "oauth2", **auth}, "headers": headers or {}}
    return made(url, egress=egress, server=server, secrets=(secret("K"),))


def refused(**parts: Any) -> list[str]:
    """Return the ids of every refusal."""
    with pytest.raises(PlanProblems) as caught:
        planned(**parts)
    return [problem.id for problem in caught.value.problems]


def test_a_login_is_planned() -> None:
    """Tokens are for the server's URL unless the driver says otherwise; secrets stand there by their slugs."""
    login = planned(scopes=["a", "b", "a"])
    machine = planned(grant="client_credentials", **CLIENT)

    assert OAuthPlan("authorization_code", URL, scopes=("a", "b")) == login.auth
    assert OAuthPlan("client_credentials", URL, ISSUER, client_id="c", client_secret="K") == machine.auth
    assert ("K",) == machine.secrets()
    assert "token     OAuth, somebody logs in: from the issuer that the server names" in "\n".join(explain.lines(login))
    assert ["auth"] == [one.field for one in compare.excess(login, dataclasses.replace(login, auth=None))]
    schema = json.loads(shipped("schemas", "plan.schema.json").read_bytes())
    jsonschema.validate(json.loads(json.dumps(machine.to_json())), schema)


def test_plans_without_a_login_keep_their_digest() -> None:
    """A field that nobody uses changes no digest; one that is used does."""
    plain, login = made(egress=EGRESS), planned()

    assert plain.digest() == dataclasses.replace(plain, auth=None).digest()
    assert login.digest() != dataclasses.replace(login, auth=None).digest()


@pytest.mark.parametrize(
    ("parts", "ids"),
    [
        ({"issuer": "http://login.example.com"}, ["PLAN-066"]),
        ({"issuer": "https://login.example.com/?a"}, ["PLAN-066"]),
        ({"issuer": "https://other.example.com"}, ["PLAN-061"]),
        ({"issuer": "https://login.example.com:8443"}, ["PLAN-061"]),
        ({"resource": "https://mcp.example.com/v"}, ["PLAN-068"]),
        ({"resource": "https://mcp.example.com/v1/more"}, ["PLAN-068"]),
        ({"resource": "https://login.example.com"}, ["PLAN-068"]),
        ({"resource": "http://mcp.example.com"}, ["PLAN-068"]),
        ({"headers": {"authorization": "Bearer ${secrets.K}"}}, ["PLAN-067"]),
        ({"grant": "client_credentials"}, ["PLAN-069"]),
        ({"grant": "client_credentials", "client_id": "c", "issuer": ISSUER}, ["PLAN-069"]),
        ({"client_id": "c"}, ["PLAN-069"]),
        ({"client_secret": "${secrets.K}", "issuer": ISSUER}, ["PLAN-069"]),
        ({"client_secret": "${secrets.nobody}", "client_id": "c", "issuer": ISSUER}, ["PLAN-045"]),
    ],
)
def test_what_may_not_be_is_refused(parts: dict[str, Any], ids: list[str]) -> None:
    """Plain addresses, issuers out of reach, tokens for something else, two credentials, half a client."""
    assert ids == refused(**parts)


def test_tokens_are_never_sent_in_the_clear() -> None:
    """What an operator allows for a host does not cover tokens."""
    assert "PLAN-066" in refused(url="http://mcp.example.com/v1", egress=("http://mcp.example.com",))


def test_an_address_of_a_metadata_document_needs_no_issuer() -> None:
    """It is nobody's secret, and the same for all issuers."""
    assert planned(client_id="https://client.example/c.json").auth is not None


@pytest.mark.parametrize(
    ("resource", "url", "expected"),
    [
        ("https://a.example", "https://a.example", True),
        ("https://a.example/", "https://a.example", True),
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp?x=1", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example/mcp", "https://a.example/mcp-other", False),
        ("https://a.example", "https://a.example.evil.example", False),
        ("https://a.example", "https://a.example:8443", False),
        ("https:", "https://a.example", False),
        ("https://a.example#x", "https://a.example", False),
    ],
)
def test_a_resource_covers_whole_parts_of_a_path(resource: str, url: str, expected: bool) -> None:
    """The beginning of an address counts only up to a border."""
    assert expected == covers(resource, url)


@pytest.mark.parametrize(
    "auth",
    [
        OAuthPlan("authorization_code", "https://other.example"),
        OAuthPlan("client_credentials", URL, client_id="c", client_secret="K"),
    ],
)
def test_the_baseline_sees_a_plan_that_should_not_be(auth: OAuthPlan) -> None:
    """However it came about: tokens of something else, or a secret without an issuer."""
    with pytest.raises(PlanRefused, match="PLAN-120"):
        baseline.check_remote(dataclasses.replace(planned(), auth=auth))

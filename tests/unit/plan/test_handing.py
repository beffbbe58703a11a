"""How plans hand secrets over: files in one place, placeholders for named hosts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sandbox.errors import PlanProblems
from sandbox.plan.baseline import CA_TARGET
from sandbox.plan.derive import derive
from sandbox.plan.model import SandboxPlan, SecretFile, Substitute
from sandbox.spec.model import NpmServer, Origin, Secret
from tests import planning

EGRESS = ("api.example.com", "*.wild.example.com", "http://plain.example.com", "db.example.com:5432")


def secret(*exposures: dict[str, Any], slug: str = "api-key") -> Secret:
    """Return a declared secret with exposures."""
    return Secret(slug=slug, name=slug, description="", exposures=exposures, origin=Origin(file="SECRETS.md"))


def file(path: str) -> dict[str, Any]:
    """Return the exposure as a file."""
    return {"kind": "file", "path": path}


def substitute(*hosts: str, allowed: bool = True) -> dict[str, Any]:
    """Return the exposure as a placeholder."""
    kind = "egress-substitute"
    return {"kind": kind, "placeholderName": "KEY", "allowedByDefault": allowed, "intendedProviders": list(hosts)}


def made(*secrets: Secret, **parts: Any) -> SandboxPlan:
    """Derive a plan whose server has the first secret in a variable."""
    server = NpmServer(kind="npm", package="p@1", env={"KEY": f"${{secrets.{secrets[0].slug}}}"})
    spec = planning.driver(secrets=secrets, egress=EGRESS, **{"server": server, **parts})
    facts = dataclasses.replace(planning.host(), secrets=tuple(one.slug for one in secrets), egress_available=True)
    return derive(spec, planning.default(), facts)


def refused(*secrets: Secret) -> set[str]:
    """Return the ids of every refusal."""
    with pytest.raises(PlanProblems) as caught:
        made(*secrets)
    return {problem.id for problem in caught.value.problems}


def test_files_are_planned_by_place() -> None:
    """Each file stands in /run/secrets, in order."""
    found = made(secret(file("/run/secrets/b")), secret(file("/run/secrets/a"), slug="team/other"))

    assert (SecretFile("team/other", "/run/secrets/a"), SecretFile("api-key", "/run/secrets/b")) == found.secret_files
    assert {"api-key", "team/other"} == set(found.secrets())


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/run/secrets", "/run/secrets/", "/run/secrets/../x", "/run/secrets/a/b", "a", "/run/secrets/.x"],
)
def test_files_elsewhere_are_refused(path: str) -> None:
    """A driver cannot put a file over anything."""
    assert {"PLAN-063"} == refused(secret(file(path)))


def test_two_files_at_one_place_are_refused() -> None:
    """Which one would be seen is nobody's to guess."""
    assert {"PLAN-063"} == refused(secret(file("/run/secrets/a")), secret(file("/run/secrets/a"), slug="other"))


def test_placeholders_are_planned_with_their_hosts() -> None:
    """The plan names the hosts, and every variable that leads to the sandbox's own authority."""
    found = made(secret(substitute("api.example.com")))

    assert (Substitute("api-key", ("api.example.com",)),) == found.substitutes
    values = {entry.name: entry.value for entry in found.env}
    names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
    assert {CA_TARGET} == {values[name] for name in names}


@pytest.mark.parametrize(
    ("exposure", "number"),
    [
        (substitute("api.example.com", allowed=False), "PLAN-064"),
        (substitute(), "PLAN-065"),
        (substitute("other.example.com"), "PLAN-065"),
        (substitute("*.wild.example.com"), "PLAN-065"),
        (substitute("a.wild.example.com", "plain.example.com"), "PLAN-065"),
        (substitute("db.example.com"), "PLAN-065"),
        (substitute("API.example.com"), "PLAN-065"),
        (substitute(*(f"h{n}.wild.example.com" for n in range(17))), "PLAN-065"),
    ],
)
def test_hosts_that_cannot_be_intended_are_refused(exposure: dict[str, Any], number: str) -> None:
    """Only exact names that the rules reach over TLS on the usual port have secrets put in."""
    assert number in refused(secret(exposure))


def test_a_host_below_a_wildcard_can_be_intended() -> None:
    """An exact name that a wildcard covers is exact enough."""
    assert (Substitute("api-key", ("a.wild.example.com",)),) == made(
        secret(substitute("a.wild.example.com"))
    ).substitutes

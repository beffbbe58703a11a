"""Who a server runs as (ADR 0015)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandbox.errors import PlanRefused
from sandbox.plan import baseline
from sandbox.testing.plans import baseline_plan
from tests.planning import driver, folders, host, plan


@pytest.mark.parametrize("user", ["0:0", "0:1000", "1000:0", "65534:65534", "1000:65534", "root", "1000", ""])
def test_root_and_nobody_are_never_the_user(user: str) -> None:
    """The baseline refuses a plan whose user or group is root's or nobody's, or not a number."""
    with pytest.raises(PlanRefused, match="PLAN-101"):
        baseline.check(replace(baseline_plan(), user=user))


def test_a_persons_own_id_is_accepted() -> None:
    """The rule about the user lets a plan run as the person who starts it."""
    rule = next(check for number, _, check in baseline.RULES if number == "PLAN-101")

    assert rule(replace(baseline_plan(), user="1000:1000"))


def test_server_with_folders_runs_as_their_person_and_one_without_as_nobodys_id() -> None:
    """Only a grant gives a server the person's id; the host's CA bundle alone does not."""
    granted = plan(driver(write={"~/p": "/p"}), host(folders("~/p"), caller="1000:1000"))
    trusting = driver(sandbox={"trust_host_ca": True}, egress=("api.example.com",))
    online = plan(trusting, host(caller="1000:1000", egress_available=True, ca_bundle="/etc/ssl/cert.pem"))

    assert granted.user == "1000:1000"
    assert online.user == plan(facts=host(caller="1000:1000")).user == "65532:65532"

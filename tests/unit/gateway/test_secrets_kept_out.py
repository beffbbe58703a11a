"""Secrets of a gateway's servers are left out of its trail and of its operator's page from before a server has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.audit.recorder import open_recorder
from sandbox.cli.gateway.mounts import kept_out
from sandbox.errors import AuditUnavailable
from sandbox.events import Scope, Trace
from sandbox.serve.ui.seen import Seen
from sandbox.supervisor.held import Served
from sandbox.tenant import TenantId
from sandbox.testing.memory import MemoryRecorder
from sandbox.testing.plans import baseline_plan
from tests.unit.serve.builders import contract_of, spec_of

VALUE = "s3cr3t-value-of-a-tenant"


def served() -> Served:
    """Return a driver with a secret for each tenant."""
    return Served(
        spec_of(contract_of()), lambda _tenant: baseline_plan(), lambda tenant: {"key": f"{VALUE}-{tenant or 'all'}"}
    )


@pytest.mark.claim("P-UI-09")
def test_a_secret_is_in_no_record_and_on_no_page(tmp_path: Path) -> None:
    """A server looks up a name that holds what it was given: neither the trail nor the page shows it."""
    ledger = open_recorder(tmp_path, "run")
    seen = Seen(ledger)
    one = kept_out(served(), seen)
    for tenant in ("acme", "beta", "acme"):
        assert f"{VALUE}-{tenant}" == one.secrets(TenantId(tenant))["key"], "the server gets it"
        host = f"{VALUE}-{tenant}.evil.example"
        Scope(seen, Trace.new()).fact("egress.dns", host=host, decision="deny", reason="EGR-101", why="no")
    ledger.close()
    trail = "".join(path.read_text() for path in (tmp_path / "segments").iterdir())

    assert VALUE not in trail
    assert VALUE not in str(seen.now())
    assert "[redacted]" in trail
    assert "[redacted]" in str(seen.now())


def test_a_recorder_that_cannot_leave_them_out_gets_no_server() -> None:
    """The secret is not handed over when it could stand in records."""
    with pytest.raises(AuditUnavailable) as caught:
        kept_out(served(), MemoryRecorder()).secrets(TenantId("acme"))
    assert "CLI-016" == caught.value.id

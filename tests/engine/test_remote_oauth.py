"""OAuth towards a remote server through the command line: log in, call, renew, log out; machines with their own id."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.oauth_remote_lab import SECRET, World, come_back, world
from tests.remote_lab import command, driver, network, policy
from tests.shared import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(280)]


@pytest.fixture(scope="module", autouse=True)
def _network() -> Iterator[None]:
    """An address of the documentation range."""
    with network():
        yield


INVENTORY = """---
secrets:
  - slug: client-secret
    name: Client secret
    description: Of the client at the issuer.
---
"""


@dataclass
class Desk:
    """A person's driver, policy, state and trail, and the servers."""

    world: World
    made: Path
    scratch: Path
    secret: str = SECRET

    @property
    def env(self) -> dict[str, str]:
        """Of every command."""
        return {
            "XDG_STATE_HOME": str(self.scratch / "state"),
            "XDG_CONFIG_HOME": str(self.scratch / "config"),
            "CLIENT_SECRET": self.secret,
        }

    @property
    def logins(self) -> list[Path]:
        """Files of the store."""
        return sorted((self.scratch / "state" / "mcp-sandbox" / "logins").glob("*.json"))

    def run(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the driver."""
        return command(verb, self.made, self.scratch, *more, env=self.env)  # type: ignore[no-any-return]

    def call(self, message: str, *more: str) -> subprocess.CompletedProcess[str]:
        """Call the tool."""
        return self.run("call", "remote-echo", "--args", json.dumps({"message": message}), *more)

    def trail(self) -> str:
        """Return every record."""
        return "".join(path.read_text() for path in sorted((self.scratch / "audit" / "segments").glob("*.jsonl")))

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of every record of a name."""
        records = [json.loads(line) for line in self.trail().splitlines()]
        return [one["attrs"] for one in records if one["name"] == name]


def desk_of(folder: Path, found: World, auth: dict[str, Any]) -> Desk:
    """Write a driver with ``server.auth``, and a policy that lets it reach the servers."""
    made = driver(folder, found.server.mcp, found.rules()[1])
    path = made / "DRIVER.md"
    block = "  auth: " + json.dumps({"type": "oauth2", **auth}) + "\n"
    text = path.read_text().replace("transport:", block + "transport:", 1)
    path.write_text(text.replace(f'"{found.rules()[1]}"', ", ".join(f'"{rule}"' for rule in found.rules())))
    if "client_secret" in auth:
        (made / "SECRETS.md").write_text(INVENTORY)
    policy(folder, ca=str(found.files.bundle), hosts=("198.51.100.0/24",))
    return Desk(found, made, folder)


@contextmanager
def logging_in(desk: Desk, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Begin a login; yield the address that it prints, and the command."""
    argv = [sys.executable, "-m", "sandbox", "login", str(desk.made), "--policy", str(desk.scratch / "policy.toml")]
    argv += ["--audit-dir", str(desk.scratch / "audit"), *more]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, **desk.env}
    )
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        said = ""
        while True:
            line = lines.get(timeout=120)
            said += line
            assert line, said
            if line.strip().startswith("https://"):
                break
        yield line.strip(), process
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def log_in(desk: Desk, *more: str) -> str:
    """Log in as a person would; return what the command prints."""
    with logging_in(desk, *more) as (address, process):
        assert 200 == come_back(desk.world.visit(address))
        assert process.stdout is not None
        said = process.stdout.read()
        assert 0 == process.wait(120)
    return said


def test_a_person_logs_in_and_uses_the_server(tmp_path: Path) -> None:
    """Nobody is let in before the login; after it calls work in other processes, and after the logout no more."""
    with world(tmp_path) as found:
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        before = desk.call("hi")
        none = desk.run("login", "--status")
        said = log_in(desk)
        there = desk.run("login", "--status")
        calls = [desk.call("hi"), desk.call("scope")]
        shown = desk.run("plan")
        given = found.issuer.secrets_given()
        out = desk.run("logout")
        after, again = desk.call("hi"), desk.run("logout")

    assert (3, 3) == (before.returncode, none.returncode), before.stderr
    assert "OAU-001" in before.stderr
    assert "mcp-sandbox login" in before.stderr
    assert f"logged in at {found.issuer.url}\nscopes: echo:use\n" in said
    assert said == there.stdout
    assert ["hi\n", "echo:use\n"] == [one.stdout for one in calls], calls[0].stderr
    assert f"for {found.server.mcp}, scopes echo:use" in shown.stdout
    assert (0, 3) == (out.returncode, after.returncode), out.stderr
    assert "its tokens are revoked" in out.stdout
    assert "nobody was logged in" in again.stdout
    assert not found.issuer.tokens
    assert not found.issuer.refresh
    assert [] == desk.logins
    sent = {one.form["resource"] for one in found.issuer.at("/token")}
    assert {found.server.mcp} == sent | {one.query["resource"] for one in found.issuer.at("/authorize")}
    everything = desk.trail() + "".join(one.stdout + one.stderr for one in (before, none, there, *calls, shown, out))
    assert len(given) == 2
    assert not [one for one in given if one in everything + said]
    assert ["echo:use"] == desk.events("oauth.login")[0]["scopes"]


@pytest.mark.claim("P-OAU-01")
def test_a_login_lies_where_only_its_owner_reads_it(tmp_path: Path) -> None:
    """The file and its folder are the owner's alone; one that others may read is refused, and its token is not used."""
    with world(tmp_path) as found:
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        log_in(desk)
        (login,) = desk.logins
        modes = [login.stat().st_mode & 0o777, login.parent.stat().st_mode & 0o777]
        control = desk.call("hi")
        login.chmod(0o640)
        seen = len(found.server.requests)
        loose = desk.call("hi")
        reached = found.server.requests[seen:]

    assert [0o600, 0o700] == modes
    assert "hi\n" == control.stdout, control.stderr
    assert 3 == loose.returncode
    assert "OAU-002" in loose.stderr
    assert not [one for one in reached if "authorization" in one.headers]


@pytest.mark.claim("P-OAU-02")
def test_another_driver_or_tenant_finds_no_login(tmp_path: Path) -> None:
    """A login is of the driver as it was reviewed and of one tenant: a changed file or another tenant has none."""
    with world(tmp_path) as found:
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        log_in(desk)
        control, other = desk.call("hi"), desk.call("hi", "--tenant", "somebody")
        contract = desk.made / "tools" / "echo" / "TOOL.md"
        text = contract.read_text()
        contract.write_text(text.replace("Returns its message.", "Returns its message, and more."))
        changed = desk.call("hi")
        contract.write_text(text)
        back = desk.call("hi")
        contract.write_text(text.replace("Returns its message.", "Returns it."))
        out = desk.run("logout")

    assert ["hi\n", "hi\n"] == [control.stdout, back.stdout], back.stderr
    assert all("OAU-001" in one.stderr for one in (other, changed))
    assert "its tokens are revoked" in out.stdout, "a login of an earlier state can still be ended"
    assert [] == desk.logins


@pytest.mark.claim("P-OAU-03")
def test_tokens_never_come_back(tmp_path: Path) -> None:
    """A server that sends its token back, as a result or an error, finds it in no result, message or record."""
    with world(tmp_path) as found:
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        log_in(desk)
        control, result, failure = desk.call("hi"), desk.call("token"), desk.call("fail")
        given = found.issuer.secrets_given()

    assert "hi\n" == control.stdout, control.stderr
    assert "you sent [redacted" in result.stdout
    everything = "".join(one.stdout + one.stderr for one in (result, failure)) + desk.trail()
    assert "you sent" in failure.stdout + failure.stderr
    assert not [one for one in given if one in everything]


def test_machines_use_their_own_id(tmp_path: Path) -> None:
    """With an id and a secret no login is needed; the secret goes to the named issuer, the token to the server."""
    with world(tmp_path) as found:
        auth = {
            "grant": "client_credentials", "issuer": found.issuer.url, "client_id": "robot",
            "client_secret": "${secrets.CLIENT_SECRET}", "scopes": ["echo:use"],
        }  # fmt: skip
        desk = desk_of(tmp_path, found, auth)
        done, echoed, login = desk.call("scope"), desk.call("token"), desk.run("login")
        given = found.issuer.secrets_given()

    assert "echo:use\n" == done.stdout, done.stderr
    assert "you sent [redacted" in echoed.stdout, echoed.stderr
    assert 2 == login.returncode
    assert "CLI-240" in login.stderr
    assert [] == desk.logins, "nothing of it is kept on disk"
    assert ["client_credentials"] * 2 == [one.form["grant_type"] for one in found.issuer.at("/token")]
    assert all(one.headers["authorization"].startswith("Basic ") for one in found.issuer.at("/token"))
    kept = desk.trail() + done.stdout + done.stderr + echoed.stdout + echoed.stderr
    assert not [one for one in (*given, SECRET) if one in kept]
    assert {"client_credentials"} == {one["grant"] for one in desk.events("oauth.token")}


@pytest.mark.claim("P-OAU-04")
def test_two_processes_renew_one_login_once(tmp_path: Path) -> None:
    """Processes that meet an expired token together use one refresh token once, so that no reuse ends the login."""
    with world(tmp_path) as found:
        found.issuer.life = 2.0
        desk = desk_of(tmp_path, found, {"scopes": ["echo:use"]})
        log_in(desk)
        found.issuer.life = 600.0
        until = time.monotonic() + 60
        while time.monotonic() < until and any(one.until > time.time() for one in found.issuer.tokens.values()):
            time.sleep(0.1)
        results: list[subprocess.CompletedProcess[str]] = []
        threads = [threading.Thread(target=lambda: results.append(desk.call("hi"))) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(240)
        renewals = [one for one in found.issuer.at("/token") if one.form["grant_type"] == "refresh_token"]
        later = desk.call("hi")

    assert ["hi\n"] * 3 == [one.stdout for one in results], results[0].stderr
    assert 1 == len(renewals)
    assert not found.issuer.ended
    assert "hi\n" == later.stdout

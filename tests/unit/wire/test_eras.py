from __future__ import annotations

import json

import pytest

from sandbox.wire import methods
from sandbox.wire.codes import for_client
from sandbox.wire.errors import WireError
from sandbox.wire.results import CACHEABLE, MAY_ASK_FOR_INPUT, dressed, listed, neutral, older_content
from sandbox.wire.versions import (
    HANDSHAKE_VERSIONS,
    STATELESS_VERSIONS,
    VERSIONS,
    agreed_handshake,
    era_of,
    newest_stateless,
)
from tests.shared import shared

PUBLISHED = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Versions whose schema lies in the shared folder."""

INFO = {"name": "us", "version": "0"}


def schema(version: str) -> dict:
    """Return the definitions of a published schema."""
    whole = json.loads(shared("upstream", "mcp-spec", "schema", version, "schema.json").read_text())
    return whole.get("definitions") or whole["$defs"]


def union(definitions: dict, name: str) -> set[str]:
    """Return the methods that a union of the schema names."""
    one = definitions.get(name, {})
    parts = [definitions[ref["$ref"].rpartition("/")[2]] for ref in one.get("anyOf", [])] or [one]
    return {part["properties"]["method"]["const"] for part in parts if "method" in part.get("properties", {})}


@pytest.mark.data
@pytest.mark.parametrize("version", PUBLISHED)
@pytest.mark.parametrize("sender", ["client", "server"])
@pytest.mark.parametrize("kind", ["request", "notification"])
def test_the_table_is_the_schema(version: str, sender: str, kind: str) -> None:
    """Every method of a published schema is in our table or excluded with a reason, and the table has nothing else."""
    published = union(schema(version), f"{sender.title()}{kind.title()}")
    ours = {name for name, row in methods.of(version, sender).items() if row.kind == kind}  # type: ignore[arg-type]

    assert published - set(methods.EXCLUDED) == ours


@pytest.mark.data
def test_cacheable_results_are_those_of_the_schema() -> None:
    """Exactly the results that must carry caching hints get them."""
    definitions = schema("2026-07-28")
    required = {
        definitions[name.removesuffix("Result") + "Request"]["properties"]["method"]["const"]
        for name, one in definitions.items()
        if name.endswith("Result") and "ttlMs" in one.get("required", []) and name != "CacheableResult"
    }

    assert required == CACHEABLE


@pytest.mark.data
def test_input_may_be_asked_for_where_the_schema_says() -> None:
    """Exactly the requests whose response may be an input request are known as such."""
    definitions = schema("2026-07-28")
    asking = set()
    for name, one in definitions.items():
        if name.endswith("ResultResponse") and "InputRequiredResult" in json.dumps(one["properties"]["result"]):
            request = definitions[name.removesuffix("ResultResponse") + "Request"]
            asking.add(request["properties"]["method"]["const"])

    assert asking == MAY_ASK_FOR_INPUT


@pytest.mark.data
@pytest.mark.parametrize(("era", "version"), [("handshake", v) for v in PUBLISHED[:3]] + [("stateless", "2026-07-28")])
def test_eras_are_told_by_initialize(era: str, version: str) -> None:
    """A version is of the handshake era when its schema has ``initialize``."""
    assert ("initialize" in union(schema(version), "ClientRequest")) == (era == "handshake")
    assert era == era_of(version)


def test_versions_are_in_order() -> None:
    """Versions compare as text, oldest first, every handshake one before every stateless one."""
    assert sorted(VERSIONS) == list(VERSIONS)
    assert max(HANDSHAKE_VERSIONS) < min(STATELESS_VERSIONS)


@pytest.mark.parametrize(
    ("requested", "agreed"),
    [(v, v) for v in HANDSHAKE_VERSIONS]
    + [("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25"), (None, "2025-11-25"), (["2025-06-18"], "2025-11-25")],
)
def test_version_of_a_handshake(requested: object, agreed: str) -> None:
    """A version we speak is agreed on, any other is answered with our latest."""
    assert agreed == agreed_handshake(requested)


@pytest.mark.parametrize(
    ("supported", "chosen"),
    [
        (["2025-11-25", "2026-07-28"], "2026-07-28"),
        (["2027-01-01"], None),
        ([], None),
        ("2026-07-28", None),
        (None, None),
    ],
)
def test_version_without_a_handshake(supported: object, chosen: str | None) -> None:
    """The newest version that both speak is chosen; what is no list names none."""
    assert chosen == newest_stateless(supported)


@pytest.mark.claim("P-WIRE-09")
def test_neutral_drops_what_belongs_to_the_hop() -> None:
    """Result type, caching hints and the protocol's own keys stop at us; everything else stays."""
    meta = {"io.modelcontextprotocol/serverInfo": INFO, "com.example/a": 1, "baggage": "x", "traceparent": "00-a-b-01"}
    result = {"content": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "public", "_meta": meta, "extra": 1}

    assert (
        "complete",
        {"content": [], "extra": 1, "_meta": {"com.example/a": 1, "traceparent": "00-a-b-01"}},
    ) == neutral(result, "tools/call", "stateless")


def test_neutral_leaves_a_plain_result_alone() -> None:
    """The common result is not copied."""
    result = {"content": []}

    assert result is neutral(result, "tools/call", "handshake")[1]


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("tools/call", "task"),
        ("tools/call", None),
        ("tools/list", "input_required"),
        ("completion/complete", "input_required"),
    ],
)
def test_unknown_result_types_are_invalid(method: str, kind: object) -> None:
    """A result type that the method cannot have is refused (2026-07-28, ResultType)."""
    with pytest.raises(WireError) as caught:
        neutral({"resultType": kind}, method, "stateless")

    assert "WIRE-020" == caught.value.id


def test_a_result_type_means_nothing_in_the_handshake_era() -> None:
    """A member of that name is of no meaning to an old server, and is dropped."""
    assert ("complete", {}) == neutral({"resultType": "input_required"}, "tools/call", "handshake")


@pytest.mark.claim("P-WIRE-09")
def test_dressed_for_a_stateless_client() -> None:
    """Required members are added, and what was cached by nobody is private and stale."""
    shown = dressed({"tools": []}, "tools/list", "2026-07-28", INFO)

    assert {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
    } == shown


@pytest.mark.parametrize(
    ("version", "structured", "expected"),
    [
        ("2025-03-26", {"a": 1}, None),
        ("2025-06-18", {"a": 1}, {"a": 1}),
        ("2025-11-25", [1], None),
        ("2026-07-28", [1], [1]),
    ],
)
def test_structured_content_by_version(version: str, structured: object, expected: object) -> None:
    """Structured content exists from 2025-06-18 on, and may be anything from 2026-07-28 on."""
    shown = dressed({"content": [], "structuredContent": structured}, "tools/call", version, INFO)

    assert expected == shown.get("structuredContent")


@pytest.mark.parametrize(
    ("version", "kept"), [("2024-11-05", set()), ("2025-03-26", {"audio"}), ("2025-06-18", {"audio", "resource_link"})]
)
def test_content_types_by_version(version: str, kept: set[str]) -> None:
    """A content type that a version does not have becomes a line of text."""
    blocks = [
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "a:b", "name": "a"},
    ]
    shown = dressed({"content": blocks}, "tools/call", version, INFO)["content"]

    assert kept == {block["type"] for block in shown} - {"text"}


def test_replaced_content_says_what_it_was() -> None:
    """The line of text names what cannot be shown."""
    shown = older_content({"type": "resource_link", "uri": "note://one"}, "2024-11-05")

    assert shown["text"].startswith("[resource_link: note://one;")


def test_listed_members_by_version() -> None:
    """Members that a version does not know are left out of its lists."""
    definition = {"name": "a", "title": "A", "annotations": {}, "outputSchema": {}, "icons": [], "_meta": {}}

    assert {"name"} == set(listed(definition, "2024-11-05"))
    assert {"name", "annotations"} == set(listed(definition, "2025-03-26"))
    assert {"name", "annotations", "title", "outputSchema", "_meta"} == set(listed(definition, "2025-06-18"))
    assert set(definition) == set(listed(definition, "2026-07-28"))


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (-32002, "2025-11-25", -32002),
        (-32002, "2026-07-28", -32602),
        (-32042, "2026-07-28", -32600),
        (-31020, "2025-11-25", -32603),
        (-31000, "2026-07-28", -32603),
        (-32603, "2026-07-28", -32603),
        (42, "2026-07-28", 42),
    ],
)
def test_codes_of_servers(code: int, version: str, expected: int) -> None:
    """A server can neither use our codes nor those that the client's version forbids."""
    assert expected == for_client(code, None, version)[0]


def test_a_borrowed_code_is_told() -> None:
    """A server that answers with one of our codes is not silently corrected."""
    assert {"serverCode": -31020} == for_client(-31020, "x", "2025-11-25")[1]

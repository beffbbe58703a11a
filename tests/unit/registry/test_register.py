"""The register: every answer is valid under the published schemas, and nobody learns of what is not for them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sandbox.errors import UsageError
from sandbox.registry.catalog import Catalog
from sandbox.registry.entity import ServerEntity, from_kno
from sandbox.registry.kno.read import read_kno
from sandbox.registry.pages import Health, Pages
from sandbox.registry.project import OFFICIAL, llms_txt, manifest, server_json
from tests.shared import ROOT, shared

pytestmark = pytest.mark.anyio
API = ("upstream", "mcp-registry", "registry-repo-2026-04-15", "docs", "reference", "api", "openapi.yaml")
BASE = "https://mcp.example.com"
CORPUS = [from_kno(read_kno(path), "space.possibility") for path in sorted((ROOT / "tests/data/kno").glob("*.kno"))]
PUBLIC = {
    "space.possibility/public-mcp",
    "space.possibility/guides-mcp",
    "space.possibility/identity-mcp",
    "org.example/catalog",
}


def entity(name: str, **parts: Any) -> ServerEntity:
    """Return a server."""
    made = ServerEntity(
        slug=name, name=f"com.example/{name}", title=name.title(), description=f"The {name}.",
        endpoint_path=f"/mcp/{name}", version="1.0.0", published="2026-01-01T00:00:00Z", updated="2026-02-01T00:00:00Z",
    )  # fmt: skip
    return dataclasses.replace(made, **parts)


CATALOG = Catalog(
    (
        *CORPUS,
        *(entity("many", version=f"1.{n}.0", auth="none", visibility="public") for n in range(7)),
        entity("team"),
        entity("secret", visibility="internal"),
        entity("partner", visibility="restricted"),
    ),
    BASE,
    (
        entity(
            "many", version="0.1.0", auth="none", visibility="public", status="deprecated", status_message="use 1.6.0"
        ),
        entity("old", version="0.1.0", auth="none", visibility="public", status="deleted", status_message="gone"),
        entity(
            "team",
            version="0.1.0",
            status="deleted",
            updated="2026-01-02T00:00:00Z",
            status_changed="2026-01-02T00:00:00Z",
        ),
    ),
)


def validators() -> tuple[Any, Any]:
    """Return validators of the published server schema and of the API's list."""
    server = json.loads(shared("upstream", "mcp-registry", "schemas", "2025-12-11", "server.schema.json").read_text())
    api = yaml.safe_load(shared(*API).read_text())
    listing = {"$ref": "#/components/schemas/ServerList", "components": api["components"]}
    checker = jsonschema.FormatChecker()
    return jsonschema.Draft7Validator(server, format_checker=checker), jsonschema.Draft202012Validator(listing)


@pytest.mark.data
@pytest.mark.parametrize("audience", ["", "user", "admin"])
def test_every_answer_is_valid_under_the_published_schemas(audience: str) -> None:
    """server.schema.json 2025-12-11 and the registry's OpenAPI (S4-3, conflicts C1 to C3)."""
    server, listing = validators()
    page = json.loads(json.dumps(CATALOG.page({"limit": "100"}, audience)))

    listing.validate(page)
    for one in page["servers"]:
        server.validate(one["server"])
        assert OFFICIAL not in one["server"].get("_meta", {})
        wanted = "deprecated" if one["server"]["version"] == "0.1.0" else "active"
        assert wanted == one["_meta"][OFFICIAL]["status"]


@pytest.mark.data
@pytest.mark.parametrize("audience", ["", "user", "admin"])
async def test_every_route_answers_as_the_published_api_says(audience: str) -> None:
    """Lists, versions, one version and errors, of what is served, deprecated and deleted, by the API's own document."""
    api = yaml.safe_load(shared(*API).read_text())
    server, _ = validators()
    checked: set[tuple[str, int]] = set()
    for route, path in (
        ("/v0.1/servers", "/v0.1/servers"),
        ("/v0.1/servers", "/v0.1/servers?include_deleted=true&limit=100"),
        ("/v0.1/servers", "/v0.1/servers?updated_since=2020-01-01T00:00:00Z&limit=100"),
        *(
            ("/v0.1/servers/{serverName}/versions", f"/v0.1/servers/com.example%2F{name}/versions{query}")
            for name in ("many", "team", "old", "none") for query in ("", "?include_deleted=true")
        ),
        *(
            ("/v0.1/servers/{serverName}/versions/{version}", f"/v0.1/servers/com.example%2F{name}/versions/{version}")
            for name in ("many", "team", "old", "none") for version in ("latest", "0.1.0", "0.1.0?include_deleted=true")
        ),
    ):  # fmt: skip
        status, _headers, body = await ask(path, audience)
        content = api["paths"][route]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
        value = json.loads(body)
        jsonschema.Draft202012Validator({**content, "components": api["components"]}).validate(value)
        for one in value.get("servers", [value] if "server" in value else []):
            server.validate(one["server"])
            checked.add((one["_meta"][OFFICIAL]["status"], status))
        checked.add(("", status))

    assert {("active", 200), ("deprecated", 200), ("deleted", 200), ("", 200), ("", 404)} == checked


def test_conflicts_of_the_texts_are_solved_as_said() -> None:
    """C1 to C5: address filled in, headers and sizes as lists, sources kept, scopes beside nothing official."""
    catalog = server_json(next(one for one in CORPUS if one.name == "org.example/catalog"), BASE)

    assert [f"{BASE}/mcp/catalog", f"{BASE}/mcp/catalog/sse"] == [one["url"] for one in catalog["remotes"]]
    assert [{"name": "X-Channel", "value": "stable"}] == catalog["remotes"][0]["headers"]
    assert [
        {"src": "https://example.com/icon.png", "mimeType": "image/png", "sizes": ["48x48", "96x96"], "theme": "dark"}
    ] == (catalog["icons"])
    assert "other" == catalog["repository"]["source"]
    assert {"com.example/tier", "space.possibility/scopes"} == set(catalog["_meta"])


@pytest.mark.claim("P-REG-01")
def test_nobody_learns_of_what_is_not_for_them() -> None:
    """S4-39 to S4-41: strangers see public servers, those who sign in a little more, operators all."""
    seen = {
        audience: {one["server"]["name"] for one in CATALOG.page({"limit": "100"}, audience)["servers"]}
        for audience in ("", "user", "admin")
    }

    assert PUBLIC | {"com.example/many"} == seen[""]
    assert {"com.example/team"} == seen["user"] - seen[""]
    assert {"com.example/secret", "com.example/partner", "space.possibility/admin-mcp"} == seen["admin"] - seen["user"]
    assert "secret" not in llms_txt(CATALOG.shown(), BASE) + json.dumps(manifest(CATALOG.shown("user"), BASE))
    assert CATALOG.versions("com.example/secret", "user") is None


@given(st.integers(1, 12), st.sampled_from(["", "user", "admin"]))
def test_pages_together_are_the_list(size: int, audience: str) -> None:
    """Whatever the size of a page: nothing twice, nothing left out, in one order."""
    whole = CATALOG.page({"limit": "100"}, audience)["servers"]
    found, cursor = [], ""
    for _ in itertools.count():
        page = CATALOG.page({"limit": str(size), "cursor": cursor}, audience)
        found += page["servers"]
        assert page["metadata"]["count"] == len(page["servers"]) <= size
        cursor = page["metadata"].get("nextCursor", "")
        if not cursor:
            break

    assert whole == found


def test_filters_and_versions() -> None:
    """Search by name, latest, one version, changed since; the newest version is marked and comes first."""

    def names(**query: str) -> list[tuple[str, str]]:
        return [(one["server"]["name"], one["server"]["version"]) for one in CATALOG.page(query, "user")["servers"]]

    assert [("com.example/many", "1.6.0")] == names(search="MANY", version="latest")
    assert [("com.example/many", "1.2.0")] == names(version="1.2.0", search="many")
    assert [("com.example/team", "1.0.0")] == names(search="team", updated_since="2026-02-01T00:00:00Z")
    assert [] == names(search="team", updated_since="2026-02-01T00:00:01Z")
    versions = CATALOG.versions("com.example/many")
    assert versions is not None
    wanted = [*(f"1.{n}.0" for n in range(6, -1, -1)), "0.1.0"]
    assert wanted == [one["server"]["version"] for one in versions["servers"]]
    assert [True] + [False] * 7 == [one["_meta"][OFFICIAL]["isLatest"] for one in versions["servers"]]
    assert "1.6.0" == (CATALOG.version("com.example/many", "latest") or {})["server"]["version"]


@pytest.mark.claim("P-REG-01")
def test_a_hidden_newer_version_is_not_betrayed() -> None:
    """Who may not know of the newest version has the newest that they know of as the latest."""
    newer = entity("x", version="2.0.0", visibility="internal")
    catalog = Catalog((entity("x", auth="none", visibility="public"), newer), BASE)

    def latest(audience: str) -> str:
        (one,) = catalog.page({"version": "latest"}, audience)["servers"]
        assert one["_meta"][OFFICIAL]["isLatest"]
        assert one == catalog.version("com.example/x", "latest", audience)
        return str(one["server"]["version"])

    assert ["1.0.0", "1.0.0", "2.0.0"] == [latest(audience) for audience in ("", "user", "admin")]


def test_versions_are_ordered_as_semver_says() -> None:
    """Semantic Versioning §11, its own example."""
    order = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
    ]
    catalog = Catalog(tuple(entity("x", version=one, visibility="public", auth="none") for one in order), BASE)
    found = catalog.versions("com.example/x")

    assert found is not None
    assert order[::-1] == [one["server"]["version"] for one in found["servers"]]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "-1"},
        {"limit": "x"},
        {"cursor": "x"},
        {"cursor": "bnVsbA"},
        {"updated_since": "now"},
        {"search": "x" * 201},
    ],
)
def test_malformed_questions_are_told_so(query: dict[str, str]) -> None:
    """They are errors of the client, never of ours."""
    with pytest.raises(UsageError, match="REG-001"):
        CATALOG.page(query)


async def ask(
    path: str, audience: str = "", client: str = "203.0.113.9", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Ask the pages; no socket is needed."""

    async def who(_headers: Any, _scope: Any) -> str:
        return audience

    pages = Pages(lambda: CATALOG, who, Health(lambda: False, lambda seen: {"for": seen}, lambda: b"metrics 1\n"))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http", "method": headers.pop("method", "GET"), "path": raw.replace("%2F", "/"),
        "raw_path": raw.encode(),
        "query_string": query.encode(), "client": (client, 1),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    await pages(scope, None, send)  # type: ignore[arg-type]
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, sent[1]["body"]


@pytest.mark.parametrize(
    ("path", "audience", "status"),
    [
        ("/v0.1/servers", "", 200),
        ("/v0.1/servers?limit=x", "", 400),
        ("/v0.1/servers/com.example%2Fmany/versions", "", 200),
        ("/v0.1/servers/com.example/many/versions/latest", "", 200),
        ("/v0.1/servers/com.example%2Fmany/versions/9.9.9", "", 404),
        ("/v0.1/servers/com.example%2Fteam/versions/latest", "", 404),
        ("/v0.1/servers/com.example%2Fteam/versions/latest", "user", 200),
        ("/v0.1/servers/versions/versions", "", 404),
        ("/.well-known/integration", "", 200),
        ("/llms.txt", "", 200),
        ("/docs/mcp", "", 200),
        ("/docs/mcp/many", "", 200),
        ("/docs/mcp/team", "", 404),
        ("/docs/mcp/team", "user", 200),
        ("/docs/mcp/secret", "user", 404),
        ("/docs/mcp/secret", "admin", 200),
        ("/metadata", "", 200),
        ("/healthz", "", 200),
        ("/readyz", "", 503),
        ("/metrics", "user", 404),
        ("/metrics", "admin", 200),
        ("/", "", 404),
        ("/v0.1/publish", "admin", 404),
    ],
)
async def test_each_page_answers_who_may_read_it(path: str, audience: str, status: int) -> None:
    """What somebody may not know of is not there: 404, never 403."""
    assert status == (await ask(path, audience))[0]


async def test_pages_are_cached_by_digest_and_readable_from_any_page() -> None:
    """ETag and 304; the register may be read by pages of others, what is only for people may not."""
    status, headers, body = await ask("/v0.1/servers")
    again = await ask("/v0.1/servers", if_none_match=headers["etag"])
    local = await ask("/metrics", client="127.0.0.1")

    assert (200, "*") == (status, headers["access-control-allow-origin"])
    assert (304, b"") == (again[0], again[2])
    assert b"servers" in body
    assert 200 == local[0]
    assert "access-control-allow-origin" not in (await ask("/docs/mcp"))[1]
    assert 405 == (await ask("/v0.1/servers", method="POST"))[0]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "mcp.example"},
        {"host": "localhost.mcp.example:8080"},
        {"host": "127.0.0.1:8080", "x_forwarded_for": "198.51.100.7"},
        {"host": "127.0.0.1:8080", "forwarded": "for=198.51.100.7"},
        {"host": "127.0.0.1:8080", "via": "1.1 proxy"},
        {"host": "127.0.0.1:8080", "x_real_ip": "198.51.100.7"},
    ],
    ids=["name", "trick", "forwarded-for", "forwarded", "via", "real-ip"],
)
async def test_what_a_proxy_of_this_machine_passes_on_does_not_come_from_it(headers: dict[str, str]) -> None:
    """Attack: figures name drivers that are told to nobody; a stranger asks through the proxy that ends TLS here."""
    assert 404 == (await ask("/metrics", client="127.0.0.1", **headers))[0]
    assert 200 == (await ask("/metrics", client="127.0.0.1", host="127.0.0.1:8080"))[0]
    assert 200 == (await ask("/metrics", client="::1", host="[::1]:8080"))[0]


async def test_texts_of_entities_cannot_become_markup() -> None:
    """A hostile description stays text on pages and in llms.txt."""
    evil = entity(
        "evil", description="](x) <script>alert(1)</script>\n# h", title="<b>", auth="none", visibility="public"
    )
    text = llms_txt([evil], BASE)

    assert "<" not in text
    assert 1 == text.count("](")

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox.spec.model import BinaryServer, DockerServer, NpmServer, RemoteServer, secret_slug
from sandbox.spec.server import PROTOCOL_VERSIONS
from tests.unit.spec.folders import SECRET, checked, driver, errors, front, loaded, warnings, write

DIGEST = "sha256:" + "a" * 64

REMOTE = {"kind": "remote", "url": "https://mcp.example.com/v1"}


def server(**block: Any) -> dict[str, Any]:
    """Return a driver with another `server` block."""
    return driver(server=block)


def npm(**changes: Any) -> dict[str, Any]:
    """Return a driver with an npm server that differs."""
    return server(**({"kind": "npm", "package": "server-x"} | changes))


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"kind": "binary", "path": "/opt/server"}, BinaryServer),
        ({"kind": "binary", "path": "./bin/server", "args": ["a"], "env": {"A": "b"}}, BinaryServer),
        ({"kind": "npm", "package": "server-x@1.2.3"}, NpmServer),
        ({"kind": "npm", "package": "@s/server-x@^1.2"}, NpmServer),
        ({"kind": "docker", "image": f"server@{DIGEST}"}, DockerServer),
        ({"kind": "docker", "image": DIGEST}, DockerServer),
    ],
)
def test_local_shapes_load(tmp_path: Path, block: dict[str, Any], kind: type) -> None:
    """Each local shape of AIP-32 becomes its value."""
    assert isinstance(loaded(tmp_path, driver(server=block)).server, kind)


def test_the_remote_shape_loads_with_auth_and_headers(tmp_path: Path) -> None:
    """A remote server keeps `auth`, which AIP-32's schema lacks (T0-10), and headers that refer to secrets."""
    block = {**REMOTE, "auth": {"type": "oauth"}, "headers": {"Authorization": "${secrets.API_KEY}", "X-A": "b"}}
    values = driver(server=block, transport="http", network={"egress": ["mcp.example.com"]}, sandbox=None)

    found = loaded(tmp_path, values, secrets=[SECRET]).server

    expected = RemoteServer(
        kind="remote",
        url="https://mcp.example.com/v1",
        auth={"type": "oauth"},
        headers={"Authorization": "${secrets.api-key}", "X-A": "b"},
    )
    assert expected == found


def test_a_login_is_read_with_its_secrets_by_slug(tmp_path: Path) -> None:
    """`type: oauth2` is a closed block: scopes are words of RFC 6749, and a client's secret is never literal."""
    auth = {"type": "oauth2", "scopes": ["a:b"], "client_id": "c", "client_secret": "${secrets.API_KEY}"}
    values = driver(
        server={**REMOTE, "auth": auth}, transport="http", network={"egress": ["mcp.example.com"]}, sandbox=None
    )

    def ids(**changes: Any) -> set[str]:
        server_ = {**REMOTE, "auth": {**auth, **changes}}
        return {id_ for id_, _ in errors(checked(tmp_path, {**values, "server": server_}, secrets=[SECRET])[1])}

    found = loaded(tmp_path, values, secrets=[SECRET]).server

    assert {**auth, "client_secret": "${secrets.api-key}"} == found.auth  # type: ignore[union-attr]
    assert {"SPEC-086"} == ids(client_secret="literal")
    assert {"SPEC-081"} == ids(client_id="${secrets.NOBODY}")
    assert "SPEC-042" in ids(token="x")
    assert ids(scopes=["a b"])
    assert ids(grant="password")


def test_a_scheme_may_stand_before_a_secret(tmp_path: Path) -> None:
    """``Bearer ${secrets.NAME}`` is resolved to the slug; anything else around a secret is refused."""
    block = {**REMOTE, "headers": {"Authorization": "Bearer ${secrets.API_KEY}"}}
    values = driver(server=block, transport="http", network={"egress": ["mcp.example.com"]}, sandbox=None)
    bad = {**values, "server": {**REMOTE, "headers": {"Authorization": "a b ${secrets.API_KEY}"}}}

    found = loaded(tmp_path, values, secrets=[SECRET]).server

    assert {"Authorization": "Bearer ${secrets.api-key}"} == found.headers  # type: ignore[union-attr]
    assert "SPEC-080" in {id_ for id_, _ in errors(checked(tmp_path, bad, secrets=[SECRET])[1])}


@pytest.mark.claim("P-SPEC-04")
@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"kind": "npm", "package": "server-x", "--privileged": True}, ("SPEC-042", "server.--privileged")),
        ({"kind": "npm", "package": "server-x", "volumes": ["/:/host"]}, ("SPEC-042", "server.volumes")),
        ({"kind": "npm", "package": "server-x", "privileged": True}, ("SPEC-042", "server.privileged")),
        ({"kind": "npm", "package": "server-x; rm -rf /"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "--call=sh"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "git+ssh://git@h/x"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "file:../x"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "x@npm:y"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "x@latest"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "x@"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "../x"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "x y"}, ("SPEC-073", "server.package")),
        ({"kind": "npm", "package": "x\ny"}, ("SPEC-046", "server.package")),
        ({"kind": "npm", "package": ""}, ("SPEC-073", "server.package")),
        ({"kind": "docker", "image": "x --cap-add=ALL"}, ("SPEC-074", "server.image")),
        ({"kind": "docker", "image": "--privileged"}, ("SPEC-074", "server.image")),
        ({"kind": "docker", "image": "x:tag:tag"}, ("SPEC-074", "server.image")),
        ({"kind": "docker", "image": "X/Upper"}, ("SPEC-074", "server.image")),
        ({"kind": "docker", "image": "x@sha256:abc"}, ("SPEC-074", "server.image")),
        ({"kind": "docker", "image": "x$(id)"}, ("SPEC-074", "server.image")),
        ({"kind": "npm", "package": "x", "args": "; sh"}, ("SPEC-043", "server.args")),
        ({"kind": "npm", "package": "x", "args": [8080]}, ("SPEC-043", "server.args[0]")),
        ({"kind": "npm", "package": "x", "args": ["a\nb"]}, ("SPEC-046", "server.args[0]")),
        ({"kind": "npm", "package": "x", "args": ["${secrets.API_KEY}"]}, ("SPEC-072", "server.args[0]")),
        ({"kind": "npm", "package": "x", "args": ["--t=${tenant.id}"]}, ("SPEC-072", "server.args[0]")),
        ({"kind": "npm", "package": "x", "args": None}, ("SPEC-043", "server.args")),
        ({"kind": "npm"}, ("SPEC-041", "server.package")),
        ({"kind": "docker", "package": "x"}, ("SPEC-042", "server.package")),
        ({"kind": "wasm", "path": "x"}, ("SPEC-044", "server.kind")),
        ({"path": "x"}, ("SPEC-041", "server.kind")),
        ({"kind": "binary", "path": "server"}, ("SPEC-094", "server.path")),
        ({"kind": "binary", "path": "../bin/server"}, ("SPEC-095", "server.path")),
        ({"kind": "binary", "path": ""}, ("SPEC-045", "server.path")),
    ],
)
def test_what_is_smuggled_into_the_server_block_is_refused(
    tmp_path: Path, block: dict[str, Any], expected: tuple[str, str]
) -> None:
    """Options, shell text, volumes, odd references and unknown keys are errors, never arguments (probe D03)."""
    assert expected in errors(checked(tmp_path, driver(server=block))[1])


@pytest.mark.claim("P-SPEC-05")
@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "ld_preload",
        "LD_LIBRARY_PATH",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "BASH_ENV",
        "ENV",
        "PATH",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "GCONV_PATH",
        "GIT_SSH_COMMAND",
        "npm_config_registry",
        "BASH_FUNC_ls",
        "DOCKER_HOST",
        "SSLKEYLOGFILE",
        "NODE_TLS_REJECT_UNAUTHORIZED",
    ],
)
def test_variables_that_decide_which_code_runs_are_refused(tmp_path: Path, name: str) -> None:
    """Loader, interpreter and shell hooks may be set neither in `server.env` nor in `sandbox.env`, nor be passed."""
    in_server = errors(checked(tmp_path, npm(env={name: "x"}))[1])
    in_set = errors(checked(tmp_path, driver(sandbox={"env": {"set": {name: "x"}}}))[1])
    passed = errors(checked(tmp_path, driver(sandbox={"env": {"pass": [name]}}))[1])

    assert [("SPEC-077", f"server.env.{name}")] == in_server
    assert [("SPEC-077", f"sandbox.env.set.{name}")] == in_set
    assert [("SPEC-077", "sandbox.env.pass[0]")] == passed


@pytest.mark.parametrize("name", ["A=B", "A B", "1A", "", "A-B", "A\nB", "Ä", "a" * 300])
def test_names_that_are_no_variables_are_refused(tmp_path: Path, name: str) -> None:
    """A name with `=`, a line break or other characters never reaches an environment."""
    found = [id_ for id_, _ in errors(checked(tmp_path, npm(env={name: "x"}))[1])]

    assert found in (["SPEC-076"], ["SPEC-030"], ["SPEC-032"])


def test_an_image_without_digest_is_a_warning(tmp_path: Path) -> None:
    """A tag can be moved (probe D05), which is told; a digest is quiet."""
    by_tag = checked(tmp_path / "1", server(kind="docker", image="server:1"))[1]
    by_digest = checked(tmp_path / "2", server(kind="docker", image=f"server:1@{DIGEST}"))[1]

    assert [("SPEC-084", "server.image")] == warnings(by_tag)
    assert () == by_digest


@pytest.mark.claim("P-SPEC-06")
@pytest.mark.parametrize(
    "value",
    [
        "${tenant.id}",
        "${TENANT.ID}",
        "${user.sub}",
        "x-${ tenant.id }",
        "${context.tenant}",
        "${request.user}",
        "${claims.x}",
    ],
)
def test_facts_about_a_tenant_are_never_bound_to_a_process(tmp_path: Path, value: str) -> None:
    """A variable with a tenant's or user's fact is refused wherever a driver may set one (S0-71)."""
    assert [("SPEC-079", "server.env.WHO")] == errors(checked(tmp_path, npm(env={"WHO": value}))[1])
    fixed = driver(sandbox={"env": {"set": {"WHO": value}}})

    assert [("SPEC-079", "sandbox.env.set.WHO")] == errors(checked(tmp_path, fixed)[1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${secrets.NOPE}", "SPEC-081"),
        ("prefix-${secrets.API_KEY}", "SPEC-080"),
        ("${secrets.API_KEY}${secrets.API_KEY}", "SPEC-080"),
        ("${HOME}", "SPEC-080"),
        ("${secrets.}", "SPEC-080"),
        ("${", "SPEC-080"),
        ("a\nb", "SPEC-078"),
        ("a\tb", "SPEC-078"),
        ("x" * 40_000, "SPEC-078"),
    ],
)
def test_values_that_cannot_be_given_are_refused(tmp_path: Path, value: str, expected: str) -> None:
    """Only one whole reference to a known slug is substituted; everything else in `${…}` is refused."""
    problems = checked(tmp_path, npm(env={"X": value}), secrets=[SECRET])[1]

    assert [(expected, "server.env.X")] == errors(problems)


@pytest.mark.parametrize("name", ["API_KEY", "api-key", "OTHER_NAME", "EXPOSED"])
def test_a_reference_is_resolved_to_its_slug(tmp_path: Path, name: str) -> None:
    """`${secrets.NAME}` finds a slug by convention, by itself, by binding and by exposure (AIP-19)."""
    secret = SECRET | {
        "metadata": {"bindings": {"env": ["OTHER_NAME"]}},
        "exposures": [{"kind": "env", "name": "EXPOSED", "field": "value"}],
    }
    values = npm(env={"X": f"${{secrets.{name}}}", "Y": "$plain"})

    env = loaded(tmp_path, values, secrets=[secret]).server.env  # type: ignore[union-attr]

    assert {"X": "${secrets.api-key}", "Y": "$plain"} == dict(env)
    assert "api-key" == secret_slug(env["X"])
    assert secret_slug(env["Y"]) is None


def test_a_literal_that_looks_like_a_secret_is_told_without_repeating_it(tmp_path: Path) -> None:
    """A token in the manifest is a warning, and the warning does not print it."""
    _, problems = checked(tmp_path, npm(env={"GITHUB_TOKEN": "ghp_abc", "TENANT_ID": "acme"}))

    assert [("SPEC-082", "server.env.GITHUB_TOKEN"), ("SPEC-083", "server.env.TENANT_ID")] == warnings(problems)
    assert "ghp_abc" not in "".join(map(str, problems))


# --- transports -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "failing", "warning"),
    [
        (npm() | {"transport": "stdio"}, [], []),
        (npm() | {"transport": "http"}, ["SPEC-089"], ["SPEC-088"]),
        (npm(port=8000) | {"transport": "http"}, [], ["SPEC-088"]),
        (npm(port=8000) | {"transport": "sse"}, [], ["SPEC-088"]),
        (npm(port=8000) | {"transport": "stdio"}, ["SPEC-087"], []),
        (npm(endpoint="/mcp") | {"transport": "stdio"}, ["SPEC-087"], []),
        (npm(port=80) | {"transport": "http"}, ["SPEC-045"], ["SPEC-088"]),
        (npm() | {"transport": "websocket"}, ["SPEC-044"], []),
        (driver(server=REMOTE, network={"egress": ["mcp.example.com"]}, sandbox=None), ["SPEC-090"], []),
        (driver(server=REMOTE, transport="http", sandbox=None), ["SPEC-092"], []),
        (driver(server=REMOTE, transport="sse", network={"egress": ["*.example.com"]}, sandbox=None), [], ["SPEC-091"]),
        (
            driver(
                server={"kind": "remote", "url": "http://mcp.example.com"},
                transport="http",
                network={"egress": ["mcp.example.com"]},
                sandbox=None,
            ),
            [],
            ["SPEC-097"],
        ),
    ],
)
def test_kind_and_transport_must_go_together(
    tmp_path: Path, values: dict[str, Any], failing: list[str], warning: list[str]
) -> None:
    """Impossible pairs are refused, unusual ones warned about (S0-16, S0-23, S0-40)."""
    _, problems = checked(tmp_path, values)

    assert failing == [id_ for id_, _ in errors(problems)]
    assert warning == [id_ for id_, _ in warnings(problems)]


def test_a_local_http_server_gets_its_usual_endpoint(tmp_path: Path) -> None:
    """The endpoint of a local server on http is /mcp unless the driver says otherwise."""
    usual = loaded(tmp_path, npm(port=8000) | {"transport": "http"}).server
    own = loaded(tmp_path, npm(port=8000, endpoint="/x") | {"transport": "http"}).server

    assert ("/mcp", "/x") == (usual.endpoint, own.endpoint)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pw@mcp.example.com",
        "http://user:pw@mcp.example.com",
        "https://mcp.example.com/#x",
        "https://",
        "ftp://mcp.example.com",
        "mcp.example.com",
        "https://mcp.example.com:99999",
        "https://[::1",
        "https://mcp.example.com\\@evil.example",
    ],
)
def test_remote_urls_are_plain_https(tmp_path: Path, url: str) -> None:
    """A remote server has a URL without credentials and tricks (B0-12); plain http is left to the operator."""
    values = driver(server={"kind": "remote", "url": url}, transport="http", network={"egress": ["mcp.example.com"]})

    problems = checked(tmp_path, values)[1]

    assert ("SPEC-075", "server.url") in errors(problems)
    assert "pw@" not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Host", "x", "SPEC-085"),
        ("Content-Length", "1", "SPEC-085"),
        ("X: Y", "x", "SPEC-085"),
        ("Mcp-Session-Id", "x", "SPEC-085"),
        ("Authorization", "Bearer abc", "SPEC-086"),
        ("X-Api-Key", "abc", "SPEC-086"),
        ("X-A", "a\nX-B: c", "SPEC-078"),
        ("X-A", "ä", "SPEC-078"),
    ],
)
def test_headers_cannot_smuggle_or_leak(tmp_path: Path, name: str, value: str, expected: str) -> None:
    """Headers of the transport, line breaks and literal credentials are refused without being repeated."""
    block = {**REMOTE, "headers": {name: value}}
    _, problems = checked(tmp_path, driver(server=block, transport="http", network={"egress": ["mcp.example.com"]}))

    assert expected in [id_ for id_, _ in errors(problems)]
    assert "Bearer abc" not in "".join(map(str, problems))


@pytest.mark.parametrize(
    ("text", "expected"),
    [(version, version) for version in PROTOCOL_VERSIONS]
    + [("2025-03", "2025-03-26"), ("2024-11", "2024-11-05"), ("2026-07", "2026-07-28")],
)
def test_protocol_versions_may_be_months(tmp_path: Path, text: str, expected: str) -> None:
    """A month stands for its revision (S0-24), quoted or not."""
    quoted = loaded(tmp_path / "1", driver(protocol_version=text))
    unquoted = loaded(tmp_path / "2", front(driver()).replace("\n---\n", f"\nprotocol_version: {text}\n---\n", 1))

    assert (expected, expected) == (quoted.protocol_version, unquoted.protocol_version)


@pytest.mark.parametrize("text", ["2025", "2025-04", "2025-03-27", "latest", "2025-0", "2025-03-2"])
def test_other_protocol_versions_are_refused(tmp_path: Path, text: str) -> None:
    """A revision that does not exist is refused with the list of those that do."""
    assert [("SPEC-093", "protocol_version")] == errors(checked(tmp_path, driver(protocol_version=text))[1])


def test_the_server_may_stand_in_server_json(tmp_path: Path) -> None:
    """`server` and the older `server_ref` may name a server.json, which is part of the digest (S0-17)."""
    folder = write(tmp_path, driver(server="./server.json"))
    (folder / "server.json").write_text('{"kind": "npm", "package": "server-x"}')
    one = loaded(tmp_path, driver(server="./server.json"))
    (folder / "server.json").write_text('{"kind": "npm", "package": "server-y"}')
    two = loaded(tmp_path, driver(server=None, server_ref="server.json"))

    assert "server-x" == one.server.package  # type: ignore[union-attr]
    assert "server-y" == two.server.package  # type: ignore[union-attr]
    assert one.digest != two.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"kind": "npm", "package": "x", "kind": "docker"}', "SPEC-034"),
        ('{"kind": "npm", "package": "x",}', "SPEC-034"),
        ("[]", "SPEC-034"),
        ("[" * 100_000, "SPEC-034"),
        ('{"name": "io.github.x/y", "packages": []}', "SPEC-035"),
        ('{"kind": "npm", "package": "x", "privileged": true}', "SPEC-042"),
    ],
)
def test_a_bad_server_json_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """server.json is strict JSON with the `server` block; duplicates, registry entries and unknown keys are errors."""
    folder = write(tmp_path, driver(server="./server.json"))
    (folder / "server.json").write_text(text)

    assert expected in [id_ for id_, _ in errors(checked(tmp_path, driver(server="./server.json"))[1])]

"""The ``server`` block: four shapes, three transports, and what only makes sense together (AIP-32 §server).

The upstream schema does not tie ``server.kind`` to ``transport`` (T0-10). Here: a remote server has no process whose
stdio could be used; a local server on ``http`` or ``sse`` must say the port it listens on, for nobody may guess one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from sandbox.spec.environ import Inventory, value_of, variables
from sandbox.spec.fields.mcp import SERVERS, BinaryBlock, DockerBlock, NpmBlock, OAuthBlock, RemoteBlock
from sandbox.spec.model import BinaryServer, DockerServer, NpmServer, RemoteServer
from sandbox.spec.report import Source, join
from sandbox.spec.shape import check, wrong_type

AnyServer = BinaryServer | NpmServer | DockerServer | RemoteServer

PROTOCOL_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Revisions of MCP; a manifest may also write the month alone (S0-24)."""

ENDPOINTS: Final = {"http": "/mcp", "sse": "/sse"}
"""Where local servers on these transports usually answer, taken when ``server.endpoint`` is absent."""

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_OUR_HEADERS: Final = frozenset(
    {
        "accept",
        "connection",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that the transport itself sets; a driver that set them could smuggle requests."""

OAUTH: Final = "oauth2"
"""The type of ``server.auth`` that is carried out."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,31} (?=\$\{secrets\.)")
"""What may stand before a secret in a header: the name of an authentication scheme (RFC 9110 §11.4)."""

_CREDENTIAL_HEADER: Final = re.compile(r"authorization|cookie|token|secret|key|password", re.IGNORECASE)


def server(source: Source, value: Any, inventory: Inventory) -> AnyServer | None:
    """Return the server, without what depends on the transport; what is wrong is reported."""
    if not isinstance(value, dict):
        wrong_type(source, "server", value, "a mapping, or the path of a server.json")
        return None
    kind = value.get("kind")
    model = SERVERS.get(kind) if isinstance(kind, str) else None
    if model is None:
        _unknown_kind(source, kind)
        return None
    block = check(model, value, source, "server")
    match block:
        case RemoteBlock():
            return _remote(source, block, inventory)
        case BinaryBlock() | NpmBlock() | DockerBlock():
            return _local(source, block, inventory)
        case _:
            return None


def _unknown_kind(source: Source, kind: Any) -> None:
    if kind is None:
        source.error(
            "SPEC-041",
            "server.kind",
            "the field is missing",
            allowed=", ".join(SERVERS),
            mend="say what the server is",
        )
        return
    source.error(
        "SPEC-044",
        "server.kind",
        "there is no such kind of server",
        found=kind,
        allowed=", ".join(SERVERS),
        mend="write one of them",
    )


def _local(
    source: Source, block: BinaryBlock | NpmBlock | DockerBlock, inventory: Inventory
) -> BinaryServer | NpmServer | DockerServer:
    env = variables(source, "server.env", block.env, inventory)
    common: dict[str, Any] = {
        "args": tuple(block.args),
        "env": env,
        "port": block.port or 0,
        "endpoint": block.endpoint or "",
    }
    match block:
        case NpmBlock():
            return NpmServer(kind="npm", package=block.package, **common)
        case DockerBlock():
            _lint_image(source, block.image)
            return DockerServer(kind="docker", image=block.image, **common)
        case BinaryBlock():
            return BinaryServer(kind="binary", path=block.path, **common)


def _lint_image(source: Source, image: str) -> None:
    if "sha256:" not in image:
        source.warn(
            "SPEC-084",
            "server.image",
            "a tag can be moved to another image at any time",
            found=image,
            allowed="`name@sha256:<64 hex>`",
            mend="add the digest",
        )


def _remote(source: Source, block: RemoteBlock, inventory: Inventory) -> RemoteServer:
    headers: dict[str, str] = {}
    for name, value in block.headers.items():
        place = join("server.headers", name)
        scheme = _SCHEME.match(value)
        before = scheme[0] if scheme else ""
        checked = value_of(source, place, value.removeprefix(before), inventory)
        if _header(source, place, name, value) and checked is not None:
            headers[name] = before + checked
    if block.url.startswith("http:"):
        source.warn(
            "SPEC-097",
            "server.url",
            "calls and credentials would be sent in the clear; refused unless the operator allows it for this host",
            allowed="https",
            mend="write the https address",
        )
    auth = _auth(source, block.auth, inventory)
    return RemoteServer(kind="remote", url=block.url, auth=auth, headers=headers)


def _auth(source: Source, written: dict[str, Any] | None, inventory: Inventory) -> dict[str, Any] | None:
    """Return ``server.auth``, secrets by their slugs; other types than ``oauth2`` are refused when a plan is made."""
    if written is None or written.get("type") != OAUTH:
        return written
    block = check(OAuthBlock, written, source, "server.auth")
    if block is None:
        return written
    found = block.model_dump(exclude_unset=True)
    for name in ("client_id", "client_secret"):
        if name in found:
            checked = value_of(source, join("server.auth", name), found[name], inventory)
            found[name] = checked or ""
    if found.get("client_secret") and "${" not in found["client_secret"]:
        source.error(
            "SPEC-086",
            "server.auth.client_secret",
            "`client_secret` carries a credential and has a literal value",
            allowed="`${secrets.NAME}`",
            mend="put a slug into SECRETS.md and refer to it",
        )
    return found


def _header(source: Source, path: str, name: str, value: str) -> bool:
    if not _HEADER.fullmatch(name) or name.lower() in _OUR_HEADERS:
        source.error(
            "SPEC-085",
            path,
            "this is not a header that a driver may set",
            found=name,
            allowed="an HTTP field name that the transport does not set itself",
            mend="remove it",
        )
        return False
    if not value.isascii():
        source.error("SPEC-078", path, "a header value is ASCII text on one line", mend="rewrite it")
        return False
    if _CREDENTIAL_HEADER.search(name) and "${" not in value:
        source.error(
            "SPEC-086",
            path,
            f"`{name}` carries a credential and has a literal value",
            allowed="`${secrets.NAME}`",
            mend="put a slug into SECRETS.md and refer to it",
        )
        return False
    return True


# --- together ---------------------------------------------------------------------------------------------------------
def transport(source: Source, kind: str, block: AnyServer | None, name: str) -> AnyServer | None:
    """Return the server with its port and endpoint, checked against the transport (S0-16, S0-23, S0-40).

    Args:
        source: the driver.
        kind: ``server.kind`` as written.
        block: the server, or ``None`` when it could not be read.
        name: ``transport``.
    """
    if kind == "remote":
        _remote_transport(source, name)
        return block
    if name == "stdio":
        for key in ("port", "endpoint"):
            if getattr(block, key, 0):
                source.error(
                    "SPEC-087", f"server.{key}", f"`{key}` has no meaning for stdio", mend="remove it, or use `http`"
                )
        return block
    source.warn(
        "SPEC-088",
        "transport",
        f"a local server is best reached by stdio, not by {name} (AIP-32 §Design principles 6)",
        mend="write `transport: stdio` if the server can",
    )
    if block is None or isinstance(block, RemoteServer):
        return block
    if not block.port:
        source.error(
            "SPEC-089",
            "server",
            f"a local server on {name} must say the TCP port it listens on",
            allowed="`server.port` from 1024",
            mend="add `port:` to `server`, or write `transport: stdio`",
        )
        return block
    return block.model_copy(update={"endpoint": block.endpoint or ENDPOINTS.get(name, "/")})


def _remote_transport(source: Source, name: str) -> None:
    if name == "stdio":
        source.error(
            "SPEC-090",
            "transport",
            "a remote server has no stdio: nothing is started here",
            found=name,
            allowed="http, sse",
            mend="write `transport: http`",
        )
    elif name == "sse":
        source.warn(
            "SPEC-091",
            "transport",
            "the HTTP+SSE transport is deprecated since MCP 2025-03-26",
            mend="write `transport: http` if the server speaks Streamable HTTP",
        )


def own_host(source: Source, block: AnyServer | None, egress: Iterable[str]) -> None:
    """Report a remote server that its own ``network.egress`` does not reach."""
    if not isinstance(block, RemoteServer):
        return
    host = urlsplit(block.url).hostname or ""
    named = [bare_host(entry) for entry in egress]
    if host in named or any(entry.startswith("*.") and host.endswith(entry[1:]) for entry in named):
        return
    source.error(
        "SPEC-092",
        "network.egress",
        f"the server's own host `{host}` is not listed, so nothing could be sent to it",
        mend=f'add "{host}" to `network.egress`',
    )


def bare_host(entry: str) -> str:
    """Return an egress entry without scheme and port, in lower case."""
    rest = entry.rpartition("://")[2].lower()
    if rest.startswith("["):
        return rest[1:].partition("]")[0]
    return rest.partition(":")[0]


def protocol_version(source: Source, text: str) -> str:
    """Return the dated revision of ``protocol_version``: ``2025-03`` is ``2025-03-26`` (S0-24); empty when absent."""
    if text in ("", *PROTOCOL_VERSIONS):
        return text
    dated = [version for version in PROTOCOL_VERSIONS if version.startswith(f"{text}-") and len(text) == len("2025-03")]
    if dated:
        return dated[-1]
    source.error(
        "SPEC-093",
        "protocol_version",
        "there is no such revision of MCP",
        found=text,
        allowed=", ".join(PROTOCOL_VERSIONS),
        mend="write one of them, or leave the field out",
    )
    return ""


def program(source: Source, block: AnyServer | None, *, installed: bool) -> None:
    """Report a ``server.path`` that names no file: relative ones lie in the driver folder, bare ones are installed."""
    if not isinstance(block, BinaryServer):
        return
    path = block.path
    if "/" not in path:
        if not installed:
            source.error(
                "SPEC-094",
                "server.path",
                "a bare name is a program that `install` provides, and there is no `install`",
                found=path,
                allowed="an absolute path, `~/…` or `./…`; a bare name with `install`",
                mend=f"write `./{path}` for a file of this folder, or add `install`",
            )
        return
    if ".." in path.split("/") or "//" in path or path.endswith("/"):
        source.error(
            "SPEC-095",
            "server.path",
            "the path is not plain",
            found=path,
            allowed="no `..`, no empty part, no `/` at the end",
            mend="write where the program is",
        )

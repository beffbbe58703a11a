"""An authorization server and an MCP server that takes its tokens, both over TLS on the test's own address.

They do what RFC 6749, 7636, 8707, 9207, 7591, 7009, 9728 and MCP say, and tests make them do otherwise: ``said`` and
``described`` replace members of their metadata, ``answers`` whole answers. Everything that reached them is in
``requests``. Codes are used once, verifiers are checked, refresh tokens are rotated, and one that comes twice ends its
login.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from tests.remote_lab import ADDRESS
from tests.tls_kit import Authority, authority

SECRET: Final = "c4nary-client-secret"
SCOPES: Final = ("echo:use", "echo:read")

Reply = tuple[int, Mapping[str, str], bytes]


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        """The body as a form."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


class Web:
    """An HTTPS server in threads."""

    def __init__(self, files: Authority) -> None:
        self.requests: list[Asked] = []
        self.answers: dict[str, Callable[[Asked], Reply]] = {}
        own = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                fields = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.command, parts.path, dict(parse_qsl(parts.query)), fields, body)
                own.requests.append(asked)
                status, headers, data = own.answers.get(parts.path, own.answer)(asked)
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Say nothing of clients that leave."""

        self._server = Quiet((ADDRESS, 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.cert, files.key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )  # fmt: skip
        self.port = int(self._server.server_address[1])
        self.url = f"https://{ADDRESS}:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def answer(self, asked: Asked) -> Reply:
        """Answer a request."""
        raise NotImplementedError

    def at(self, path: str) -> list[Asked]:
        """Return what came to a path."""
        return [one for one in self.requests if one.path == path]

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def reply(value: Any, status: int = 200, **headers: str) -> Reply:
    """Return JSON."""
    return status, {name.replace("_", "-"): text for name, text in headers.items()}, json.dumps(value).encode()


def error(code: str, status: int = 400) -> Reply:
    """Return an error of OAuth, with a description that nobody should repeat."""
    return reply({"error": code, "error_description": "c4nary-description"}, status)


@dataclass
class Given:
    """An access token that was issued."""

    audience: str
    scope: str
    until: float
    family: str = ""


class Issuer(Web):
    """The authorization server.

    Attributes:
        life: seconds that tokens live.
        rotates: whether refresh tokens are exchanged with each use.
    """

    def __init__(self, files: Authority) -> None:
        self.said: dict[str, Any] = {}
        self.clients: dict[str, str] = {"robot": SECRET, "desk": ""}
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, Given] = {}
        self.refresh: dict[str, dict[str, str]] = {}
        self.used: dict[str, str] = {}
        self.ended: set[str] = set()
        self.life = 600.0
        self.back: dict[str, str | None] = {}
        self.lock = threading.Lock()
        super().__init__(files)

    def metadata(self) -> dict[str, Any]:
        """Return what it says of itself; what is replaced by ``None`` is left out."""
        own = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {name: value for name, value in {**own, **self.said}.items() if value is not None}

    def answer(self, asked: Asked) -> Reply:
        """Answer a request."""
        with self.lock:
            match asked.path:
                case "/.well-known/oauth-authorization-server":
                    return reply(self.metadata())
                case "/authorize":
                    return self._authorize(asked.query)
                case "/token":
                    return self._token(asked)
                case "/register":
                    name = secrets.token_hex(8)
                    self.clients[name] = ""
                    said = json.loads(asked.body)
                    return reply({"client_id": name, "token_endpoint_auth_method": "none", **said}, 201)
                case "/revoke":
                    self.tokens.pop(asked.form["token"], None)
                    self.refresh.pop(asked.form["token"], None)
                    return 200, {}, b""
        return reply({}, 404)

    def _authorize(self, query: dict[str, str]) -> Reply:
        if query["client_id"] not in self.clients or query["code_challenge_method"] != "S256":
            return error("invalid_request")
        code = secrets.token_urlsafe(24)
        self.codes[code] = query
        own: dict[str, str | None] = {"code": code, "state": query["state"], "iss": self.url, **self.back}
        pairs = {name: value for name, value in own.items() if value is not None}
        return 302, {"Location": f"{query['redirect_uri']}?{urlencode(pairs)}"}, b""

    def _token(self, asked: Asked) -> Reply:
        form = asked.form
        name, secret = form.get("client_id", ""), ""
        if asked.headers.get("authorization", "").startswith("Basic "):
            pair = base64.b64decode(asked.headers["authorization"][6:]).decode()
            name, secret = map(unquote_plus, pair.split(":", 1))
        if name not in self.clients or self.clients[name] != secret:
            return error("invalid_client", 401)
        match form["grant_type"]:
            case "client_credentials" if secret:
                return self._issue(name, form["resource"], form.get("scope", ""), "")
            case "authorization_code":
                asked_for = self.codes.pop(form["code"], None)
                digest = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
                same = asked_for is not None and all(
                    asked_for[one] == form.get(one, name) for one in ("client_id", "redirect_uri", "resource")
                )
                if not same or asked_for is None or asked_for["code_challenge"] != digest.decode().rstrip("="):
                    return error("invalid_grant")
                return self._issue(name, form["resource"], asked_for.get("scope", ""), secrets.token_hex(4))
            case "refresh_token":
                return self._refreshed(name, form)
        return error("unsupported_grant_type")

    def _refreshed(self, name: str, form: dict[str, str]) -> Reply:
        text = form["refresh_token"]
        if text in self.used:  # it was stolen, or lost: nobody keeps this login
            self.ended.add(self.used[text])
        kept = self.refresh.pop(text, None)
        if kept is None or kept["family"] in self.ended or kept["client"] != name or kept["aud"] != form["resource"]:
            return error("invalid_grant")
        self.used[text] = kept["family"]
        return self._issue(name, kept["aud"], kept["scope"], kept["family"])

    def _issue(self, name: str, audience: str, scope: str, family: str) -> Reply:
        access = secrets.token_urlsafe(32)
        self.tokens[access] = Given(audience, scope, time.time() + self.life, family)
        made: dict[str, Any] = {
            "access_token": access, "token_type": "Bearer", "expires_in": int(self.life), "scope": scope,
        }  # fmt: skip
        if family:
            made["refresh_token"] = secrets.token_urlsafe(32)
            self.refresh[made["refresh_token"]] = {"family": family, "client": name, "aud": audience, "scope": scope}
        return reply({name: value for name, value in made.items() if value != ""}, Cache_Control="no-store")

    def secrets_given(self) -> list[str]:
        """Return every token, used or not."""
        return [*self.tokens, *self.refresh, *self.used]


class Protected(Web):
    """The MCP server: stateless JSON over HTTP, one tool, and no answer without a token of its own issuer."""

    def __init__(self, files: Authority, issuer: Issuer) -> None:
        self.issuer = issuer
        self.described: dict[str, Any] = {}
        self.challenge: str | None = None
        self.refused: set[str] = set()
        super().__init__(files)

    @property
    def mcp(self) -> str:
        """Its address, and what its tokens are for."""
        return f"{self.url}/mcp"

    def answer(self, asked: Asked) -> Reply:
        """Answer a request."""
        if asked.path == "/.well-known/oauth-protected-resource/mcp":
            own = {"resource": self.mcp, "authorization_servers": [self.issuer.url], "scopes_supported": [*SCOPES]}
            return reply({**own, **self.described})
        if asked.path != "/mcp":
            return reply({}, 404)
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        given = self.issuer.tokens.get(token)
        if given is None or given.audience != self.mcp or given.until < time.time() or token in self.refused:
            metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return reply({}, 401, WWW_Authenticate=self.challenge or f'Bearer resource_metadata="{metadata}"')
        if asked.method != "POST":
            return reply({}, 405)
        return self._called(json.loads(asked.body), token, given)

    def _called(self, message: dict[str, Any], token: str, given: Given) -> Reply:
        if "id" not in message:
            return 202, {}, b""
        method, params = message["method"], message.get("params", {})
        result: dict[str, Any] = {}
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "p", "version": "1"},
            }
        elif method == "tools/list":
            schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
            result = {"tools": [{"name": "echo", "description": "Returns its message.", "inputSchema": schema}]}
        elif method == "tools/call":
            said = params["arguments"]["message"]
            if said == "more":
                return reply({}, 403, WWW_Authenticate='Bearer error="insufficient_scope", scope="echo:write"')
            text = {"token": f"you sent {token}", "scope": given.scope}.get(said, said)
            if said == "fail":
                failure = {"code": -32000, "message": f"you sent {token}"}
                return reply({"jsonrpc": "2.0", "id": message["id"], "error": failure})
            result = {"content": [{"type": "text", "text": text}]}
        elif method != "ping":
            return reply({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
        return reply({"jsonrpc": "2.0", "id": message["id"], "result": result})


@dataclass
class World:
    """Both servers, and what trusts them."""

    issuer: Issuer
    server: Protected
    files: Authority
    others: list[Web] = field(default_factory=list)

    def another_issuer(self) -> Issuer:
        """Return a second authorization server, which an attacker runs."""
        made = Issuer(self.files)
        self.others.append(made)
        return made

    def rules(self) -> tuple[str, ...]:
        """Return the egress rules that name every server."""
        return tuple(f"{ADDRESS}:{one.port}" for one in (self.issuer, self.server, *self.others))

    def visit(self, address: str) -> str:
        """Log in as a browser would; return where the issuer sends it."""
        context = ssl.create_default_context(cafile=str(self.files.bundle))
        opener = urllib.request.build_opener(Staying(), urllib.request.HTTPSHandler(context=context))
        with opener.open(address, timeout=60) as answer:
            return str(answer.headers["Location"])


class Staying(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an answer."""

    def http_error_302(self, _request: Any, fp: Any, *_: Any) -> Any:
        """Return it."""
        return fp


def come_back(address: str, host: str | None = None) -> int:
    """Open the address that an issuer sent the browser to; return the status."""
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as failure:
        return int(failure.code)


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Run both servers."""
    files = authority(folder, ADDRESS)
    issuer = Issuer(files)
    made = World(issuer, Protected(files, issuer), files)
    try:
        yield made
    finally:
        for one in (made.server, made.issuer, *made.others):
            one.close()

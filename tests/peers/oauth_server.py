"""An OAuth 2.1 authorization server made with Authlib, for a container of its own (:mod:`tests.oauth_lab`).

Metadata (RFC 8414), dynamic registration (RFC 7591), authorization codes with PKCE, client credentials, refresh,
JWT access tokens (RFC 9068) for the ``resource`` that is asked for (RFC 8707), JWKS with rotation, introspection
(RFC 7662), revocation (RFC 7009). Everybody who comes to ``/authorize`` is signed in as the user that ``login`` names.
``/test/…`` is for tests: new keys, and tokens that no honest issuer would make.

The first line of stdin is a JSON object: ``secret`` of its clients, ``url`` under which it is reached, ``port`` that it
takes. It is no argument, for everybody who may ask the engine can read those.
"""

# ruff: noqa: D103, RUF012 - routes named for what they are, in the form that Authlib wants
from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass, field
from typing import Any

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # it is reached over loopback only

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, jsonify, request
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import make_server

GATEWAY = "gateway"
TENANTS = {"alice": "acme", "bob": "beta", "robot": "acme"}


@dataclass
class Client:
    """A registered client, as Authlib asks it."""

    id: str
    secret: str = ""
    scope: str = ""
    redirects: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ("authorization_code", "refresh_token")
    method: str = "none"

    def get_client_id(self) -> str:
        return self.id

    def get_default_redirect_uri(self) -> str:
        return self.redirects[0]

    def get_allowed_scope(self, scope: str) -> str:
        return " ".join(one for one in (scope or "").split() if one in self.scope.split())

    def check_redirect_uri(self, uri: str) -> bool:
        return uri in self.redirects

    def check_client_secret(self, secret: str) -> bool:
        return bool(self.secret) and secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.method or endpoint != "token"

    def check_response_type(self, kind: str) -> bool:
        return kind == "code"

    def check_grant_type(self, kind: str) -> bool:
        return kind in self.kinds


@dataclass
class User:
    """Who signs in."""

    name: str

    def get_user_id(self) -> str:
        return self.name


@dataclass
class Code:
    """An authorization code."""

    client_id: str
    redirect_uri: str
    scope: str
    user: str
    code_challenge: str
    code_challenge_method: str
    resource: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Token:
    """A token that was given out."""

    text: str
    client_id: str
    scope: str = ""
    user: str = ""
    refresh: str = ""
    until: float = 0.0
    revoked: bool = False

    def check_client(self, client: Client) -> bool:
        return client.id in (self.client_id, GATEWAY)

    def get_scope(self) -> str:
        return self.scope

    def is_expired(self) -> bool:
        return time.time() > self.until

    def is_revoked(self) -> bool:
        return self.revoked


@dataclass
class Store:
    """Everything that the server remembers."""

    clients: dict[str, Client] = field(default_factory=dict)
    codes: dict[str, Code] = field(default_factory=dict)
    tokens: dict[str, Token] = field(default_factory=dict)
    keys: list[RSAKey] = field(default_factory=list)

    def rotate(self) -> None:
        """Sign with a new key from now on, and withdraw the old one."""
        self.keys = [RSAKey.generate_key(2048, parameters={"kid": f"k{time.time_ns()}", "alg": "RS256", "use": "sig"})]

    def keep(self, token: dict[str, Any], client: str, user: str) -> None:
        """Remember a token that goes out."""
        made = Token(token["access_token"], client, token.get("scope", ""), user, until=time.time() + 600)
        made.refresh = token.get("refresh_token", "")
        self.tokens[made.text] = made


STORE = Store()
app = Flask(__name__)


def save_token(token: dict[str, Any], asked: Any) -> None:
    STORE.keep(token, asked.client.id, asked.user.name if asked.user else asked.client.id)


server = AuthorizationServer(app, query_client=STORE.clients.get, save_token=save_token)


class Tokens(JWTBearerTokenGenerator):
    """Access tokens for the resource that is asked for; the tenant is the user's."""

    def get_jwks(self) -> Any:
        return KeySet(STORE.keys)  # of a set, the key's id is written into the token

    def get_audiences(self, client: Client, user: User | None, scope: str) -> str:
        return request.form.get("resource", "nobody")

    def get_extra_claims(self, client: Client, grant_type: str, user: User | None, scope: str) -> dict[str, Any]:
        name = user.name if user else client.id
        return {"tenant": TENANTS.get(name, "acme")}


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none", "client_secret_basic", "client_secret_post"]

    def save_authorization_code(self, code: str, asked: Any) -> None:
        sent = asked.payload.data
        STORE.codes[code] = Code(
            asked.client.id, asked.payload.redirect_uri or "", asked.payload.scope or "", asked.user.name,
            sent.get("code_challenge", ""), sent.get("code_challenge_method", ""), sent.get("resource", ""),
        )  # fmt: skip

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        found = STORE.codes.get(code)
        same = found is not None and found.client_id == client.id and found.resource == request.form.get("resource")
        return found if same else None

    def delete_authorization_code(self, code: Code) -> None:
        STORE.codes = {name: one for name, one in STORE.codes.items() if one is not code}

    def authenticate_user(self, code: Code) -> User:
        return User(code.user)


class Refresh(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["none", "client_secret_basic", "client_secret_post"]

    def authenticate_refresh_token(self, text: str) -> Token | None:
        return next((one for one in STORE.tokens.values() if one.refresh == text and not one.revoked), None)

    def authenticate_user(self, token: Token) -> User:
        return User(token.user)

    def revoke_old_credential(self, token: Token) -> None:
        token.revoked = True


class Introspect(IntrospectionEndpoint):
    def query_token(self, text: str, _hint: str | None) -> Token | None:
        return STORE.tokens.get(text)

    def check_permission(self, token: Token, client: Client, _asked: Any) -> bool:
        return client.id == GATEWAY

    def introspect_token(self, token: Token) -> dict[str, Any]:
        return {"active": True, "client_id": token.client_id, "scope": token.scope, "sub": token.user}


class Revoke(RevocationEndpoint):
    def query_token(self, text: str, _hint: str | None) -> Token | None:
        return STORE.tokens.get(text)

    def revoke_token(self, token: Token, _asked: Any) -> None:
        token.revoked = True


class Register(ClientRegistrationEndpoint):
    def authenticate_token(self, _asked: Any) -> bool:
        return True

    def get_server_metadata(self) -> dict[str, Any]:
        return metadata()

    def save_client(self, info: dict[str, Any], said: dict[str, Any], _asked: Any) -> Client:
        method = said.get("token_endpoint_auth_method", "none")
        made = Client(
            info["client_id"], info.get("client_secret", ""), said.get("scope") or "text:use",
            tuple(said.get("redirect_uris", ())), method=method,
        )  # fmt: skip
        STORE.clients[made.id] = made
        return made


def metadata() -> dict[str, Any]:
    url = app.config["URL"]
    return {
        "issuer": url,
        "authorization_endpoint": f"{url}/authorize",
        "token_endpoint": f"{url}/token",
        "registration_endpoint": f"{url}/register",
        "introspection_endpoint": f"{url}/introspect",
        "revocation_endpoint": f"{url}/revoke",
        "jwks_uri": f"{url}/jwks",
        "scopes_supported": ["text:use", "text:read"],
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        "code_challenge_methods_supported": ["S256"],
    }


@app.get("/.well-known/oauth-authorization-server")
def described() -> Any:
    return jsonify(metadata())


@app.get("/jwks")
def jwks() -> Any:
    return jsonify({"keys": [key.as_dict(private=False) for key in STORE.keys]})


@app.get("/authorize")
def authorize() -> Any:
    user = User(request.args.get("login", "alice"))
    return server.create_authorization_response(grant_user=user, grant=server.get_consent_grant(end_user=user))


@app.post("/<any(token,introspect,revoke,register):what>")
def endpoint(what: str) -> Any:
    if what == "token":
        return server.create_token_response()
    names = {"introspect": "introspection", "revoke": "revocation", "register": "client_registration"}
    return server.create_endpoint_response(names[what])


@app.post("/test/rotate")
def rotate() -> Any:
    STORE.rotate()
    return jsonify({})


@app.post("/test/mint")
def mint() -> Any:
    """Sign whatever a test asks for; claims that are null are left out."""
    asked = request.get_json()
    now, key = int(time.time()), STORE.keys[0]
    own = {
        "iss": app.config["URL"],
        "sub": "alice",
        "tenant": "acme",
        "client_id": "c",
        "scope": "text:use",
        "iat": now,
    }
    claims = {**own, "exp": now + 300, **asked["claims"]}
    head = {"alg": "RS256", "typ": "at+jwt", "kid": key.kid, **asked.get("head", {})}
    signer = RSAKey.generate_key(2048) if asked.get("foreign") else key
    text = jwt.encode(head, {name: value for name, value in claims.items() if value is not None}, signer)
    STORE.keep({"access_token": text}, "c", "alice")
    return jsonify({"token": text})


def main() -> None:
    """Serve until the process is ended."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    STORE.rotate()
    every = "text:use text:read"
    told = json.loads(sys.stdin.readline())
    secret = told["secret"]
    STORE.clients[GATEWAY] = Client(GATEWAY, secret, kinds=(), method="client_secret_basic")
    for name, scope in (("robot", every), ("reader", "text:read")):
        STORE.clients[name] = Client(
            name, secret, scope, kinds=("client_credentials",), method="client_secret_basic"
        )  # fmt: skip
    app.config["URL"] = told["url"]
    server.register_token_generator("default", Tokens(app.config["URL"], refresh_token_generator=_refresh))
    server.register_grant(CodeGrant, [CodeChallenge(required=True)])
    server.register_grant(Refresh)
    server.register_grant(grants.ClientCredentialsGrant)
    for one in (Introspect, Revoke, Register):
        server.register_endpoint(one)
    make_server("0.0.0.0", told["port"], app, threaded=True).serve_forever()


def _refresh(*_args: Any, **_more: Any) -> str:
    return os.urandom(24).hex()


if __name__ == "__main__":
    main()

"""Whatever servers and issuers answer is read within the rules or refused; nothing of it is a defect of ours."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandbox.errors import PlanRefused, SandboxError
from sandbox.events import Scope, Trace
from sandbox.plan.model import NetworkPlan
from sandbox.testing.memory import MemoryRecorder
from sandbox.transport.remote.dial import Dialer
from sandbox.transport.remote.oauth import metadata, register, tokens
from sandbox.transport.remote.oauth.asking import Answer, Asking
from sandbox.transport.remote.oauth.metadata import Issuer
from sandbox.transport.remote.oauth.store import Binding, Store
from sandbox.transport.remote.oauth.tokens import MAX_LIFE

ISSUER = Issuer("https://i.example", "https://i.example/token")
NAMES = (
    "issuer", "resource", "authorization_servers", "scopes_supported", "token_endpoint", "authorization_endpoint",
    "code_challenge_methods_supported", "response_types_supported", "token_endpoint_auth_methods_supported",
    "access_token", "refresh_token", "token_type", "expires_in", "scope", "client_id", "client_secret",
    "token_endpoint_auth_method", "error", "version", "binding", "login", "tokens", "client",
)  # fmt: skip
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(allow_nan=False), st.text(max_size=20),
    st.sampled_from(["Bearer", "https://i.example", "S256", "code", "https://i.example/x", "none", "1e9", "٣"]),
)  # fmt: skip
VALUES = st.recursive(
    PLAIN,
    lambda own: st.lists(own, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), own),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=12)


def asking() -> Asking:
    """Return what would send requests."""
    scope = Scope(MemoryRecorder(), Trace.new())
    return Asking(Dialer(NetworkPlan("remote"), frozenset(), (), scope), scope, lambda _: None)


@settings(max_examples=300, deadline=None)
@given(OBJECTS, st.sampled_from([200, 201, 400, 401, 500]))
@example({"access_token": "a", "token_type": "Bearer", "expires_in": 10**400}, 200)
@example({"access_token": "a", "token_type": "bearer", "expires_in": "٣", "scope": "a"}, 200)
@example({"access_token": "a", "token_type": "Bearer", "expires_in": -1, "scope": "\x1b[2J"}, 200)
def test_any_answer_is_tokens_or_an_error(body: dict[str, Any], status: int) -> None:
    """What is taken fits a header field, is for no more scopes than asked for, and ends within bounds."""
    with contextlib.suppress(SandboxError):
        found = tokens._read(asking(), Answer(status, body), ISSUER, ("a", "b"))
        assert found.access.isascii()
        assert found.access.isprintable()
        assert set(found.scopes) <= {"a", "b"}
        assert found.expires_at <= found.got_at + MAX_LIFE


@settings(max_examples=300, deadline=None)
@given(OBJECTS, st.booleans())
def test_any_metadata_are_an_issuers_or_an_error(body: dict[str, Any], login: bool) -> None:
    """Only the issuer's own name and https endpoints are taken."""
    with contextlib.suppress(SandboxError):
        found = metadata._read(body, "https://i.example", login=login)
        assert body["issuer"] == "https://i.example"
        assert found.token.startswith("https://")
        assert not login or "S256" in body["code_challenge_methods_supported"]


@settings(max_examples=300, deadline=None)
@given(OBJECTS)
def test_any_registration_is_a_client_or_an_error(body: dict[str, Any]) -> None:
    """A client has a printable id, and a secret only with a way to show it."""
    with contextlib.suppress(SandboxError):
        found = register._read(body, ISSUER, 201, "")
        assert found.id.isprintable()
        assert bool(found.secret) == (found.method != "none")


@settings(max_examples=300, deadline=None)
@given(OBJECTS)
def test_any_file_is_a_login_or_refused(body: dict[str, Any]) -> None:
    """A file of the store that is not what was written is refused, whatever it holds."""
    with pytest.raises(PlanRefused, match="OAU-003"):
        Store(Path("none"))._login(json.dumps(body).encode(), Binding("d", "x", "u", "r", "t"))

"""Context of tenant and user: injected from verified facts, never from the client."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sandbox import jsontext
from sandbox.errors import CallRefused
from sandbox.serve.calls import Caller
from sandbox.serve.context import Forbidden, Signer, clean_meta, hide, inject, sign_context, strip_and_refuse
from sandbox.serve.guard import ContextInjector
from sandbox.spec.model import Binding, Origin, ToolContract
from sandbox.tenant import TenantContext, TenantId

ALICE = TenantContext(TenantId("acme"), "alice", {"region": "eu"}, "token")
INPUTS = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "who": {"type": "string"},
        "filter": {"type": "object", "properties": {"user_id": {"type": "string"}}},
    },
    "additionalProperties": False,
}


def binding(context: dict[str, str], mapping: dict[str, str] | None = None, inputs: dict[str, Any] = INPUTS) -> Binding:
    """Return a binding with declared context."""
    contract = ToolContract(
        id="t",
        name="T",
        description="d",
        version="1.0.0",
        inputs=inputs,
        outputs={},
        origin=Origin(file="f"),
        digest="sha256:0",
    )
    return Binding(
        contract=contract,
        version_range="^1",
        tool_name="srv",
        context=context,
        argument_mapping=mapping or {},
        origin=Origin(file="f"),
    )


TENANT = binding({"tenant_id": "tenant.id", "actor": "user.sub"}, {"who": "actor"})


@pytest.mark.claim("P-TENANT-01")
@pytest.mark.parametrize(
    "name",
    [
        "tenant_id", "tenantId", "tenant-id", "TENANT_ID", "TenantID", "tenant id", "tenant.id", "ctx.tenant_id",
        "ctx[tenant_id]", "ctx/tenant_id", "arguments.tenantId", "ｔenant_id", "tеnant_id",
        "tenant\u200b_id", "tenant_\u0456d", "ténant_id", "tenant_ıd",
        "who", "actor", "Actor", "$actor", "@actor", "__proto__", "constructor",
    ],
)  # fmt: skip
def test_a_client_cannot_say_who_it_is(name: str) -> None:
    """T01: injected names are refused at the top, within objects and within lists, in every spelling."""
    forbidden = Forbidden(TENANT)
    for arguments in ({name: "evil"}, {"query": "x", "x": {"y": {name: "evil"}}}, {"x": [{name: None}]}):
        with pytest.raises(CallRefused) as caught:
            forbidden.refuse_supplied(arguments)

        assert caught.value.id == "CALL-010"


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "tenant_id"},
        {"filter": {"user": "x"}},
        {"tenants": 1},
        {"id": 1},
        {"factor": 1},
        {"x": [[{"y": "actor"}]]},
        {},
    ],
)
def test_other_arguments_pass(arguments: dict[str, Any]) -> None:
    """Values are not names, and a name is compared whole."""
    assert arguments is strip_and_refuse(arguments, TENANT)


def test_a_reviewed_member_below_the_top_is_not_forbidden_there() -> None:
    """A contract may have a member of that name elsewhere; at the top and in another spelling it stays forbidden."""
    forbidden = Forbidden(binding({"user_id": "user.sub"}))
    forbidden.refuse_supplied({"filter": {"user_id": "bob"}})

    for arguments in ({"user_id": "bob"}, {"filter": {"userId": "bob"}}):
        with pytest.raises(CallRefused):
            forbidden.refuse_supplied(arguments)


def test_a_contract_spelling_does_not_open_the_name() -> None:
    """An input that a server could take for the injected one is refused although the contract names it."""
    spelled = {"type": "object", "properties": {"user-id": {"type": "string"}}}
    with pytest.raises(CallRefused):
        Forbidden(binding({"user_id": "user.sub"}, inputs=spelled)).refuse_supplied({"user-id": "bob"})


def test_facts_are_injected() -> None:
    """What the server receives names the verified caller; the client's own arguments are not changed."""
    given = {"query": "x"}
    context = {"tenant_id": "tenant.id", "actor": "user.sub", "where": "tenant.region"}
    sent = inject(given, context, ALICE)

    assert {"query": "x", "tenant_id": "acme", "actor": "alice", "where": "eu"} == sent
    assert given == {"query": "x"}


@pytest.mark.parametrize(
    ("arguments", "context", "caller", "expected"),
    [
        ({"tenant_id": "evil"}, {"tenant_id": "tenant.id"}, ALICE, "CALL-010"),
        ({}, {"actor": "user.sub"}, TenantContext(TenantId("acme")), "CALL-011"),
        ({}, {"x": "user.absent"}, ALICE, "CALL-011"),
        ({}, {"x": "user.assertion"}, ALICE, "CALL-011"),
    ],
)
def test_an_unknown_fact_is_refused(
    arguments: dict[str, Any], context: dict[str, str], caller: TenantContext, expected: str
) -> None:
    """Nothing is sent with an empty, missing or doubled identity."""
    with pytest.raises(CallRefused) as caught:
        inject(arguments, context, caller)

    assert caught.value.id == expected


@pytest.mark.claim("P-TENANT-02")
def test_a_signed_context_binds_caller_tool_and_arguments() -> None:
    """Another implementation verifies the statement, and it holds for these arguments only."""
    key = Ed25519PrivateKey.generate()
    signer = Signer(key, "k1", "mcp-sandbox", "driver-x")
    injector = ContextInjector(
        binding({"proof": "user.assertion", "actor": "user.sub"}), signer, clock=lambda: 1_000.0, new_id=lambda: "id-1"
    )
    sent = injector.inject({"query": "x"}, Caller(ALICE))
    options = {"verify_exp": False, "verify_iat": False}
    claims = jwt.decode(sent["proof"], key.public_key(), algorithms=["EdDSA"], audience="driver-x", options=options)

    assert {"sub": "alice", "tenant": "acme", "tool": "srv", "jti": "id-1", "exp": 1060} == {
        name: claims[name] for name in ("sub", "tenant", "tool", "jti", "exp")
    }
    assert claims["args"] == jsontext.digest({"query": "x", "actor": "alice"})
    assert jwt.get_unverified_header(sent["proof"]) == {"alg": "EdDSA", "kid": "k1", "typ": "mcp-context+jwt"}
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(sent["proof"], key.public_key(), algorithms=["EdDSA"], audience="other", options=options)
    other = sign_context(Signer(Ed25519PrivateKey.generate(), "k1", "i", "driver-x"), ALICE, "srv", {}, 0.0, "x")
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(other, key.public_key(), algorithms=["EdDSA"], audience="driver-x", options=options)


def test_injected_members_are_hidden_everywhere() -> None:
    """Callers see a schema that never mentions them, and that admits every object without them."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "t": {"type": "string"}, "o": {"properties": {"t": {}}}},
        "required": ["a", "t"],
        "allOf": [{"required": ["t"]}, {"$ref": "#/$defs/more"}],
        "anyOf": [{"properties": {"t": {"const": "x"}}}, {"not": {"required": ["t"]}}],
        "dependentRequired": {"t": ["a"], "a": ["t", "o"]},
        "dependentSchemas": {"t": {}},
        "default": {"t": 1, "a": 2},
        "examples": [{"t": 1}],
        "$defs": {"more": {"properties": {"t": {}}}},
        "additionalProperties": False,
    }
    hidden = hide(schema, ["t"])

    assert hidden == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "o": {"properties": {"t": {}}}},
        "required": ["a"],
        "allOf": [{"required": []}, {"$ref": "#/$defs/more"}],
        "anyOf": [{"properties": {}}, {"not": {"required": []}}],
        "dependentRequired": {"a": ["o"]},
        "dependentSchemas": {},
        "default": {"a": 2},
        "examples": [{}],
        "$defs": {"more": {"properties": {}}},
        "additionalProperties": False,
    }


@pytest.mark.claim("P-TENANT-01")
def test_meta_loses_what_is_reserved_and_who_somebody_is() -> None:
    """J18: protocol keys, ours, baggage and identities stop here; trace ids and vendor keys pass."""
    given = {
        "io.modelcontextprotocol/clientInfo": {}, "dev.mcp/x": 1, "com.mcp.tools/y": 1, "io.mcp-sandbox/tenant": "evil",
        "progressToken": 1,
        "baggage": "tenant=evil", "tenantId": "evil", "com.example/user": "evil", "X-Tenant": "evil",
        "on_behalf_of": "evil",
        "com.example/nested": {"tenant": "evil", "keep": [{"userId": "evil", "x": 1}]},
        "traceparent": "00-1", "com.example/colour": "red", "com.example.mcp/z": 1,
    }  # fmt: skip

    assert clean_meta(given) == {
        "com.example/nested": {"keep": [{"x": 1}]},
        "traceparent": "00-1",
        "com.example/colour": "red",
        "com.example.mcp/z": 1,
    }

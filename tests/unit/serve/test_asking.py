"""What a server may ask of a client: which questions pass, in which form, and how many (J07, J09)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandbox.errors import CallRefused
from sandbox.serve.asking import AskBounds, Asking, answer_of
from sandbox.serve.calls import Caller
from sandbox.serve.results import ResultCleaner
from sandbox.tenant import TenantContext

ME = Caller(TenantContext())
NAME = {"type": "string", "title": "Your name"}
FORM = {"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {"name": NAME}}}
URL = {"mode": "url", "message": "Sign in", "url": "https://example.com/x?y=1", "elicitationId": "e1"}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 100}


class Allow:
    """A policy that allows and remembers what it was asked."""

    def __init__(self) -> None:
        self.facts: list[Mapping[str, Any]] = []

    def decide_ask(self, caller: Caller, method: str, facts: Mapping[str, Any]) -> Sequence[str]:
        self.facts.append(facts)
        return ("all",)


class Deny:
    """A policy that denies."""

    def decide_ask(self, caller: Caller, method: str, facts: Mapping[str, Any]) -> Sequence[str]:
        raise CallRefused("POL-020", "no")


def asking(decider: Any = None, **bounds: int) -> Asking:
    """Return a judge."""
    return Asking(decider or Allow(), "test-mcp", ResultCleaner(None).clean, AskBounds(**bounds))


def refused(method: str, params: Mapping[str, Any], judge: Asking | None = None) -> str:
    """Return the id with which a question is refused."""
    with pytest.raises(CallRefused) as refusal:
        (judge or asking()).judge(method, params, ME)
    return refusal.value.id


def test_a_plain_question_is_labelled_with_the_server() -> None:
    """Form, URL and sampling pass with the server's name in what the person or model reads, and nothing unknown."""
    form = asking().judge("elicitation/create", {**FORM, "evil": 1}, ME).params
    url = asking().judge("elicitation/create", URL, ME).params
    sample = asking().judge("sampling/createMessage", {**SAMPLE, "systemPrompt": "Be brief.", "evil": 1}, ME).params

    assert ["test-mcp" in text for text in (form["message"], url["message"], sample["systemPrompt"])] == [True] * 3
    assert "Be brief." in sample["systemPrompt"]
    assert [] == [one for one in (form, url, sample) if "evil" in one]
    assert ("https://example.com/x?y=1", "none") == (url["url"], sample["includeContext"])


def test_control_characters_do_not_reach_the_person() -> None:
    """A label cannot be overwritten with terminal sequences or direction overrides."""
    params = asking().judge("elicitation/create", {**FORM, "message": "\x1b[2K\x1b[1Ghi\u202e"}, ME).params

    assert params["message"].endswith("hi")
    assert "\x1b" not in params["message"]


@pytest.mark.claim("P-ASK-01")
@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://example.com/",
        "HTTPS://example.com/",
        "https://user:pw@example.com/",
        "https://example.com@evil.test/",
        "https://xn--e1awd7f.com/",
        "https://еxample.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://localhost/",
        "https://example.com:8443/",
        "https://example.com\\@evil.test/",
        "https://example.com/\nx",
        " https://example.com/",
        "https://EXAMPLE.com/",
        "",
        7,
    ],
)
def test_a_url_that_a_person_cannot_judge_is_refused(url: object) -> None:
    """J09: only https, a plain name, no credentials, no punycode, no address, no other port."""
    assert "CALL-091" == refused("elicitation/create", {**URL, "url": url})


@pytest.mark.claim("P-ASK-01")
@pytest.mark.parametrize(
    "field",
    [
        {"password": {"type": "string"}},
        {"x": {"type": "string", "title": "Your API key"}},
        {"x": {"type": "string", "description": "the one-time code"}},
        {"card_number": {"type": "string"}},
        {"x": {"type": "string", "format": "password"}},
    ],
)
def test_a_form_for_secrets_is_refused(field: dict[str, Any]) -> None:
    """J09: name, title, description and format are looked at; the message too."""
    assert "CALL-091" == refused("elicitation/create", {**FORM, "requestedSchema": {"properties": field}})
    assert "CALL-091" == refused("elicitation/create", {**FORM, "message": "Enter your password"})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", {"message": "x"}),
        ("elicitation/create", {**FORM, "mode": "popup"}),
        ("elicitation/create", {**FORM, "requestedSchema": {"properties": {"a": {"type": "object"}}}}),
        ("elicitation/create", {**FORM, "requestedSchema": {"properties": {f"f{i}": NAME for i in range(13)}}}),
        ("elicitation/create", {**FORM, "message": "x" * 20_000}),
        ("elicitation/create", {key: value for key, value in URL.items() if key != "elicitationId"}),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        ("sampling/createMessage", {**SAMPLE, "maxTokens": True}),
        ("sampling/createMessage", {**SAMPLE, "messages": [{"role": "system", "content": {}}]}),
        ("sampling/createMessage", {**SAMPLE, "messages": [{"role": "user", "content": {"type": "resource"}}]}),
    ],
)
def test_what_is_not_of_the_form_is_refused(method: str, params: dict[str, Any]) -> None:
    """Wrong members, types, sizes and content types."""
    assert "CALL-090" == refused(method, params)


@pytest.mark.parametrize("more", [{"includeContext": "allServers"}, {"tools": [{}]}, {"toolChoice": {"mode": "any"}}])
def test_sampling_gets_neither_tools_nor_context(more: dict[str, Any]) -> None:
    """J07: what other servers said, and tools of the client, stay out of a server's reach."""
    assert "CALL-091" == refused("sampling/createMessage", {**SAMPLE, **more})


def test_budgets_hold() -> None:
    """Questions, tokens of one and tokens of all: each bound is hit."""
    few, many, all_ = asking(questions=2), asking(tokens=99), asking(session_tokens=250)
    passed = [few.judge("elicitation/create", FORM, ME) for _ in range(2)]
    passed += [all_.judge("sampling/createMessage", SAMPLE, ME) for _ in range(2)]

    assert 4 == len(passed)
    assert "CALL-092" == refused("elicitation/create", FORM, few)
    assert "CALL-092" == refused("sampling/createMessage", SAMPLE, many)
    assert "CALL-092" == refused("sampling/createMessage", SAMPLE, all_)


def test_policy_decides_on_facts() -> None:
    """Rules see ``max_tokens``, or ``mode`` and ``host``; a denial is final."""
    allow = Allow()
    judge = asking(allow)
    judge.judge("elicitation/create", URL, ME)
    judge.judge("sampling/createMessage", SAMPLE, ME)

    assert [{"mode": "url", "host": "example.com"}, {"max_tokens": 100}] == allow.facts
    assert "POL-020" == refused("elicitation/create", FORM, asking(Deny()))


def test_an_answer_has_the_members_of_the_protocol_only() -> None:
    """What a client adds does not reach the server; a declined form has no content."""
    given = {"action": "decline", "content": {"name": "x"}, "_meta": {"token": "t"}}

    assert {"action": "decline"} == answer_of("elicitation/create", given)
    assert {"action": "accept", "content": {}} == answer_of("elicitation/create", {"action": "accept", "content": {}})

"""What a server may ask of its client (sampling, elicitation), and in which form it gets there. Denied by default.

Steps of one question, the same numbers in the code; each refusal is answered to the server and recorded:

1. Form: known members of the right types and sizes only; the rest does not pass.
2. Harmless: sampling without tools and without the client's other context; forms without fields for secrets; a URL is
   https, with a plain host name, and nobody here ever opens it.
3. Policy: Cedar decides on ``max_tokens``, or on ``mode`` and ``host``; without a rule of the operator it is denied.
4. Budget: questions and tokens of one session.
5. Label: the text says which server asks.

Answers of the client are cut to the members that the protocol has before the server sees them.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from sandbox.errors import CallRefused
from sandbox.policy.request import ELICIT, SAMPLE
from sandbox.serve.calls import Caller

ASKABLE: Final = {SAMPLE: "sampling", ELICIT: "elicitation"}
"""Methods of a server that may reach a client, with the client capability that each needs."""

MAX_QUESTIONS: Final = 20
"""Questions of one session that reach its client: who is asked more often answers without reading."""

MAX_SAMPLING_TOKENS: Final = 4_096
"""``maxTokens`` of one sampling request; more is refused, since a cut answer is a wrong one."""

MAX_SESSION_TOKENS: Final = 20_000
"""``maxTokens`` of all sampling requests of one session together; the client's model is paid by the client."""

BUDGET_SECONDS: Final = 1800.0
"""Seconds that the budget of a credential without a session lasts: as long as an unused session would."""

MAX_BUDGETS: Final = 4096
"""Credentials whose budgets are remembered; beyond it the oldest is forgotten."""

MAX_QUESTION_CHARS: Final = 16_000
"""Characters of all text of one question; what is longer is not read by anybody."""

MAX_FORM_FIELDS: Final = 12
"""Fields of one form."""

_SECRET: Final = re.compile(
    r"pass(?:word|phrase|code)|secret|api.?key|access.?key|private.?key|token|credential|\bpin\b|\bcvv\b|"
    r"credit.?card|card.?number|\bssn\b|social.?security|seed.?phrase|recovery.?code|one.?time|\botp\b|\b2fa\b",
    re.IGNORECASE,
)
_HOST: Final = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]")
_FIELD_TYPES: Final = frozenset(("string", "number", "integer", "boolean"))


class Decider(Protocol):
    """Step 3."""

    def decide_ask(self, caller: Caller, method: str, facts: Mapping[str, Any]) -> Sequence[str]:
        """Return the rules that allow a question, or raise CallRefused."""


@dataclass(frozen=True, slots=True)
class AskBounds:
    """What one session may be asked; see the constants."""

    questions: int = MAX_QUESTIONS
    tokens: int = MAX_SAMPLING_TOKENS
    session_tokens: int = MAX_SESSION_TOKENS


@dataclass(frozen=True, slots=True)
class Question:
    """A question that may be put to the client, with the rules that allow it."""

    method: str
    params: dict[str, Any]
    rules: tuple[str, ...]


class Asking:
    """Judges the questions of one server to one session.

    Args:
        decider: policy.
        server: how the server is called towards people.
        clean: removes secrets and control characters from what a server says; raises ``SandboxError``.
        bounds: of the session.
    """

    def __init__(
        self,
        decider: Decider,
        server: str,
        clean: Callable[[dict[str, Any]], dict[str, Any]],
        bounds: AskBounds | None = None,
    ) -> None:
        self._decider = decider
        self._server = server
        self._clean = clean
        self._bounds = bounds or AskBounds()
        self._asked = 0
        self._tokens = 0

    def go_on_from(self, other: Asking | None) -> None:
        """Count what another one has let through before for the same session."""
        if other is not None:
            self._asked, self._tokens = self._asked + other._asked, self._tokens + other._tokens  # noqa: SLF001 - its own class

    def judge(self, method: str, params: Mapping[str, Any], caller: Caller) -> Question:
        """Return the question as it may reach the client.

        Raises:
            CallRefused: ``CALL-090`` form, ``CALL-091`` harmful, ``CALL-092`` budget, ``POL-020`` policy.
            ServerFault: it cannot be made harmless.
        """
        said = self._clean(dict(params))
        if len(str(said)) > MAX_QUESTION_CHARS:
            raise _form(f"more than {MAX_QUESTION_CHARS} characters")
        if method == SAMPLE:
            return self._sampling(said, caller)
        if method == ELICIT:
            return self._elicitation(said, caller)
        raise _form(f"the method {method[:40]!r}")

    def _sampling(self, said: Mapping[str, Any], caller: Caller) -> Question:
        most, messages = said.get("maxTokens"), said.get("messages")
        if type(most) is not int or most < 1 or not isinstance(messages, list) or not messages:  # 1
            raise _form("no `maxTokens` or no `messages`")
        if said.get("tools") or said.get("toolChoice") or said.get("includeContext", "none") != "none":  # 2
            raise _harmful("tools, or context of the client's other servers")
        rules = self._decider.decide_ask(caller, SAMPLE, {"max_tokens": most})  # 3
        if most > self._bounds.tokens or self._tokens + most > self._bounds.session_tokens:  # 4
            raise CallRefused(
                "CALL-092", f"{most} tokens are more than this session may still be asked for", "ask less"
            )
        self._count(most)
        kept = {name: said[name] for name in ("temperature", "stopSequences", "modelPreferences") if name in said}
        text = said.get("systemPrompt")
        prompt = f"{self._label()} {text if isinstance(text, str) else ''}".strip()  # 5
        shown = {**kept, "messages": [_message(one) for one in messages], "maxTokens": most, "systemPrompt": prompt}
        return Question(SAMPLE, {**shown, "includeContext": "none"}, tuple(rules))

    def _elicitation(self, said: Mapping[str, Any], caller: Caller) -> Question:
        mode, message = said.get("mode", "form"), said.get("message")
        if mode not in ("form", "url") or not isinstance(message, str) or not message:  # 1
            raise _form("no `message`, or an unknown mode")
        shown: dict[str, Any] = {"mode": mode, "message": f"{self._label()} {message}"}  # 5
        host = ""
        if mode == "form":
            if _SECRET.search(message):
                raise _harmful("a form that asks for a secret")
            shown["requestedSchema"] = _form_schema(said.get("requestedSchema"))  # 1, 2
        else:
            url, host = _url(said.get("url"))  # 2
            if not isinstance(said.get("elicitationId"), str):
                raise _form("no `elicitationId`")
            shown |= {"url": url, "elicitationId": said["elicitationId"]}
        rules = self._decider.decide_ask(caller, ELICIT, {"mode": mode, "host": host})  # 3
        self._count(0)  # 4
        return Question(ELICIT, shown, tuple(rules))

    def _count(self, tokens: int) -> None:
        if self._asked >= self._bounds.questions:
            text = f"{self._bounds.questions} questions were put to this client already"
            raise CallRefused("CALL-092", text, "ask less")
        self._asked += 1
        self._tokens += tokens

    def _label(self) -> str:
        return f"[asked by the MCP server {self._server}, not by your application]"


class Budgets:
    """What judges the questions to clients without sessions: one for each credential, renewed after a while."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: OrderedDict[str, tuple[float, Asking]] = OrderedDict()

    def of(self, owner: str, make: Callable[[], Asking]) -> Asking:
        """Return what judges for one credential; made when there is none, or an old one."""
        since, asking = self._known.get(owner, (0.0, None))
        if asking is None or self._now() - since > BUDGET_SECONDS:
            since, asking = self._now(), make()
            self._known[owner] = (since, asking)
            while len(self._known) > MAX_BUDGETS:
                self._known.popitem(last=False)
        return asking


def answer_of(method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's answer with the members that the protocol has and nothing else."""
    names: tuple[str, ...]
    if method == SAMPLE:
        names = ("role", "content", "model", "stopReason")
    else:
        names = ("action", "content") if result.get("action") == "accept" else ("action",)
    return {name: result[name] for name in names if name in result}


def _message(one: Any) -> dict[str, Any]:
    if not isinstance(one, Mapping) or one.get("role") not in ("user", "assistant"):
        raise _form("a message without a role")
    content = one.get("content")
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if not isinstance(block, Mapping) or block.get("type") not in ("text", "image", "audio"):
            raise _form("content other than text, image or audio")
    return {"role": one["role"], "content": content}


def _form_schema(schema: Any) -> dict[str, Any]:
    """Return the schema of a form: flat, of plain types, and without fields for secrets."""
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(fields, Mapping) or not 0 < len(fields) <= MAX_FORM_FIELDS:
        raise _form(f"no form of 1 to {MAX_FORM_FIELDS} fields")
    for name, field in fields.items():
        kind = field.get("type") if isinstance(field, Mapping) else None
        if kind not in _FIELD_TYPES and kind != "array":
            raise _form("a field that is not plain")
        words = " ".join([name, *(str(field.get(key, "")) for key in ("title", "description", "format"))])
        if _SECRET.search(words.replace("_", " ").replace("-", " ")) or _SECRET.search(words):
            raise _harmful("a form field for a secret")
    kept = {"type": "object", "properties": dict(fields)}
    required = schema.get("required")
    return {**kept, "required": required} if isinstance(required, list) else kept


def _url(text: Any) -> tuple[str, str]:
    """Return a URL that a person can judge, and its host: https, a plain name, no credentials, no other reading."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise _harmful("no plain URL")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _harmful("no URL") from None
    host = parts.hostname or ""
    if parts.scheme != "https" or not text.startswith("https://") or port not in (None, 443):
        raise _harmful("a URL that is not https on its own port")
    if "@" in parts.netloc or _HOST.fullmatch(host) is None or "xn--" in host or parts.netloc.split(":")[0] != host:
        raise _harmful("a URL whose host is not a plain name")
    return text, host


def _form(what: str) -> CallRefused:
    return CallRefused("CALL-090", f"the server's question has {what}", "report it to the server's author")


def _harmful(what: str) -> CallRefused:
    return CallRefused("CALL-091", f"the server asks for what is never passed on: {what}", "do not use this server")

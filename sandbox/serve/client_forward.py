"""From a client's request to its handler: what is not exposed is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.serve import client_tasks
from sandbox.serve.client_lists import declared_for, resolved
from sandbox.serve.client_model import CallInfo, Handler
from sandbox.serve.client_replies import ProtocolMisuse, invalid_params, unknown_method
from sandbox.serve.client_streams import Streams
from sandbox.serve.client_tasks import Tasks
from sandbox.serve.inservice import refuse_held
from sandbox.transport.peer import ServerPeer
from sandbox.vet.model import Exposure
from sandbox.wire.codes import INVALID_PARAMS, RESOURCE_NOT_FOUND
from sandbox.wire.versions import V2026_07_28


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What carrying a request needs beside the request."""

    exposure: Exposure
    handler: Handler
    peer: ServerPeer
    streams: Streams
    tasks: Tasks | None = None


async def perform(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    """Carry a request to its neutral result; what is not exposed is unknown (step 4).

    Raises:
        ProtocolMisuse: malformed parameters, or something that is not exposed.
        SandboxError: as the handler says.
    """
    carry = _CARRIERS.get(call.method)
    if call.method in client_tasks.METHODS and around.tasks is not None:
        return await client_tasks.answered(call.method, call.params, around.tasks, call)
    if carry is None:
        raise unknown_method(call.method)
    return await carry(call, around)


async def _get_prompt(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    name = _text(call.params, "name")
    if name not in around.exposure.prompts:
        raise invalid_params("SESS-016", f"unknown prompt {name[:80]!r}", "use one of `prompts/list`")
    _refuse_answers(call.params)
    return await around.handler.get_prompt(name, _object(call.params, "arguments"), call)


async def _read_resource(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    uri = _known_uri(call, around.exposure)
    _refuse_answers(call.params)
    return await around.handler.read_resource(uri, call)


async def _subscribe(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    uri = _known_uri(call, around.exposure)
    await around.handler.watch_resource(uri, call)
    if around.streams.watch(uri):
        try:
            await around.peer.watches.watch(uri, timeout=call.remaining())
        except BaseException:
            around.streams.unwatch(uri)
            raise
    return {}


async def _unsubscribe(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    uri = resolved(around.exposure, _text(call.params, "uri"))
    if around.streams.unwatch(uri):
        await around.peer.watches.unwatch(uri, timeout=call.remaining())
    return {}


async def _complete(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    _check_reference(call.params, around.exposure)
    params = {key: value for key, value in call.params.items() if key != "_meta"}
    return await around.handler.complete(params, call)


async def _call_tool(call: CallInfo, around: Surroundings) -> dict[str, Any]:
    params = call.params
    name = _text(params, "name")
    tool = around.exposure.tools.get(name)
    if tool is None:
        refuse_held(name, _object(params, "arguments"), around.exposure, call.scope)
        raise invalid_params("SESS-015", f"unknown tool {name[:80]!r}", "use one of `tools/list`")
    _refuse_answers(params)
    arguments = _object(params, "arguments")
    task = client_tasks.wanted(params, call.protocol_version, around.tasks)
    if task is not None:
        return await task[0].begin(tool, arguments, task[1], call)
    return await around.handler.call_tool(tool, arguments, call)


_CARRIERS: Final[Mapping[str, Callable[[CallInfo, Surroundings], Awaitable[dict[str, Any]]]]] = {
    "tools/call": _call_tool,
    "prompts/get": _get_prompt,
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
}
"""Method → what carries it."""


def _refuse_answers(params: Mapping[str, Any]) -> None:
    """Refuse a state that was never given (2026-07-28, multi round-trip requests); answers alone are not looked at."""
    if "requestState" in params:
        raise invalid_params("SESS-018", "no input was asked for", "send no `requestState`")


def _text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise invalid_params("SESS-017", f"`{name}` is missing or no string", f"send `{name}`")
    return value


def _object(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name, {})
    if not isinstance(value, dict):
        raise invalid_params("SESS-017", f"`{name}` is no object", f"send `{name}` as an object")
    return value


def _known_uri(call: CallInfo, exposure: Exposure) -> str:
    """Return the URI when some declaration could have made it; whether it may be read is for the handler to say."""
    uri = resolved(exposure, _text(call.params, "uri"))
    if declared_for(exposure, uri) is not None:
        return uri
    code = RESOURCE_NOT_FOUND if call.protocol_version < V2026_07_28 else INVALID_PARAMS
    mend = "use one of `resources/list` or `resources/templates/list`"
    raise ProtocolMisuse("SESS-019", "unknown resource", mend, code=code, data={"uri": uri})


def _check_reference(params: Mapping[str, Any], exposure: Exposure) -> None:
    """Refuse completion for what is not exposed."""
    ref = params.get("ref")
    if isinstance(ref, dict):
        if ref.get("type") == "ref/prompt" and ref.get("name") in exposure.prompts:
            return
        uri = ref.get("uri")
        if ref.get("type") == "ref/resource" and any(uri == one.uri_template for one in exposure.resources):
            return
    raise invalid_params("SESS-017", "`ref` names no exposed prompt or resource", "use one of the lists")

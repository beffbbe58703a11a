#!/usr/bin/python3
"""The fixture server of the official conformance suite, both protocol eras: what its scenarios ask for by name.

``conformance_server.py`` serves stdio; ``conformance_server.py http PORT`` serves the same over Streamable HTTP, for
the run without anything in between. Written on the public Python SDK; where that is absent it is read from the folder
:data:`MODULES`, where a driver mounts it.
"""

import asyncio
import hashlib
import hmac
import secrets
import sys
import warnings
from pathlib import Path

MODULES = "/srv/modules"
if Path(MODULES).is_dir():
    sys.path.insert(0, MODULES)

from mcp import types  # noqa: E402
from mcp.server.lowlevel.server import NotificationOptions, Server  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402
from mcp.server.subscriptions import (  # noqa: E402
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError  # noqa: E402

warnings.simplefilter("ignore")

STATELESS = "2026-07-28"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
BUS = InMemorySubscriptionBus()
KEY = secrets.token_bytes(32)
PAUSE = 0.05
RECONNECTION = 1.0
"""Seconds that the tool of the polling scenario takes."""

HIDDEN = {"tools": False, "prompts": False}
"""Whether the tool and the prompt that come and go are away."""

CANCELLED = []
MISSING_CAPABILITY, NOT_FOUND = -32021, -32002
OBJECT = {"type": "object", "properties": {}, "additionalProperties": False}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def form(*required, **fields):
    """Return the schema of a form."""
    return {"type": "object", "properties": fields, "required": list(required)}


def elicit(message, schema):
    """Return a question to the user."""
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def sample(prompt, tokens=100):
    """Return a question to the model."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


TEXT = {"type": "string"}
ROOTS = {"method": "roots/list", "params": {}}
DEFAULTS = form(
    name={"type": "string", "description": "User name", "default": "John Doe"},
    age={"type": "integer", "description": "User age", "default": 30},
    score={"type": "number", "description": "User score", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "description": "Whether verified", "default": True},
)


def titled(*names):
    """Return choices with titles."""
    return [{"const": f"value{number}", "title": name} for number, name in enumerate(names, 1)]


ENUMS = form(
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
    legacyEnum={
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    untitledMulti={
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
    },
    titledMulti={
        "type": "array",
        "minItems": 1,
        "maxItems": 3,
        "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
    },
)
NAME = elicit("What is your name?", form("name", name=TEXT))
CONFIRM = elicit("Please confirm", form("ok", ok={"type": "boolean"}))
STEPS = (
    {"step1": elicit("Step 1: What is your name?", form("name", name=TEXT))},
    {"step2": elicit("Step 2: What is your favorite color?", form("color", color=TEXT))},
)
PREFIX = "test_input_required_result_"
ROUNDS = {
    PREFIX + "elicitation": ({"user_name": NAME},),
    PREFIX + "sampling": ({"capital_question": sample("What is the capital of France?")},),
    PREFIX + "list_roots": ({"client_roots": ROOTS},),
    PREFIX + "request_state": ({"confirm": CONFIRM},),
    PREFIX + "tampered_state": ({"confirm": CONFIRM},),
    PREFIX + "multiple_inputs": (
        {"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS},
    ),
    PREFIX + "multi_round": STEPS,
    PREFIX + "capabilities": ({"user_name": NAME, "greeting": sample("Generate a greeting", 50)},),
    "test_streaming_elicitation": ({"user_name": NAME},),
}
"""Tools that need input → what they ask for, round by round."""

WITHOUT_STATE = {PREFIX + "elicitation", PREFIX + "sampling", PREFIX + "list_roots", "test_streaming_elicitation"}
RICH = {
    "$schema": DRAFT,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": TEXT, "city": TEXT},
        }
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def arguments(**properties):
    """Return the schema of a tool's arguments, all of them required."""
    return {**OBJECT, "properties": properties, "required": list(properties)}


TOOLS = {
    "test_simple_text": OBJECT,
    "test_image_content": OBJECT,
    "test_audio_content": OBJECT,
    "test_embedded_resource": OBJECT,
    "test_multiple_content_types": OBJECT,
    "test_tool_with_logging": OBJECT,
    "test_tool_with_progress": OBJECT,
    "test_error_handling": OBJECT,
    "test_sampling": arguments(prompt=TEXT),
    "test_elicitation": arguments(message=TEXT),
    "test_elicitation_sep1034_defaults": OBJECT,
    "test_elicitation_sep1330_enums": OBJECT,
    "test_reconnection": OBJECT,
    "test_missing_capability": OBJECT,
    "test_logging_tool": OBJECT,
    "test_trigger_tool_change": OBJECT,
    "test_trigger_prompt_change": OBJECT,
    "test_comes_and_goes": OBJECT,
    "test_waits": OBJECT,
    "test_cancelled": OBJECT,
    "test_header": arguments(region={**TEXT, "x-mcp-header": "Region"}),
    "json_schema_2020_12_tool": RICH,
    **dict.fromkeys(ROUNDS, OBJECT),
}
PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
    "test_prompt_that_comes_and_goes": (),
}
RESOURCES = {
    "test://static-text": ("text/plain", {"text": "This is the content of the static text resource."}),
    "test://static-binary": ("image/png", {"blob": PNG}),
    "test://watched-resource": ("text/plain", {"text": "This resource may be watched."}),
}
TEMPLATE = "test://template/{id}/data"
EMBEDDED = ("test://embedded-resource", "test://mixed-content-resource", "test://example-resource")
"""What results and prompts carry in themselves."""


def text(value):
    """Return content of one text."""
    return {"type": "text", "text": value}


def embedded(uri, kind, value):
    """Return an embedded resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


SIMPLE = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "test_comes_and_goes": [text("here")],
}


def declared(ctx):
    """Return what the client says that it can be asked for."""
    found = ctx.session.client_capabilities
    return found.model_dump(by_alias=True, exclude_none=True) if found else {}


def seal(name, number):
    """Return a request state that nobody else can make."""
    body = f"{name}.{number}"
    return f"{body}.{hmac.new(KEY, body.encode(), hashlib.sha256).hexdigest()}"


def opened(state, name):
    """Return the round that a request state stands for."""
    for number in range(len(ROUNDS.get(name, ())) + 1):
        if isinstance(state, str) and hmac.compare_digest(state, seal(name, number)):
            return number
    raise MCPError(code=-32602, message="the request state is not one of ours")


def fits(answers, wanted):
    """Return whether every question has an answer of the right form."""
    return isinstance(answers, dict) and all(answers.get(key) is not None for key in wanted)


def input_required(wanted, state=None):
    """Return what asks for input."""
    return {"resultType": "input_required", "inputRequests": wanted, **({"requestState": state} if state else {})}


async def with_input(ctx, params):
    """Carry a tool that needs input, in the way of the client's era."""
    name, rounds = params.name, ROUNDS[params.name]
    if ctx.protocol_version < STATELESS:
        answers = [await ask_now(ctx, question) for wanted in rounds for question in wanted.values()]
        return [text(f"state-ok {answers}")]
    given = answers_of(params)
    number = opened(params.request_state, name) if params.request_state else 0
    wanted = rounds[min(number, len(rounds) - 1)]
    if name == PREFIX + "capabilities":
        needs = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}
        wanted = {key: one for key, one in wanted.items() if needs[one["method"]] in declared(ctx)}
    stateful = name not in WITHOUT_STATE
    if not fits(given, wanted) or (stateful and not params.request_state):
        return input_required(wanted, seal(name, number) if stateful else None)
    if number + 1 < len(rounds):
        return input_required(rounds[number + 1], seal(name, number + 1))
    return [text(f"Hello! state-ok {sorted(given)}")]


def answers_of(params):
    """Return the answers to earlier questions."""
    found = params.input_responses
    return {key: value for key, value in found.items() if value is not None} if found else {}


async def ask_now(ctx, question):
    """Ask a handshake client and return its answer."""
    params = question["params"]
    if question["method"] == "roots/list":
        return [str(root.uri) for root in (await ctx.session.list_roots()).roots]
    if question["method"] == "elicitation/create":
        answer = await ctx.session.elicit(params["message"], params["requestedSchema"], ctx.request_id)
        return f"action={answer.action}, content={answer.content}"
    content = types.TextContent(type="text", text=params["messages"][0]["content"]["text"])
    message = types.SamplingMessage(role="user", content=content)
    answer = await ctx.session.create_message(
        [message], max_tokens=params["maxTokens"], related_request_id=ctx.request_id
    )
    return answer.content.text


async def ask(ctx, params, question, said):
    """Ask one question and tell the answer, in the way of the client's era."""
    if ctx.protocol_version < STATELESS:
        return [text(f"{said}: {await ask_now(ctx, question)}")]
    given = answers_of(params)
    return [text(f"{said}: {given['one']}")] if fits(given, ("one",)) else input_required({"one": question})


async def steps(ctx, params):
    """Report progress or log while working."""
    for number, said in enumerate(("Tool execution started", "Tool processing data", "Tool execution completed")):
        if params.name == "test_tool_with_progress":
            await ctx.session.report_progress(number * 50, 100)
        else:
            await ctx.session.send_log_message("info", said, "fixture")
        await asyncio.sleep(PAUSE)
    return [text("done")]


async def change(ctx, params):
    """Let the tool or the prompt that comes and goes come or go, and say so."""
    name = "tools" if params.name == "test_trigger_tool_change" else "prompts"
    HIDDEN[name] = not HIDDEN[name]
    if ctx.protocol_version < STATELESS:
        await (ctx.session.send_tool_list_changed if name == "tools" else ctx.session.send_prompt_list_changed)()
    await BUS.publish(ToolsListChanged() if name == "tools" else PromptsListChanged())
    return [text("changed")]


async def waits(ctx, params):
    """Wait to be cancelled."""
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        CANCELLED.append(params.name)
        raise
    return [text("nobody cancelled this")]


async def slowly(ctx, params):
    """Take a while, and ask a client that polls to come back later."""
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(RECONNECTION)
    return [text("Reconnection test completed")]


async def other(ctx, params):
    """Carry the remaining tools."""
    name, given = params.name, params.arguments or {}
    if name == "test_error_handling":
        return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}
    if name == "test_missing_capability":
        if "sampling" not in declared(ctx):
            needed = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(code=MISSING_CAPABILITY, message="sampling is needed", data=needed)
        return [text("the client has sampling")]
    if name == "test_sampling":
        return await ask(ctx, params, sample(given["prompt"]), "LLM response")
    if name == "test_elicitation":
        schema = form(
            "username", "email", username={**TEXT, "description": "User's response"}, email={**TEXT, "format": "email"}
        )
        return await ask(ctx, params, elicit(given["message"], schema), "User response")
    if name == "test_cancelled":
        return [text(str(len(CANCELLED)))]
    if name.startswith("test_elicitation_"):
        schema = DEFAULTS if name.endswith("defaults") else ENUMS
        return await ask(ctx, params, elicit("Please fill in the form", schema), "Elicitation completed")
    return [text(f"{name} {given}")]


CARRIERS = {
    "test_tool_with_progress": steps,
    "test_tool_with_logging": steps,
    "test_logging_tool": steps,
    "test_trigger_tool_change": change,
    "test_trigger_prompt_change": change,
    "test_reconnection": slowly,
    "test_waits": waits,
    **dict.fromkeys(ROUNDS, with_input),
}


async def call_tool(ctx, params):
    """Carry a call."""
    if params.name not in TOOLS:
        raise MCPError(code=-32602, message=f"unknown tool {params.name}")
    if params.name in SIMPLE:
        return {"content": SIMPLE[params.name]}
    result = await CARRIERS.get(params.name, other)(ctx, params)
    return {"content": result} if isinstance(result, list) else result


async def list_tools(ctx, params):
    """List the tools."""
    shown = [name for name in TOOLS if name != "test_comes_and_goes" or not HIDDEN["tools"]]
    return {"tools": [{"name": one, "description": f"Fixture {one}.", "inputSchema": TOOLS[one]} for one in shown]}


async def list_prompts(ctx, params):
    """List the prompts."""
    shown = [name for name in PROMPTS if "comes_and_goes" not in name or not HIDDEN["prompts"]]
    return {
        "prompts": [
            {
                "name": name,
                "description": f"Fixture {name}.",
                "arguments": [{"name": one, "description": one, "required": True} for one in PROMPTS[name]],
            }
            for name in shown
        ]
    }


async def get_prompt(ctx, params):
    """Return a prompt."""
    given = params.arguments or {}
    words = "This is a simple prompt for testing."
    parts = [text(words)]
    match params.name:
        case "test_prompt_with_arguments":
            parts = [text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
        case "test_prompt_with_embedded_resource":
            uri = given.get("resourceUri", "test://example-resource")
            parts = [embedded(uri, "text/plain", "Embedded resource content for testing."), text("See above.")]
        case "test_prompt_with_image":
            parts = [{"type": "image", "data": PNG, "mimeType": "image/png"}, text("Please look at the image.")]
        case "test_input_required_result_prompt":
            question = elicit("What context should the prompt use?", form("context", context=TEXT))
            if ctx.protocol_version < STATELESS:
                parts = [text(await ask_now(ctx, question))]
            elif not fits(answers_of(params), ("user_context",)):
                return input_required({"user_context": question})
    return {"messages": [{"role": "user", "content": part} for part in parts]}


async def list_resources(ctx, params):
    """List the resources."""
    return {
        "resources": [
            {"uri": uri, "name": uri.removeprefix("test://"), "description": f"Fixture {uri}.", "mimeType": kind}
            for uri, (kind, _) in RESOURCES.items()
        ]
    }


async def list_templates(ctx, params):
    """List the resource templates."""
    shown = {"uriTemplate": TEMPLATE, "name": "template", "description": "Fixture.", "mimeType": "application/json"}
    return {"resourceTemplates": [shown]}


async def read_resource(ctx, params):
    """Read a resource."""
    uri = str(params.uri)
    before, _, after = TEMPLATE.partition("{id}")
    if uri.startswith(before) and uri.endswith(after):
        one = uri.removeprefix(before).removesuffix(after)
        body = f'{{"id":"{one}","templateTest":true,"data":"Data for ID: {one}"}}'
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": body}]}
    if uri not in RESOURCES:
        code = -32602 if ctx.protocol_version >= STATELESS else NOT_FOUND
        raise MCPError(code=code, message="Resource not found", data={"uri": uri})
    kind, body = RESOURCES[uri]
    return {"contents": [{"uri": uri, "mimeType": kind, **body}]}


async def empty(ctx, params):
    """Accept something."""
    return {}


async def complete(ctx, params):
    """Return completions."""
    values = [one for one in ("paris", "park", "party") if one.startswith(params.argument.value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


def typed(model, carry):
    """Return a handler whose plain result becomes what the SDK dresses for each version."""

    async def handler(ctx, params):
        result = await carry(ctx, params)
        asks = result.get("resultType") == "input_required"
        return (types.InputRequiredResult if asks else model).model_validate(result)

    return handler


def build():
    """Return the server."""
    return Server(
        "conformance-fixture",
        version="1",
        on_list_tools=typed(types.ListToolsResult, list_tools),
        on_call_tool=typed(types.CallToolResult, call_tool),
        on_list_prompts=typed(types.ListPromptsResult, list_prompts),
        on_get_prompt=typed(types.GetPromptResult, get_prompt),
        on_list_resources=typed(types.ListResourcesResult, list_resources),
        on_list_resource_templates=typed(types.ListResourceTemplatesResult, list_templates),
        on_read_resource=typed(types.ReadResourceResult, read_resource),
        on_subscribe_resource=typed(types.EmptyResult, empty),
        on_unsubscribe_resource=typed(types.EmptyResult, empty),
        on_subscriptions_listen=ListenHandler(BUS),
        on_completion=typed(types.CompleteResult, complete),
        on_set_logging_level=typed(types.EmptyResult, empty),
        get_tool_input_schema=TOOLS.get,
    )


async def over_stdio():
    """Serve stdio."""
    server = build()
    options = server.create_initialization_options(NotificationOptions(True, True, True))
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


def over_http(port):
    """Serve Streamable HTTP on loopback, streams resumable as far as memory goes."""
    import uvicorn
    from mcp.server.streamable_http import EventMessage, EventStore

    class Kept(EventStore):
        """Events by number."""

        def __init__(self):
            self.events = []

        async def store_event(self, stream_id, message):
            self.events.append((stream_id, message))
            return str(len(self.events))

        async def replay_events_after(self, last_event_id, send_callback):
            last = int(last_event_id)
            stream = self.events[last - 1][0]
            for number, (one, message) in enumerate(self.events[last:], last + 1):
                if one == stream and message is not None:
                    await send_callback(EventMessage(message, str(number)))
            return stream

    app = build().streamable_http_app(event_store=Kept(), retry_interval=500)
    uvicorn.run(app, host="127.0.0.1", port=port, http="h11", log_level="warning")


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        over_http(int(sys.argv[2]))
    else:
        asyncio.run(over_stdio())

"""A server written with the public Python SDK, for both eras, with one of everything that a proxy must carry."""

from __future__ import annotations

import asyncio
import warnings

from mcp import types
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged

warnings.simplefilter("ignore")

BUS = InMemorySubscriptionBus()
OBJECT = {"type": "object"}
TOOLS = {
    "echo": {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
    "add": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "slow": OBJECT,
    "progress": OBJECT,
    "log": OBJECT,
    "change": OBJECT,
    "touch": OBJECT,
    "ask": OBJECT,
    "roots": OBJECT,
    "break": OBJECT,
    "cancelled": OBJECT,
}
CANCELLED = []
STATELESS = "2026-07-28"


def text(value):
    """Return a result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


async def list_tools(ctx, params):
    """List the tools."""
    structured = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    tools = [
        types.Tool(name=name, input_schema=schema, output_schema=structured if name == "add" else None)
        for name, schema in TOOLS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def echo(ctx, arguments):
    """Return the message."""
    return text(arguments["message"])


async def add(ctx, arguments):
    """Return a sum, structured too."""
    total = arguments["a"] + arguments["b"]
    result = text(str(total))
    result.structured_content = {"sum": total}
    return result


async def slow(ctx, arguments):
    """Wait to be cancelled."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        CANCELLED.append("slow")
        raise


async def cancelled(ctx, arguments):
    """Return which calls were cancelled."""
    return text(",".join(CANCELLED))


async def progress(ctx, arguments):
    """Report three steps."""
    for step in (1, 2, 3):
        await ctx.session.report_progress(step, 3, f"step {step}")
    return text("done")


async def log(ctx, arguments):
    """Write messages of three levels."""
    for level in ("debug", "info", "error"):
        await ctx.session.send_log_message(level, f"a {level} message", "peer")
    return text("logged")


async def change(ctx, arguments):
    """Say that the tools changed."""
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_tool_list_changed()
    await BUS.publish(ToolsListChanged())
    return text("changed")


async def touch(ctx, arguments):
    """Say that a resource changed."""
    if ctx.protocol_version < STATELESS:
        await ctx.session.send_resource_updated("note://one")
    await BUS.publish(ResourceUpdated("note://one"))
    return text("touched")


async def fail(ctx, arguments):
    """Break."""
    raise RuntimeError("the tool broke")


RUN = {
    "echo": echo,
    "add": add,
    "slow": slow,
    "cancelled": cancelled,
    "progress": progress,
    "log": log,
    "change": change,
    "touch": touch,
    "break": fail,
}


async def call_tool(ctx, params):
    """Carry a call; an unknown name breaks, so that a test sees whether one arrived."""
    if params.name in ("ask", "roots"):
        return await ask(ctx, params)
    return await RUN.get(params.name, fail)(ctx, params.arguments or {})


async def ask(ctx, params):
    """Ask the client for something, in the way of its era."""
    if ctx.protocol_version < STATELESS:
        if params.name == "roots":
            listed = await ctx.session.list_roots()
            return text(str(listed.roots[0].uri))
        answer = await ctx.session.elicit("name?", {"type": "object", "properties": {}})
        return text(answer.action)
    if params.input_responses:
        return text(str(params.input_responses["one"].roots[0].uri))
    wanted = (
        types.ListRootsRequest()
        if params.name == "roots"
        else types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="name?", requested_schema={"type": "object", "properties": {}})
        )
    )
    return types.InputRequiredResult(input_requests={"one": wanted}, request_state="state-1")


async def list_prompts(ctx, params):
    """List the prompts."""
    return types.ListPromptsResult(prompts=[types.Prompt(name="greet", description="Greets.")])


async def get_prompt(ctx, params):
    """Return a prompt."""
    content = types.TextContent(type="text", text=f"hello {(params.arguments or {}).get('who', 'you')}")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])


async def list_resources(ctx, params):
    """List the resources."""
    return types.ListResourcesResult(resources=[types.Resource(uri="note://one", name="one")])


async def list_templates(ctx, params):
    """List the resource templates."""
    return types.ListResourceTemplatesResult(
        resource_templates=[types.ResourceTemplate(uri_template="note://{name}", name="notes")]
    )


async def read_resource(ctx, params):
    """Read any resource: what is allowed is not decided here."""
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=str(params.uri), text="the note")])


async def subscribe(ctx, params):
    """Accept a subscription."""
    return types.EmptyResult()


async def complete(ctx, params):
    """Return completions."""
    return types.CompleteResult(completion=types.Completion(values=["ada", "alan"]))


async def set_level(ctx, params):
    """Accept a level."""
    return types.EmptyResult()


def build():
    """Return the server."""
    return Server(
        "peer",
        version="1",
        instructions="Be kind.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=subscribe,
        on_subscriptions_listen=ListenHandler(BUS),
        on_completion=complete,
        on_set_logging_level=set_level,
    )


async def main():
    """Serve stdio."""
    server = build()
    options = server.create_initialization_options(NotificationOptions(True, True, True))
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


if __name__ == "__main__":
    asyncio.run(main())

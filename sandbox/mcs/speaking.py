"""The part of a driver that speaks with a model: describes its tools, reads an answer, carries out what it asks for.

Two semantics (S2-23, B2-2). Contract 0.6: a ``DriverResponse`` says whether there was a call, whether it was carried
out, and what to append to the conversation. Contract 0.2: the raw result, or the answer itself when there is no call;
what cannot be carried out is raised. In both, an answer whose calls are not this driver's passes as one without calls,
so that drivers can stand in a row.

What is raised in both: what is neither the model's nor the tool's fault (the engine, the trail, a closed driver).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from sandbox.errors import CallRefused
from sandbox.mcs import prompts
from sandbox.mcs.answering import Answering
from sandbox.mcs.contract import MCSDriver, MCSToolDriver, Tool, ToolCallSignaling
from sandbox.mcs.openapi import document
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.replies import Call, Reading, read
from sandbox.mcs.settings import Description, Semantics, Style
from sandbox.mcs.tools import schema_of


class Speaking(MCSDriver, MCSToolDriver, ToolCallSignaling):
    """What makes a tool driver a driver; a subclass lists and executes the tools.

    Attributes:
        retries_unknown: whether a call of a tool that does not exist is answered with the list of those that do,
            rather than left to another driver.
    """

    retries_unknown = False

    def speak(
        self,
        texts: Prompts,
        *,
        style: Style = "auto",
        semantics: Semantics = "0.6",
        description: Description = "json-schema",
        custom_system_message: str | None = None,
        custom_tool_description: str | None = None,
    ) -> None:
        """Set how the driver speaks; called by constructors.

        Args:
            texts: for the model.
            style: see :mod:`sandbox.mcs.prompts`.
            semantics: of :meth:`process_llm_response`.
            description: format of :meth:`get_function_description`.
            custom_system_message: stands for the whole system prompt.
            custom_tool_description: stands for the whole description.
        """
        self._texts, self._style, self._semantics, self._format = texts, style, semantics, description
        self._system, self._described = custom_system_message, custom_tool_description

    # --- what a model is told -------------------------------------------------------------------------------------
    def get_function_description(self, model_name: str | None = None) -> str:  # noqa: ARG002 - part of the contract
        """Return every tool with its schema: JSON, or an OpenAPI document.

        Raises:
            SandboxError: the tools cannot be listed.
        """
        if self._described is not None:
            return self._described
        if self._format == "openapi":
            described = document(self.meta.name, self.meta.version, self.list_definitions())
            return json.dumps(described, indent=2, ensure_ascii=False)
        return prompts.whole(self.list_tools())

    def list_definitions(self) -> list[dict[str, Any]]:
        """Return the tools as MCP definitions."""
        return [
            {"name": one.name, "title": one.title, "description": one.description, "inputSchema": schema_of(one)}
            for one in self.list_tools()
        ]

    def get_driver_system_message(self, model_name: str | None = None) -> str:
        """Return the whole system prompt, for one model if the texts name it.

        Raises:
            SandboxError: the tools cannot be listed.
        """
        if self._system is not None:
            return self._system
        if self._described is not None:
            return self._texts.system(self._described, model_name, whole=True)
        tools = self.list_tools()
        inline = self._inline(tools)
        shown = prompts.whole(tools) if inline else prompts.summarised(tools)
        return self._texts.system(shown, model_name, whole=inline)

    def _inline(self, tools: Iterable[Tool]) -> bool:
        """Return whether the prompt has every tool whole; always when a tool bears the name of what fetches one."""
        tools = list(tools)
        if self._style == "inline" or any(tool.name == prompts.FETCH for tool in tools):
            return True
        return self._style == "auto" and len(prompts.whole(tools)) <= prompts.MAX_INLINE

    # --- what a model answers ---------------------------------------------------------------------------------------
    def process_llm_response(self, llm_response: str | dict[str, Any], *, streaming: bool = False) -> Any:
        """Carry out what an answer asks for.

        Args:
            llm_response: text, or a message with ``content`` or native ``tool_calls``.
            streaming: the answer may be unfinished: what is not a whole call is none, and nothing is complained about.

        Returns:
            A ``DriverResponse``; with the semantics of 0.2 the raw result, a list of them for several calls, or
            ``llm_response`` itself when it asks for nothing of this driver.

        Raises:
            PlatformError: engine or host failed.
            AuditUnavailable: the trail cannot be written; nothing was carried out.
            CallRefused: with the semantics of 0.2: ``MCS-002``, the call cannot be read in one way; or it is refused.
            ServerFault: with the semantics of 0.2: the tool failed.
        """
        tools = {tool.name: tool for tool in self.list_tools()}
        answering = Answering(self._texts, llm_response, self._semantics)
        reading = self._reading(llm_response, tools)
        if streaming and reading.problem:
            return answering.nothing()
        if reading.problem:
            return answering.unclear(reading.problem)
        strangers = [call.tool for call in reading.calls if not self._mine(call, tools)]
        if strangers and self.retries_unknown:
            return answering.unknown(strangers[0], tools)
        if strangers or not reading.calls:
            return answering.nothing()
        for call in reading.calls:
            try:
                answering.add(call, self._carry(call, tools))
            except Exception as error:  # noqa: BLE001 - sorted by whose fault it is, and raised on where not a model's
                return answering.failed(call, error, len(reading.calls))
        return answering.done()

    async def aprocess_llm_response(self, llm_response: str | dict[str, Any], *, streaming: bool = False) -> Any:
        """Do what :meth:`process_llm_response` does in a thread; a call that has begun is not cancelled."""
        import asyncio  # noqa: PLC0415 - only asynchronous callers

        return await asyncio.to_thread(self.process_llm_response, llm_response, streaming=streaming)

    def might_be_tool_call(self, partial: str) -> bool:
        """Return whether a beginning could become a call: a bracket or a fence at the start of one of its lines."""
        return any(line.lstrip()[:1] in {"{", "[", "`", "~"} for line in partial.splitlines() if line.strip())

    def is_complete_tool_call(self, text: str) -> bool:
        """Return whether a text is a whole call of a tool of this driver."""
        tools = {tool.name: tool for tool in self.list_tools()}
        reading = self._reading(text, tools)
        return bool(reading.calls) and all(self._mine(call, tools) for call in reading.calls)

    def _reading(self, reply: object, tools: dict[str, Tool]) -> Reading:
        return read(reply, self._names(tools))

    def _names(self, tools: dict[str, Tool]) -> frozenset[str]:
        return frozenset((*tools, prompts.FETCH))

    def _mine(self, call: Call, tools: dict[str, Tool]) -> bool:
        """Return whether a call is this driver's: several in a row may each have a ``fetch_spec`` of their own."""
        if call.tool != prompts.FETCH or prompts.FETCH in tools:
            return call.tool in tools
        return self.retries_unknown or str(call.arguments.get("tool_name")) in tools

    def _carry(self, call: Call, tools: dict[str, Tool]) -> Any:
        if call.tool == prompts.FETCH and prompts.FETCH not in tools:
            wanted = tools.get(str(call.arguments.get("tool_name")))
            if wanted is None or set(call.arguments) != {"tool_name"}:
                raise CallRefused("MCS-003", "fetch_spec takes the `tool_name` of a tool", "use one of the list")
            return prompts.described(wanted)
        return self.execute_tool(call.tool, call.arguments)

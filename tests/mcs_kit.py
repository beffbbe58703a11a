"""Tool drivers of the tests' own, in memory: what they were called with is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandbox.mcs.contract import (
    DriverBinding,
    DriverMeta,
    HealthCheckResult,
    HealthStatus,
    MCSToolDriver,
    SupportsHealthcheck,
    Tool,
    ToolParameter,
)
from sandbox.mcs.prompts import Prompts
from sandbox.mcs.speaking import Speaking


def meta(name: str, *flags: str) -> DriverMeta:
    """Return the metadata of a toy."""
    return DriverMeta(name, name, "1.0.0", (DriverBinding("toy", "*", "Custom"),), None, ("orchestratable", *flags))


def tool(name: str, *parameters: str, description: str = "") -> Tool:
    """Return a tool whose parameters are required texts."""
    made = [ToolParameter(one, f"The {one}.", required=True, schema={"type": "string"}) for one in parameters]
    return Tool(name, None, description or f"Does {name}.", made)


class Toy(MCSToolDriver):
    """Lists what it is given; gives its own name and the arguments, or what ``does`` gives."""

    def __init__(self, name: str, *tools: Tool | str, does: Callable[[str, dict[str, Any]], Any] | None = None) -> None:
        self.meta = meta(name)
        self.tools = [tool(one, "text") if isinstance(one, str) else one for one in tools]
        self.called: list[tuple[str, dict[str, Any]]] = []
        self._does = does

    def list_tools(self) -> list[Tool]:
        return list(self.tools)

    def execute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        self.called.append((tool_name, arguments))
        return self._does(tool_name, arguments) if self._does else {"by": self.meta.name, "tool": tool_name}


class Talking(Toy, Speaking):
    """A toy that speaks with a model."""

    def __init__(self, name: str, *tools: Tool | str, does: Any = None, **speech: Any) -> None:
        super().__init__(name, *tools, does=does)
        self.speak(speech.pop("texts", None) or Prompts.load(), **speech)


class Ailing(Toy, SupportsHealthcheck):
    """A toy that says how it is, as an enumeration, a word or nonsense."""

    def __init__(self, name: str, status: Any) -> None:
        super().__init__(name)
        self.meta = meta(name, "healthcheck")
        self.status = status

    def healthcheck(self) -> HealthCheckResult:
        return {"status": self.status}


OK = HealthStatus.OK

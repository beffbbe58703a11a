"""What a model is told: texts from TOML files, tools in one of two styles. Pure but for reading the file.

*inline* gives every tool with its whole schema. *schema* gives a summary and the arguments of each, and a tool
``fetch_spec`` that gives the rest of one on demand (section 9). An application may bring texts of its own; how an
answer is read stays ours (:mod:`sandbox.mcs.replies`), since that decides what is executed.
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from sandbox.cli import options
from sandbox.errors import UsageError
from sandbox.mcs.contract import Tool, ToolParameter
from sandbox.mcs.tools import schema_of

FETCH: Final = "fetch_spec"
"""Name of the tool that gives a whole description."""

MAX_INLINE: Final = 8_192
"""Characters of all tools up to which ``auto`` puts them into the prompt whole: some 2 000 tokens."""

MAX_SUMMARY: Final = 120
"""Characters of a summary."""

_PLACE: Final = re.compile(r"\{(tools|call_example|tool_name|available|error|result)\}")

_Text = Annotated[str, StringConstraints(max_length=65_536)]


class _Template(BaseModel):
    model_config = ConfigDict(extra="ignore")
    template: _Text


class _Example(BaseModel):
    model_config = ConfigDict(extra="ignore")
    example: _Text


class _Retry(BaseModel):
    model_config = ConfigDict(extra="ignore")
    no_tool_field: _Text
    unknown_tool: _Text
    execution_failed: _Text


class _Results(BaseModel):
    model_config = ConfigDict(extra="ignore")
    text: _Text


class _File(BaseModel):
    """A file of prompts; what it leaves out is ours."""

    model_config = ConfigDict(extra="ignore")
    system_message: _Template
    schema_message: _Template
    call_example: _Example
    retry_prompts: _Retry
    results: _Results
    models: dict[str, _Template] = {}


@dataclass(frozen=True, slots=True)
class Prompts:
    """The texts for a model.

    Attributes:
        inline: system prompt with ``{tools}`` and ``{call_example}``.
        schema: the same for summaries.
        example: of a call.
        retry: what a model is told about a call that was not carried out, by kind.
        result: what a model is told of a result, with ``{tool_name}`` and ``{result}``.
        models: pattern of model names, such as ``claude*`` → another system prompt.
    """

    inline: str
    schema: str
    example: str
    retry: Mapping[str, str]
    result: str
    models: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, place: str | Path = "") -> Prompts:
        """Return the texts of a TOML file over ours; ours alone without one.

        Raises:
            UsageError: ``CLI-011``, it cannot be read; ``MCS-021``, it is not valid.
        """
        values = tomllib.loads((files(__package__) / "default.toml").read_text("utf-8"))
        try:
            if place:
                values |= tomllib.loads(options.read_file(Path(place)).decode("utf-8"))
            found = _File.model_validate(values)
        except (ValueError, ValidationError) as error:
            why = " ".join(str(error).split())[:300]
            raise UsageError("MCS-021", f"{place}: {why}", "see docs/mcs.md, prompts") from None
        models = {pattern: one.template for pattern, one in found.models.items()}
        return cls(
            found.system_message.template, found.schema_message.template, found.call_example.example,
            found.retry_prompts.model_dump(), found.results.text, models,
        )  # fmt: skip

    def system(self, tools: str, model_name: str | None, *, whole: bool) -> str:
        """Return the system prompt.

        Args:
            tools: as they are described.
            model_name: of the model; patterns of the file are tried in their order.
            whole: whether they are described whole.
        """
        own = (text for one, text in self.models.items() if model_name and fnmatch.fnmatchcase(model_name, one))
        return filled(next(own, self.inline if whole else self.schema), tools=tools, call_example=self.example)

    def again(self, kind: str, **values: str) -> str:
        """Return what a model is told about a call that was not carried out."""
        return filled(self.retry[kind], call_example=self.example, **values)

    def told(self, tool: str, result: str) -> str:
        """Return what a model is told of a result."""
        return filled(self.result, tool_name=tool, result=result)


def filled(template: str, **values: str) -> str:
    """Return a text with its placeholders filled in, all at once: what is put in is not looked at again."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), template)


def whole(tools: Iterable[Tool]) -> str:
    """Return tools with their schemas, as JSON."""
    return json.dumps({"tools": [described(tool) for tool in tools]}, indent=2, ensure_ascii=False)


def described(tool: Tool) -> dict[str, Any]:
    """Return one tool with its schema."""
    return {"name": tool.name, "description": tool.description, "parameters": schema_of(tool)}


def summarised(tools: Iterable[Tool]) -> str:
    """Return a summary of each tool with its arguments."""
    return "\n\n".join(f"Tool: {tool.name}\n{_summary(tool)}\nSchema: {_arguments(tool)}" for tool in tools)


def fetch_tool() -> Tool:
    """Return the tool that gives a whole description."""
    parameter = ToolParameter("tool_name", "Name of the tool.", required=True, schema={"type": "string"})
    return Tool(FETCH, "Whole description of a tool", "Gives the whole description and schema of a tool.", [parameter])


def _summary(tool: Tool) -> str:
    text = " ".join((tool.description or tool.title or "").split())
    first = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
    return first if len(first) <= MAX_SUMMARY else f"{first[: MAX_SUMMARY - 1]}…"


def _arguments(tool: Tool) -> str:
    shown = {
        one.name: {"type": (one.schema or {}).get("type", "any"), **({"required": True} if one.required else {})}
        for one in tool.parameters
    }
    return json.dumps(shown, ensure_ascii=False)

"""The interface of the Model Context Standard as we know it without its package: driver contract 0.6.

Field for field and method for method what ``mcs-driver-core`` 0.4.1 publishes, so that a program cannot tell which of
the two it was given (``tests/unit/mcs/test_contract.py`` holds both together). Written from the contract's text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Protocol, TypedDict, TypeVar, runtime_checkable

T = TypeVar("T")


@dataclass(frozen=True)
class DriverBinding:
    """What a driver provides, how it reaches it, and how its tools are described."""

    capability: str
    adapter: str
    spec_format: str


@dataclass(frozen=True)
class DriverMeta:
    """What a driver is and which optional contracts it keeps.

    Attributes:
        bindings: see :class:`DriverBinding`.
        supported_llms: names of models, ``*`` for every model; ``None`` for a pure tool driver.
        capabilities: flags that a consumer looks at before it uses an optional method.
    """

    id: str
    name: str
    version: str
    bindings: tuple[DriverBinding, ...]
    supported_llms: tuple[str, ...] | None
    capabilities: tuple[str, ...]

    def has_capability(self, contract: type) -> bool:
        """Return whether the flag of an optional contract is advertised."""
        return getattr(contract, "CAPABILITY", None) in self.capabilities

    def with_capability(self, contract: type) -> DriverMeta:
        """Return a copy that advertises a contract."""
        flag = getattr(contract, "CAPABILITY", None)
        if flag is None or flag in self.capabilities:
            return self
        return replace(self, capabilities=(*self.capabilities, flag))

    @staticmethod
    def resolve_capability(driver: Any, contract: type[T]) -> T | None:
        """Return what keeps a contract, the driver itself or a layer inside it, or ``None``."""
        if isinstance(driver, SupportsCapabilityResolution):
            return driver.resolve_capability(contract)
        return driver if isinstance(driver, contract) else None

    @staticmethod
    def derive_capabilities(meta: DriverMeta, cls: type) -> DriverMeta:
        """Return a copy that advertises every contract that a class keeps."""
        flags = list(meta.capabilities)
        for base in cls.__mro__:
            flag = base.__dict__.get("CAPABILITY")
            if isinstance(flag, str) and flag not in flags:
                flags.append(flag)
        return replace(meta, capabilities=tuple(flags))


@dataclass
class DriverResponse:
    """What became of one answer of a model.

    Attributes:
        tool_call_result: what the tool gave, when one was executed.
        call_executed: a call was found and executed.
        call_failed: a call was found and could not be read or executed.
        call_detail: why it failed, for people.
        retry_prompt: what the model is told so that it can try again.
        messages: what the client appends to the conversation; ``None`` when there is nothing.
    """

    tool_call_result: Any = None
    call_executed: bool = False
    call_failed: bool = False
    call_detail: str | None = None
    retry_prompt: str | None = None
    messages: list[dict[str, Any]] | None = field(default=None)


@dataclass
class ToolParameter:
    """One argument of a tool; ``schema`` is JSON Schema."""

    name: str
    description: str
    required: bool = False
    schema: dict[str, Any] | None = None


@dataclass
class Tool:
    """One tool; it has a title or a description."""

    name: str
    title: str | None = None
    description: str | None = None
    parameters: list[ToolParameter] = None  # type: ignore[assignment]  # as published

    def __post_init__(self) -> None:
        """Fill in what stands for something else.

        Raises:
            ValueError: there is neither title nor description.
        """
        if self.parameters is None:
            self.parameters = []  # type: ignore[unreachable]  # as published
        self.description = self.description or self.title
        if not self.description:
            raise ValueError(f"Tool '{self.name}': at least one of 'title' or 'description' must be provided.")


class MCSDriver(ABC):
    """Tells a model what it can call, and executes what it answers."""

    CAPABILITY: ClassVar[str] = "standalone"
    meta: DriverMeta

    @abstractmethod
    def get_function_description(self, model_name: str | None = None) -> str:
        """Return a description of the tools for a model."""

    @abstractmethod
    def get_driver_system_message(self, model_name: str | None = None) -> str:
        """Return the whole system prompt."""

    @abstractmethod
    def process_llm_response(self, llm_response: str | dict[str, Any], *, streaming: bool = False) -> Any:
        """Execute what a model asks for, if it asks for something."""


class MCSToolDriver(ABC):
    """Lists and executes tools, and knows nothing of models."""

    CAPABILITY: ClassVar[str] = "orchestratable"
    meta: DriverMeta

    @abstractmethod
    def list_tools(self) -> list[Tool]:
        """Return the tools."""

    @abstractmethod
    def execute_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool gives."""


class HealthStatus(Enum):
    """How a driver is."""

    OK = "OK"
    ERROR = "ERROR"
    WARNING = "WARNING"
    UNKNOWN = "UNKNOWN"


class HealthCheckResult(TypedDict):
    """What a health check says."""

    status: HealthStatus


class SupportsHealthcheck(ABC):
    """Can say how it is."""

    CAPABILITY: ClassVar[str] = "healthcheck"

    @abstractmethod
    def healthcheck(self) -> HealthCheckResult:
        """Return how the driver is."""


class ToolCallSignaling(ABC):
    """Can tell early, while a model's answer streams, whether it becomes a call."""

    CAPABILITY: ClassVar[str] = "tcs"

    @abstractmethod
    def might_be_tool_call(self, partial: str) -> bool:
        """Return whether a beginning could become a call."""

    @abstractmethod
    def is_complete_tool_call(self, text: str) -> bool:
        """Return whether a text is a whole call."""


@runtime_checkable
class SupportsCapabilityResolution(Protocol):
    """A wrapper that finds optional contracts inside itself."""

    def resolve_capability(self, contract: type[T]) -> T | None:
        """Return what keeps a contract, or ``None``."""

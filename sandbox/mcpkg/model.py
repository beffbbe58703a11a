"""What a package says, as frozen values (MCPKG §4, §10.2, §11.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from sandbox.mcpkg.bounds import DEFAULT_TIMEOUT_MS


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen value, made by keywords; what it is made from was checked (:mod:`sandbox.mcpkg.manifest`)."""


class HttpEndpoint(Value, frozen=True, tag="http"):
    """Somebody's HTTP endpoint.

    Attributes:
        method: upper case.
        url: absolute, ``http`` or ``https``, without credentials and fragment.
        origin: ``scheme://host:port`` of it, always with the port.
        timeout_ms: of one call.
    """

    method: str
    url: str
    origin: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS


class LocalEndpoint(Value, frozen=True, tag="local"):
    """A command of the package.

    Attributes:
        argv: its words, split as a POSIX shell would, and never given to one.
    """

    argv: tuple[str, ...]
    timeout_ms: int = DEFAULT_TIMEOUT_MS


Endpoint: TypeAlias = HttpEndpoint | LocalEndpoint


class Implementation(Value, frozen=True):
    """One physical way of doing what the tool does (§10.2).

    Attributes:
        platforms: such as ``linux-x64``; empty is any.
        requirements: freeform; those that are not known cannot be probed and are not met.
    """

    id: str
    endpoint: Endpoint
    language: str = ""
    runtime: str = ""
    platforms: tuple[str, ...] = ()
    requirements: Mapping[str, Any] = {}


class Step(Value, frozen=True):
    """One step of a chain (§11.2): parameter → JSONPath over ``{"input": …, <outputKey>: …}``."""

    step: str
    tool: str
    output_key: str
    mapping: Mapping[str, str] = {}


class Auth(Value, frozen=True):
    """How an HTTP endpoint knows its caller (§4.2); never a value.

    Attributes:
        env: names of the variables that hold the credential, the first one is used.
        header: of an API key.
    """

    type: Literal["none", "bearer", "api_key", "oauth2"] = "none"
    scopes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    header: str = ""
    hints: Mapping[str, Any] = {}


class Manifest(Value, frozen=True):
    """``manifest.json``, whole.

    Attributes:
        implementations: in order of preference; a plain ``endpoint`` is one of them, with the id ``endpoint``.
        chain: instead of implementations.
        tests: paths of files in the package, those that are listed.
        raw: the document as it stands there.
    """

    tool_id: str
    name: str
    version: str
    description: str
    capabilities: tuple[str, ...]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    implementations: tuple[Implementation, ...] = ()
    chain: tuple[Step, ...] = ()
    auth: Auth = Auth()
    tests: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    raw: Mapping[str, Any] = {}

    @property
    def format(self) -> str:
        """Return the version of MCPKG whose features it uses."""
        return "0.2" if self.chain or "implementations" in self.raw else "0.1"

    @property
    def publisher(self) -> str:
        """Return the publisher's id, empty when it names none."""
        found = self.meta.get("publisher", {}).get("id", "")
        return str(found)


class Assertion(Value, frozen=True):
    """One assertion of a test: a path and what must hold there."""

    path: str
    kind: Literal["equals", "notEquals", "exists", "notExists"]
    wanted: Any = None


class Case(Value, frozen=True):
    """One test file (§5).

    Attributes:
        expected: what the result must contain; ``has_expected`` says whether there is one, for it may be ``null``.
    """

    file: str
    name: str
    input: Mapping[str, Any]
    description: str = ""
    has_expected: bool = False
    expected: Any = None
    assertions: tuple[Assertion, ...] = ()
    timeout_ms: int = DEFAULT_TIMEOUT_MS

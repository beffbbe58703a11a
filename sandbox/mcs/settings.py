"""How a driver is configured: by a constructor, a JSON or TOML file, or variables of the environment (section 5).

The models are pydantic's, so that an application can make its own forms from ``DriverSettings.model_json_schema()``.
Values of secrets stand in none of them: they come from where SECRETS.md and the operator's ``secrets.toml`` say.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sandbox.cli import options
from sandbox.errors import UsageError

PREFIX: Final = "MCP_SANDBOX_MCS_"
"""Of the variables that :meth:`DriverSettings.from_env` reads."""

Style = Literal["inline", "schema", "auto"]
Semantics = Literal["0.2", "0.6"]
Description = Literal["json-schema", "openapi"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, values: Any, place: str = "the settings") -> Self:
        """Return settings.

        Raises:
            UsageError: ``MCS-014``, they are not valid.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            why = f"{place}: `{where}`: {first['msg']}"
            raise UsageError("MCS-014", why, "see docs/schemas/mcs-settings.schema.json") from None

    @classmethod
    def from_file(cls, place: str | Path) -> Self:
        """Return the settings of a ``.json`` or ``.toml`` file.

        Raises:
            UsageError: ``CLI-011``, it cannot be read; ``MCS-014``, it is not valid.
        """
        path = Path(place)
        data = options.read_file(path)
        try:
            text = data.decode("utf-8")
            values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError("MCS-014", f"{path}: {error}", "write JSON or TOML") from None
        return cls.of(values, str(path))


Label = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")]
"""Names a driver within an orchestrator."""


class DriverSettings(_Model):
    """One driver, with what re-points or narrows its plan; nothing here widens one.

    Attributes:
        driver: DRIVER.md or its folder; empty for one that ``autostart(image=…)`` gets its server later.
        digest: of the reviewed folder, ``sha256:…`` as ``check --json`` and the trail say it; another folder is
            refused. Empty takes the folder as it is.
        roots: path in the sandbox → folder of this host.
        memory: at most this much, such as ``256M``; empty for the driver's own.
        runtime: OCI runtime.
        policy: the operator's ceiling.
        rules: folder of the operator's Cedar rules.
        names: expose contract ids or the server's own names.
        tenant: that every call is made for.
        user: that every call is made for.
        audit_dir: of the audit trail.
        semantics: what ``process_llm_response`` returns: a ``DriverResponse`` (contract 0.6) or the raw result, and
            the text itself when it holds no call (0.2).
        style: ``inline`` puts every schema into the prompt; ``schema`` a line for each tool, and ``fetch_spec``;
            ``auto`` the first while it is short.
        description: what ``get_function_description`` returns: tools with JSON Schemas, or an OpenAPI document.
        prompts: TOML file of prompts, in the form of ``mcs-driver-core``.
    """

    driver: str = ""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    roots: dict[str, str] = Field(default_factory=dict)
    memory: str = ""
    runtime: str = ""
    policy: str = ""
    rules: str = ""
    names: Literal["contract", "server"] = "contract"
    tenant: Annotated[str, Field(min_length=1)] = "local"
    user: str = ""
    audit_dir: str = ""
    semantics: Semantics = "0.6"
    style: Style = "auto"
    description: Description = "json-schema"
    prompts: str = ""

    @field_validator("driver", "memory", "runtime", "policy", "rules", "user", "tenant", "audit_dir")
    @classmethod
    def _a_word(cls, value: str) -> str:
        """Refuse the one word that the parser of ``run`` takes out of any value."""
        if value == "--":
            raise ValueError("`--` is no value")
        return value

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> DriverSettings:
        """Return settings from ``MCP_SANDBOX_MCS_DRIVER`` and the like; ``…_ROOTS`` is a JSON object."""
        values: dict[str, Any] = {
            name: environ[PREFIX + name.upper()] for name in cls.model_fields if PREFIX + name.upper() in environ
        }
        if "roots" in values:
            try:
                values["roots"] = json.loads(values["roots"])
            except (ValueError, RecursionError) as error:
                raise UsageError("MCS-014", f"{PREFIX}ROOTS is no JSON: {error}", 'write {"/at": "/path"}') from None
        return cls.of(values, "the environment")

    def argv(self) -> list[str]:
        """Return these settings as the arguments of ``run``; each value is one word and cannot become an option."""
        named = {
            "--memory": self.memory, "--runtime": self.runtime, "--policy": self.policy, "--rules": self.rules,
            "--names": self.names, "--tenant": self.tenant, "--user": self.user, "--audit-dir": self.audit_dir,
        }  # fmt: skip
        words = [f"{option}={value}" for option, value in named.items() if value]
        return [*words, *(f"--root={at}={path}" for at, path in self.roots.items()), "--", self.driver]


class OrchestratorSettings(_Model):
    """Several drivers behind one interface.

    Attributes:
        drivers: label → driver.
        semantics: see :class:`DriverSettings`; those of the drivers do not count.
        style: the same.
        description: the same.
        prompts: the same.
    """

    drivers: dict[Label, DriverSettings]
    semantics: Semantics = "0.6"
    style: Style = "auto"
    description: Description = "json-schema"
    prompts: str = ""

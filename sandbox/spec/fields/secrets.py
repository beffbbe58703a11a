"""Fields of SECRETS.md (AIP-19), held against its schema in the tests."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from sandbox.spec.fields.text import Description, Line, Name, Word
from sandbox.spec.shape import Closed

VALUE_KEYS: Final = ("value", "plaintext", "ciphertext", "secret", "data", "key", "token")
"""Keys under which somebody might write the secret itself; AIP-19 forbids each."""

Slug = Annotated[
    str, Field(min_length=2, max_length=80, pattern=r"^([a-z][a-z0-9-]*[a-z0-9]/)?[a-z][a-z0-9-]*[a-z0-9]$")
]
EnvName = Annotated[str, Field(max_length=256, pattern=r"^[A-Z_][A-Z0-9_]*$")]


class Grant(Closed):
    """One grant; exactly one member, which :mod:`sandbox.spec.secrets` checks."""

    role: Word | None = None
    userId: Word | None = None  # noqa: N815 - the specification's name
    cap: Annotated[str, Field(pattern=r"^cap://")] | None = None
    tool: Word | None = None
    workflow: Word | None = None


class Access(Closed):
    """Who may do what with the secret."""

    reveal: list[Grant] = Field(default_factory=list)
    bind: list[Grant] = Field(default_factory=list)
    rotate: list[Grant] = Field(default_factory=list)


class Audit(Closed):
    """How long uses are remembered."""

    retention: Annotated[str, Field(pattern=r"^(P[0-9]+[YMWD]|[0-9]+(y|m|w|d|h))$")] | None = None
    pii: bool = False
    classification: list[Word] = Field(default_factory=list)


class EnvExposure(Closed):
    """The process sees the value in a variable."""

    kind: Literal["env"]
    name: EnvName
    field: Word


class FileExposure(Closed):
    """The process sees the value in a file."""

    kind: Literal["file"]
    path: Word
    field: Word | None = None
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o600


class EgressExposure(Closed):
    """The process sees a placeholder; only the egress broker puts the value in (B0-14)."""

    kind: Literal["egress-substitute"]
    placeholderName: EnvName  # noqa: N815 - the specification's name
    allowedByDefault: bool  # noqa: N815 - the specification's name
    intendedProviders: list[Word] = Field(default_factory=list)  # noqa: N815 - the specification's name


EXPOSURES: Final[dict[str, type[Closed]]] = {
    "env": EnvExposure,
    "file": FileExposure,
    "egress-substitute": EgressExposure,
}


class SecretEntry(Closed):
    """One ``secrets[]`` entry; exposures are read by kind."""

    slug: Slug
    name: Name
    description: Description
    kind: Literal["opaque", "oauth", "keypair", "json"] = "opaque"
    backend: Annotated[Line, Field(pattern=r"^[a-z][a-z0-9-]*://")] | None = None
    access: Access = Field(default={}, validate_default=True)
    audit: Audit = Field(default={}, validate_default=True)
    tags: list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    exposures: list[dict[str, Any]] = Field(default_factory=list)

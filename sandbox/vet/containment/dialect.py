"""Dialects of JSON Schema: which keywords mean something, and which dialects a schema without ``$schema`` may be in.

Nobody can ask the author of a schema that does not name its dialect. Then :func:`readings` returns every reading that a
validator would plausibly choose, and a *yes* must hold in each:

1. ``$schema`` names a known dialect: that one; an unknown one cannot be decided;
2. a form that 2020-12 does not have (``items`` as a list, ``$id: "#name"``, ``exclusiveMinimum: true``): draft-07, or
   draft-04 for the latter;
3. a keyword that only 2019-09 and later have: 2020-12;
4. a construct that both have but read differently (``$ref`` beside other keywords, ``dependencies``): both;
5. otherwise 2020-12, MCP's default; the dialects agree on the rest.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from sandbox.vet.containment.budget import UndecidedError


class Dialect(enum.IntEnum):
    """Known dialects, in order of age."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    D2019 = 2019
    D2020 = 2020


URIS: Final = {
    "http://json-schema.org/draft-04/schema": Dialect.DRAFT4,
    "http://json-schema.org/draft-06/schema": Dialect.DRAFT6,
    "http://json-schema.org/draft-07/schema": Dialect.DRAFT7,
    "https://json-schema.org/draft/2019-09/schema": Dialect.D2019,
    "https://json-schema.org/draft/2020-12/schema": Dialect.D2020,
}
"""``$schema`` without its empty fragment; the old ones are also seen with ``https``."""

MODERN: Final = frozenset(
    {
        "$anchor",
        "$defs",
        "$dynamicAnchor",
        "$dynamicRef",
        "dependentRequired",
        "dependentSchemas",
        "maxContains",
        "minContains",
        "prefixItems",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
"""Keywords that 2019-09 or 2020-12 brought."""

REF_SIBLINGS_WITHOUT_MEANING: Final = frozenset(
    {
        "$comment",
        "$defs",
        "$id",
        "$ref",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
"""Keywords that may stand beside ``$ref`` in every dialect without changing what is valid."""

VALIDATING: Final = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "if",
        "items",
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "pattern",
        "patternProperties",
        "prefixItems",
        "properties",
        "propertyNames",
        "required",
        "then",
        "type",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
"""Keywords that decide what is valid in some dialect."""

STRING_FORMATS: Final = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "idn-email",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "iri",
        "iri-reference",
        "json-pointer",
        "regex",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    }
)
"""Formats of the specifications; they speak about strings only. Others (``int32``) may speak about numbers."""


def named(uri: Any) -> Dialect:
    """Return the dialect that a ``$schema`` names.

    Raises:
        UndecidedError: it is not known.
    """
    if isinstance(uri, str):
        plain = uri.removesuffix("#")
        found = URIS.get(plain) or URIS.get(
            plain.replace("https://json-schema.org/draft-", "http://json-schema.org/draft-")
        )
        if found is not None:
            return found
    raise UndecidedError(f"the dialect {str(uri)[:100]!r} is not known")


def readings(schema: Any, traits: frozenset[str], default: Dialect | None) -> tuple[Dialect, ...]:
    """Return the dialects that a schema may be meant in; a *yes* must hold in each.

    Args:
        schema: the whole schema.
        traits: what :class:`sandbox.vet.containment.document.Document` saw in it.
        default: the caller's word for schemas without ``$schema``; ``None`` looks for marks.
    """
    if isinstance(schema, dict) and "$schema" in schema:
        return (named(schema["$schema"]),)
    if default is not None:
        return (default,)
    if "boolean exclusive bound" in traits:
        return (Dialect.DRAFT4,)
    if "list of items" in traits or "identifier with a fragment" in traits:
        return (Dialect.DRAFT7,)
    if traits & MODERN:
        return (Dialect.D2020,)
    if "$ref with siblings" in traits or "dependencies" in traits:
        return (Dialect.D2020, Dialect.DRAFT7)
    return (Dialect.D2020,)

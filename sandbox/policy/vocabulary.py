"""The vocabulary of rules: entity types, their attributes, actions, and the facts that come with each action.

One table each, from which the Cedar schema, the check of attribute names and ``docs/policies.md`` follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandbox.policy.request import ACTIONS, ADMIT, CALL, COMPLETE, ELICIT, LAUNCH, PROMPT, READ, SAMPLE, SUBSCRIBE
from sandbox.policy.types import BOOL, LONG, STRING, STRINGS, CedarType, record

_DATETIME: Final[CedarType] = {"type": "Extension", "name": "datetime"}
_CALLER: Final = {"tenant": STRING, "name": STRING, "groups": STRINGS, "scopes": STRINGS, "source": STRING}
_OWNED: Final = {"name": STRING, "driver": STRING, "policy_tags": STRINGS, "region": STRINGS}
_DRIVER: Final = {
    "name": STRING,
    "version": STRING,
    "server_kind": STRING,
    "transport": STRING,
    "tags": STRINGS,
    "policy_tags": STRINGS,
    "region": STRINGS,
    "egress": STRINGS,
    "unsafe": STRINGS,
}
_TOOL: Final = {
    **_OWNED,
    "server_name": STRING,
    "tags": STRINGS,
    "risk": LONG,
    "mutates": STRINGS,
    "read_only": BOOL,
    "idempotent": BOOL,
    "approval": STRING,
    "cost_class": STRING,
}
ATTRIBUTES: Final[Mapping[str, Mapping[str, CedarType]]] = {
    "User": _CALLER,
    "Agent": _CALLER,
    "Tenant": {"name": STRING},
    "Group": {},
    "Driver": _DRIVER,
    "Tool": _TOOL,
    "Prompt": _OWNED,
    "Resource": {**_OWNED, "template": STRING},
}
_PARENTS: Final = {
    "User": ["Tenant", "Group"],
    "Agent": ["Tenant", "Group"],
    "Group": ["Tenant"],
    "Tool": ["Driver"],
    "Prompt": ["Driver"],
    "Resource": ["Driver"],
}
_TARGETS: Final = {
    CALL: "Tool",
    PROMPT: "Prompt",
    READ: "Resource",
    SUBSCRIBE: "Resource",
    COMPLETE: "Driver",
    SAMPLE: "Driver",
    ELICIT: "Driver",
    LAUNCH: "Driver",
    ADMIT: "Driver",
}
_URI: Final = record(
    {"text": STRING, "scheme": STRING, "host": STRING, "path": STRING}, {"text", "scheme", "host", "path"}
)
_COMMON: Final[Mapping[str, CedarType]] = {
    "now": _DATETIME,
    "hour": LONG,
    "weekday": LONG,
    "client": record({"name": STRING, "version": STRING}),
    "calls": record({"target": LONG, "tenant": LONG}, {"target", "tenant"}),
}
_OWN: Final[Mapping[str, Mapping[str, CedarType]]] = {
    CALL: {"hosts": STRINGS, "schemes": STRINGS, "paths": STRINGS},
    PROMPT: {"argument_names": STRINGS},
    READ: {"uri": _URI},
    SUBSCRIBE: {"uri": _URI},
    COMPLETE: {"argument": STRING},
    SAMPLE: {"max_tokens": LONG},
    ELICIT: {"mode": STRING, "host": STRING},
    LAUNCH: {},
    ADMIT: {"findings": STRINGS},
}


def required_context(action: str) -> frozenset[str]:
    """Return the names of facts that every request for an action carries."""
    arguments = {"arguments"} if action == CALL else set()
    return frozenset(_COMMON.keys() | _OWN.get(action, {}).keys() | arguments)


def schema_json(arguments: CedarType) -> dict[str, Any]:
    """Return the Cedar schema (JSON format) in which ``context.arguments`` of a call has the given type."""
    entities: dict[str, Any] = {
        name: {"memberOfTypes": _PARENTS.get(name, []), "shape": record(members, set(members))}
        for name, members in ATTRIBUTES.items()
    }
    for name in ("User", "Agent"):
        entities[name]["tags"] = STRING
    actions = {
        action: {
            "appliesTo": {
                "principalTypes": ["User", "Agent"],
                "resourceTypes": [_TARGETS[action]],
                "context": _context_type(action, arguments),
            }
        }
        for action in ACTIONS
    }
    return {"": {"entityTypes": entities, "actions": actions}}


def _context_type(action: str, arguments: CedarType) -> CedarType:
    facts = {**_COMMON, **_OWN[action], **({"arguments": arguments} if action == CALL else {})}
    return record(facts, set(facts))

"""Hooks of schemathesis: what OpenAPI cannot say of the gateway.

``include_deleted=false`` with ``updated_since`` is refused, as the registry's API has it (B4-2); OpenAPI 3.1 has no
words for a rule between two parameters, so that valid requests are made without it.
"""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Send no query that the rule between its parameters refuses."""
    query = case.query
    if query and "updated_since" in query and query.get("include_deleted") in (False, "false"):
        del query["include_deleted"]

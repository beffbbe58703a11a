"""``result_extract``: the fragment of JSONPath that a binding may use (AIP-32 "JSONPath-lite").

The fragment is ``$`` followed by member names and array positions: ``$``, ``$.content``, ``$.rows[0].name``,
``$['a-b']``. It names at most one value. Wildcards, slices, filters, descendants and functions may name several, or
cost time that a hostile result controls, and are refused (ADR 0014). Every path of the fragment means the same in
RFC 9535.
"""

from __future__ import annotations

import re
from typing import Final

MAX_SEGMENTS: Final = 32
"""Steps of one path; real ones have at most four."""

MAX_PATH_CHARS: Final = 512
"""Characters of one path."""

_SEGMENT: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | \[(?P<index>0|[1-9][0-9]{0,8})\]
      | \['(?P<single>[^'\\]+)'\]
      | \["(?P<double>[^"\\]+)"\]""",
    re.VERBOSE,
)

ALLOWED: Final = "`$`, then `.name`, `['name']` or `[0]`"
"""The fragment, for messages."""


def segments(path: str) -> tuple[str | int, ...]:
    """Return the member names and positions of a path of the fragment.

    Raises:
        ValueError: the path is not of the fragment; the text says where.
    """
    if not path.startswith("$"):
        raise ValueError("it does not begin with `$`")
    if len(path) > MAX_PATH_CHARS:
        raise ValueError(f"it has more than {MAX_PATH_CHARS} characters")
    found: list[str | int] = []
    position = 1
    while position < len(path):
        match = _SEGMENT.match(path, position)
        if match is None:
            raise ValueError(f"character {position + 1} begins no step of the fragment")
        text = match.group("name") or match.group("single") or match.group("double")
        found.append(text if text is not None else int(match.group("index")))
        position = match.end()
    if len(found) > MAX_SEGMENTS:
        raise ValueError(f"it has more than {MAX_SEGMENTS} steps")
    return tuple(found)

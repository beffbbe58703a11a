"""Tells a person about a failure: one line for each, without anything that a terminal would obey.

Messages quote what drivers, servers and command lines say. A quoted line break would look like a second message, and
an escape sequence would be carried out by the reader's terminal.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final

from sandbox.errors import SandboxError

MAX_LINE: Final = 4_000
"""Characters of one message: several screens; what is longer quotes something huge, and its end has the mend."""


def line_of(text: str) -> str:
    """Return a text as one printable line of bounded length; what cannot be printed is shown as an escape."""
    if len(text) > MAX_LINE:
        text = f"{text[: MAX_LINE * 3 // 4]} … {text[-MAX_LINE // 4 :]}"
    text = " ".join(text.splitlines())
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def lines_of(error: SandboxError) -> list[str]:
    """Return one line for each problem of an error, or the one of the error itself."""
    return [line_of(str(problem)) for problem in getattr(error, "problems", ())] or [line_of(str(error))]


def report(error: SandboxError, *, as_json: bool) -> None:
    """Tell about an error: on stderr for people, on stdout as ``{"error": …}`` for programs."""
    if not as_json:
        say(*lines_of(error))
        return
    import json  # only on the way out

    problems = [
        {name: getattr(problem, name) for name in problem.__slots__} for problem in getattr(error, "problems", ())
    ]
    body = {"id": error.id, "message": error.message, "mend": error.mend, "problems": problems}
    print(json.dumps({"error": body}))


def say(*lines: str) -> None:
    """Print lines on stderr; when nobody can read them any more, the exit status says enough."""
    with contextlib.suppress(OSError):
        print(*lines, sep="\n", file=sys.stderr, flush=True)

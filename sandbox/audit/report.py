"""The trail as one HTML page that a reviewer opens in a browser: no network, and no script but our own.

Everything recorded is data. It reaches the page as escaped text, or inside one JSON block from which the script
makes text nodes. The content security policy admits exactly one style and one script, by hash, and no network, so
that even markup that slipped through would run nothing. Characters that change how text is displayed (control,
bidirectional, invisible) are written out.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import orjson

from sandbox.audit.findings import Report
from sandbox.audit.lines import visible
from sandbox.audit.query import Question, query
from sandbox.audit.sections import MAX_CHARS, members, sections, text, verdict_line
from sandbox.audit.summary import summarise
from sandbox.audit.verify import verify

MAX_ROWS: Final = 50_000
"""Records in one page: some 15 MB that every browser takes; narrow the question for more."""

ATTRIBUTES: Final = ("tool", "host", "decision", "status", "reason")
"""Columns that come from a record's attributes."""

COLUMNS: Final = ("time", "name", "phase", "tenant", "driver", *ATTRIBUTES, "trace", "span", "stream", "seq", "attrs")
"""Of a row in the data block; all but ``time`` are numbers of words, ``attrs`` a list of such."""

FILTERS: Final = ("tenant", "tool", "host", "decision", "name", "driver")
"""Columns that a reader can choose values of."""

MAX_CHOICES: Final = 1000
"""Values of one filter."""

_PAGE: Final = Path(__file__).parent / "page"


def report(folder: Path, question: Question, *, title: str = "Audit report") -> bytes:
    """Return the page of what a question finds, with the verdict over the whole folder.

    Raises:
        UsageError: ``AUD-033``, the question is not usable.
    """
    records = list(query(folder, question))
    return page(records, verify(folder), title=title)


def page(records: list[dict[str, Any]], verdict: Report, *, title: str = "Audit report") -> bytes:
    """Return the page of records, oldest first."""
    style, script = ((_PAGE / name).read_text("utf-8") for name in ("report.css", "report.js"))
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    rows, words, choices = _data(records[-MAX_ROWS:])
    data = orjson.dumps({"columns": COLUMNS, "words": words, "rows": rows}).decode()
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{text(title)}</title><style>{style}</style></head><body>",
        '<a class="skip" href="#records">Skip to the records</a>',
        f"<header><h1>{text(title)}</h1>{verdict_line(verdict)}</header>",
        *sections(summarise(records)),
        _records_section(choices, words),
        # `<` is the only character that could end the block; JSON has another way to write it.
        f'<script type="application/json" id="data">{data.replace("<", chr(92) + "u003c")}</script>',
        f"<script>{script}</script></body></html>\n",
    ]
    return "".join(parts).encode("utf-8", "backslashreplace")


def _hash(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()


# --- the data block ---------------------------------------------------------------------------------------------------
def _data(records: list[dict[str, Any]]) -> tuple[list[list[Any]], list[str], dict[str, dict[int, int]]]:
    """Return rows, words, and for each filter how often each word stands in its column; newest first."""
    numbers: dict[str, int] = {"": 0}
    choices: dict[str, dict[int, int]] = {name: {} for name in FILTERS}
    rows = []
    for record in reversed(records):
        attrs = record.get("attrs")
        attrs = attrs if isinstance(attrs, dict) else {}
        row: list[Any] = [visible(record.get("time", ""))]
        for name in COLUMNS[1:-1]:
            value = record.get(
                name, attrs.get(name) if name in {"tool", "host", "decision", "status", "reason"} else ""
            )
            number = numbers.setdefault(visible(value if value is not None else "")[:MAX_CHARS], len(numbers))
            row.append(number)
            if name in choices and number:
                choices[name][number] = choices[name].get(number, 0) + 1
        row.append([numbers.setdefault(visible(line), len(numbers)) for line in members(attrs)])
        rows.append(row)
    return rows, list(numbers), choices


def _records_section(choices: dict[str, dict[int, int]], words: list[str]) -> str:
    selects = "".join(
        f'<label>{name}<select data-column="{name}"><option value="">all</option>'
        + "".join(
            f'<option value="{number}">{text(words[number])} ({count})</option>'
            for number, count in sorted(choices[name].items(), key=lambda item: words[item[0]])[:MAX_CHOICES]
        )
        + "</select></label>"
        for name in FILTERS
    )
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("time (UTC)", "name", "phase", "tenant", "tool", "host", "decision", "details")
    )
    return (
        '<section id="records" aria-labelledby="records-title"><h2 id="records-title">Records</h2>'
        '<noscript><p class="torn">Searching the records needs the script of this page.</p></noscript>'
        '<div class="controls" role="search"><label>search<input type="search" id="search" autocomplete="off" '
        f'aria-describedby="found"></label>{selects}'
        '<button type="button" id="earlier">Newer</button><button type="button" id="later">Older</button></div>'
        '<p id="found" role="status" aria-live="polite"></p>'
        f"<table><caption>Newest first</caption><thead><tr>{heads}</tr></thead>"
        '<tbody id="rows"></tbody></table></section></main>'
    )

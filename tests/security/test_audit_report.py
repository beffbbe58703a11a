"""Servers name tools, hosts and errors; a reviewer opens the report in a browser. Nothing named by them runs or hides.

With Chromium and Playwright the page is opened for real; without them those tests are skipped, loudly.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sandbox.audit.findings import Report, StreamReport
from sandbox.audit.query import Question
from sandbox.audit.recorder import open_recorder
from sandbox.audit.report import page, report
from sandbox.audit.summary import percentile, summarise
from sandbox.events import Scope, Trace
from tests.browser import chromium

XSS = (
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "]]>",
    "<img src=x onerror=document.title='owned'>",
    "\"><svg onload=document.title='owned'>",
    "' onfocus='document.title=1' autofocus='",
    "javascript:document.title='owned'",
    "</title><body onload=document.title='owned'>",
    "</style><style>*{display:none}</style>",
    "</textarea></noscript><iframe srcdoc='<script>parent.document.title=1</script>'>",
    "<a href='https://evil.example/'>click</a>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href='https://evil.example/'>",
    "{{constructor.constructor('document.title=1')()}}",
    "${document.title='owned'}",
    "\u2028document.title='owned'",
    "__proto__",
    "\x00<script>",
    "\ud800<script>",
    "\u202egnp.exe",
)


def records(count: int = 3, texts: tuple[str, ...] = ("read",)) -> list[dict[str, Any]]:
    """Return records in which every field that a server or driver names holds one of the texts."""
    found = []
    for number in range(count):
        text = texts[number % len(texts)]
        common = {
            "time": f"2026-11-21T08:{number // 60 % 60:02d}:{number % 60:02d}.000000Z",
            "trace": "1" * 32,
            "span": f"{number:016x}",
            "stream": text,
            "seq": number,
            "tenant": text,
            "driver": text,
        }
        found.append(
            {
                **common,
                "name": "call.forward",
                "phase": "intent",
                "attrs": {"tool": text, "client": text, "decision": "allow"},
            }
        )
        found.append(
            {
                **common,
                "name": "call.forward",
                "phase": "outcome",
                "attrs": {"tool": text, "status": "ok", "duration_us": 1000 * number, "overhead_us": 90},
            }
        )
        found.append(
            {
                **common,
                "name": "egress.connect",
                "phase": "fact",
                "attrs": {
                    "host": text,
                    "port": 443,
                    "decision": "deny",
                    "reason": text,
                    "why": text,
                    "allow_line": f'- "{text}"',
                    "calls": [common["span"]],
                    "count": 2,
                },
            }
        )
        found.append({**common, "name": "vet.refuse", "phase": "fact", "attrs": {text: text}})
    return found


VERDICT = Report("intact", (StreamReport("s", records=3, signed=3, keys=["k"]),), (), pinned=True)


class Elements(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect one element."""
        self.tags.append(tag)
        self.attributes += attrs


def parsed(data: bytes) -> Elements:
    """Return the elements of a page."""
    found = Elements()
    found.feed(data.decode())
    return found


@pytest.mark.claim("P-AUDIT-09")
@pytest.mark.parametrize("text", XSS)
def test_names_from_servers_make_no_elements(text: str) -> None:
    """A page with hostile names has exactly the elements and handlers of one with plain names."""
    hostile, plain = parsed(page(records(texts=(text,)), VERDICT)), parsed(page(records(), VERDICT))

    assert plain.tags == hostile.tags
    assert 2 == hostile.tags.count("script")
    assert not [name for name, _ in hostile.attributes if name.startswith("on") or name == "style"]


def test_page_is_complete_in_itself_and_reaches_nothing() -> None:
    """No link, image, font or script lies elsewhere, and the policy admits one style and one script by hash."""
    data = page(records(), VERDICT).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', data)
    places = [value for name, value in parsed(data.encode()).attributes if name in {"src", "href", "action", "data"}]

    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy[1]
    assert all(place is not None and place.startswith("#") for place in places)
    assert "http://" not in data
    assert "https://" not in data


@pytest.mark.parametrize("text", ["\u202egnp.exe", "\x1b[2J", "a\nb", "\u200b", "\ufeff", "\U000e0041", "\ud800"])
def test_characters_that_hide_or_move_are_written_out(text: str) -> None:
    """Bidirectional, invisible and control characters are shown as what they are, in markup and in the data."""
    data = page(records(texts=(text,)), VERDICT).decode()

    assert text not in data
    assert text not in json.dumps(
        json.loads(re.search(r'id="data">(.*?)</script>', data, re.DOTALL)[1]), ensure_ascii=False
    )  # type: ignore[index]


def test_summary_answers_a_reviewers_first_questions() -> None:
    """Denials carry the line that would allow them; hosts are counted for the tools whose calls opened them."""
    found = summarise(records(4, ("read", "write")))
    denial = next(iter(found.denials.values()))

    assert (16, 4, 8) == (
        found.records,
        sum(tool.calls for tool in found.tools.values()),
        sum(item.count for item in found.denials.values()),
    )
    assert (4, '- "read"', "read:443") == (denial.count, denial.allow_line, denial.what)
    assert [0, 4, 0, 0] == found.hosts["read", "read:443"]
    assert (0, 3000, 2000) == (
        percentile([], 0.5),
        percentile([1000, 2000, 3000], 0.99),
        percentile([1000, 2000, 3000], 0.5),
    )


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"attrs": []},
        {"attrs": {"calls": "x", "count": "many", "duration_us": "long", "port": {}}, "name": "egress.connect"},
        {"name": 5, "time": 5, "tenant": {}},
    ],
)
def test_records_of_any_form_make_a_page(odd: dict[str, Any]) -> None:
    """What is in a ledger that somebody wrote with the key cannot keep the report from being made."""
    assert page([odd, {**odd, "name": "call.forward", "phase": "outcome"}], VERDICT).endswith(b"</html>\n")


def test_empty_trail_makes_a_page(tmp_path: Path) -> None:
    """A report over nothing says so."""
    open_recorder(tmp_path, "run").close()

    assert b"None." in report(tmp_path, Question(tenant="nobody"))


# --- in a browser -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium of the distribution."""
    with chromium() as found:
        yield found


def waits(tab: Any, part: str) -> str:
    """Return the line that counts found records once it contains a text; the policy lets nobody poll inside."""
    deadline = time.monotonic() + 30
    while part not in (text := tab.inner_text("#found")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return str(text)


def opened(browser: Any, tmp_path: Path, data: bytes, **options: Any) -> tuple[Any, list[str]]:
    """Return the page in a browser that lets nothing out, and what it complained about or asked for."""
    path = tmp_path / "report.html"
    path.write_bytes(data)
    complaints: list[str] = []
    context = browser.new_context(offline=True, **options)
    tab = context.new_page()
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url))
    tab.on("dialog", lambda dialog: complaints.append("dialog"))
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready=yes]")
    return tab, complaints


@pytest.mark.claim("P-AUDIT-09")
def test_hostile_names_run_nothing_in_a_browser(browser: Any, tmp_path: Path) -> None:
    """With every hostile text in every place nothing runs, nothing is asked for, and the text can be read."""
    tab, complaints = opened(browser, tmp_path, page(records(len(XSS), XSS), VERDICT, title="Report <script>"))
    for details in tab.query_selector_all("details")[:20]:
        details.click()

    assert "Report <script>" == tab.title()
    assert [] == complaints
    assert 2 == len(tab.query_selector_all("script"))
    assert "onerror" in tab.inner_text("#denied")


def test_policy_stops_what_escaping_would_miss(browser: Any, tmp_path: Path) -> None:
    """The control: markup put into the page by hand does not run either, because the policy admits only our script."""
    data = page(records(), VERDICT).replace(
        b"<main>", b"<main><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    )
    tab, complaints = opened(browser, tmp_path, data)

    assert "Audit report" == tab.title()
    assert any("Content Security Policy" in text for text in complaints)


def test_search_filter_pages_and_keyboard(browser: Any, tmp_path: Path) -> None:
    """Records can be searched, filtered and paged, with the keyboard alone."""
    tab, complaints = opened(browser, tmp_path, page(records(100, ("read", "write")), VERDICT))
    assert "400 of 400 records; page 1 of 4" == tab.inner_text("#found")
    tab.keyboard.press("Tab")
    assert "Skip to the records" == tab.evaluate("document.activeElement.textContent")
    tab.focus("#search")
    tab.keyboard.type("call.forward outcome")
    assert waits(tab, "100 of 400").startswith("100 of 400")
    tab.select_option("select[data-column=tool]", label="write (100)")
    assert waits(tab, "50 of 400").startswith("50 of 400")
    tab.fill("#search", "")
    assert waits(tab, "100 of 400").startswith("100 of 400")
    tab.select_option("select[data-column=tool]", "")
    tab.focus("#later")
    tab.keyboard.press("Enter")
    assert waits(tab, "page 2 of 4").endswith("page 2 of 4")
    assert [] == complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_can_be_read_in_both_schemes(browser: Any, tmp_path: Path, scheme: str) -> None:
    """Text and background keep the contrast that WCAG AA asks for (4.5 to 1), light and dark."""
    tab, _ = opened(browser, tmp_path, page(records(), VERDICT), color_scheme=scheme)
    pairs = tab.evaluate(
        """() => [...document.querySelectorAll('p, td, th, caption, a, .deny, .intact, label')].map((item) => {
            let ground = item;
            const clear = 'rgba(0, 0, 0, 0)';
            while (ground && getComputedStyle(ground).backgroundColor === clear) ground = ground.parentElement;
            return [getComputedStyle(item).color, getComputedStyle(ground || document.body).backgroundColor];
        })"""
    )

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(pair: list[str]) -> float:
        light, dark = sorted((luminance(colour) for colour in pair), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    assert min(contrast(pair) for pair in pairs) >= 4.5


def test_labels_and_landmarks_are_there_for_screen_readers(browser: Any, tmp_path: Path) -> None:
    """Every control has a name, every table heads and a caption, every section a heading."""
    tab, _ = opened(browser, tmp_path, page(records(), VERDICT))

    def faulty(what: str, test: str) -> Any:
        return tab.evaluate(f"[...document.querySelectorAll('{what}')].filter((item) => {test}).map((item) => item.id)")

    assert [] == faulty("input, select", "!item.labels.length")
    assert [] == faulty("table", "!item.caption || !item.querySelector('th[scope]')")
    assert [] == faulty("section", "!document.getElementById(item.getAttribute('aria-labelledby'))")
    assert "en" == tab.evaluate("document.documentElement.lang")


@pytest.mark.slow
def test_fifty_thousand_records_do_not_freeze_the_page(browser: Any, tmp_path: Path) -> None:
    """A page of fifty thousand records opens and answers a search."""
    many = records(12_500, ("read", "write", "search"))
    tab, complaints = opened(browser, tmp_path, page(many, VERDICT))
    tab.fill("#search", "egress.connect write")
    searched = waits(tab, "4167 of")

    assert [] == complaints
    assert searched.startswith("4167 of 50000")


def test_report_of_a_real_trail_shows_its_calls(browser: Any, tmp_path: Path) -> None:
    """From the ledger to the page: a recorded call and a denial can be read, and the verdict is stated."""
    recorder = open_recorder(tmp_path / "audit", "run")
    scope = Scope(recorder, Trace.new(), driver="files-mcp", tenant="ada")
    call = scope.child()
    call.intent("call.forward", tool="read", client="inspector", decision="allow")
    call.outcome("call.forward", tool="read", status="ok", duration_us=1200, overhead_us=80)
    scope.fact(
        "egress.dns",
        host="api.example.com",
        decision="deny",
        reason="EGR-101",
        allow_line='- "api.example.com"',
        count=1,
        calls=[],
    )
    recorder.close()
    tab, complaints = opened(browser, tmp_path, report(tmp_path / "audit", Question()))

    assert "intact" in tab.inner_text("header")
    assert '- "api.example.com"' in tab.inner_text("#denied")
    assert "read\t1\t0\t0\t1.2" in tab.inner_text("#tools")
    assert [] == complaints

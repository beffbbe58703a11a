"""The operator's page in Chromium: it renews itself, approves, asks nobody else, and keeps to its own policy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import chromium
from tests.security.test_audit_report import XSS
from tests.ui_lab import TOKEN, Stage, stage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WATCH = """addEventListener('securitypolicyviolation', (event) =>
    console.error('CSP ' + event.violatedDirective + ' ' + event.blockedURI))"""


class Tab:
    """A page with everything that it asked for and complained of."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.context.add_init_script(WATCH)
        self.page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.set_default_timeout(15_000)
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def sign_in(self, on: Stage) -> None:
        """Open the page with the token of the file."""
        self.page.goto(on.url + "/ui", wait_until="load")
        self.page.fill("#code", TOKEN)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#summary")
        self.complaints.clear()  # the browser logs the 401 of the first request


async def looking(work: Callable[[Any], None]) -> None:
    """Do something with a browser, beside the loop that serves."""

    def run() -> None:
        with chromium() as browser:
            work(browser)

    await asyncio.to_thread(run)


@pytest.mark.claim("P-UI-08")
async def test_it_renews_itself_approves_and_asks_nobody_else(tmp_path: Path) -> None:
    """By the link and the keyboard: the change comes without a reload, is read and approved; no request leaves."""
    loop = asyncio.get_running_loop()
    async with stage(tmp_path / "driver", text=XSS[0]) as on:
        await on.sign_in()
        before = on.approved()

        def work(browser: Any) -> None:
            tab = Tab(browser)
            page = tab.page
            page.goto(on.url + on.link)
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            page.wait_for_selector("#summary")
            assert on.url + "/ui" == page.url
            assert [] == page.evaluate("document.cookie ? [document.cookie] : []"), "scripts cannot read the session"
            asyncio.run_coroutine_threadsafe(on.change(), loop).result(30)
            page.wait_for_selector("#read-1")
            page.focus("#read-1")
            renewed = int(page.evaluate("Number(document.documentElement.dataset.renewed)"))
            page.wait_for_selector(f'html[data-renewed="{renewed + 2}"]')
            assert "read-1" == page.evaluate("document.activeElement.id"), "the keyboard stays where it was"
            page.keyboard.press("Enter")
            page.wait_for_selector(".diff")
            assert XSS[0] in page.inner_text(".diff")
            page.click("text=Approve exactly this")
            page.wait_for_selector("#changes .done")
            assert "owned" != page.title()
            assert all(one.startswith((on.url + "/ui", "data:")) for one in tab.asked), tab.asked
            assert [] == tab.complaints

        await looking(work)
        assert before != on.approved()


async def test_it_works_without_scripts(tmp_path: Path) -> None:
    """Signing in, reading and approving are links and forms."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        await on.change()
        before = on.approved()

        def work(browser: Any) -> None:
            tab = Tab(browser, java_script_enabled=False)
            tab.sign_in(on)
            tab.page.click("text=Read and decide")
            tab.page.click("text=Approve exactly this")
            tab.page.wait_for_selector("#changes .done")
            assert [] == tab.complaints

        await looking(work)
        assert before != on.approved()


async def test_it_is_readable_on_a_telephone_and_in_the_dark(tmp_path: Path) -> None:
    """At 380 pixels nothing stands outside; both colour schemes have their own; text stands out from its ground."""
    async with stage(tmp_path / "driver", text=" of " + "a-very-long-word-without-any-blank" * 6) as on:
        await on.sign_in()
        path = await on.change()
        grounds = []

        def work(browser: Any) -> None:
            for scheme in ("light", "dark"):
                tab = Tab(browser, viewport={"width": 380, "height": 700}, color_scheme=scheme)
                tab.sign_in(on)
                for place in ("/ui", path):
                    tab.page.goto(on.url + place)
                    assert 380 >= tab.page.evaluate("document.documentElement.scrollWidth")
                colours = tab.page.evaluate(
                    "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name])"
                )
                grounds.append(colours[1])
                assert 7 <= contrast(*colours)
                assert [] == tab.complaints

        await looking(work)
        assert 2 == len(set(grounds))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2, 1.4.3)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@contextmanager
def foreign(body: str) -> Iterator[str]:
    """Serve a page of somebody else, on another port of the same host, which browsers call the same site."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.claim("P-UI-04")
async def test_another_page_in_the_same_browser_gets_nothing(tmp_path: Path) -> None:
    """With the session's cookie in the browser: its forms are refused, its frames stay empty, its fetches unread."""
    async with stage(tmp_path / "driver") as on:
        await on.sign_in()
        path = await on.change()
        before, fields = on.approved(), await on.fields(path)
        inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
        evil = (
            f'<form id="f" method="post" action="{on.url}/ui/approve">{inputs}</form>'
            f'<iframe src="{on.url}/ui"></iframe>'
            f"<script>window.got = fetch('{on.url}/ui/parts', {{credentials: 'include'}}).then((r) => r.text(), String)"
            "</script>"
        )
        told: dict[str, Any] = {}

        def work(browser: Any) -> None:
            tab = Tab(browser)
            tab.sign_in(on)
            with foreign(evil) as address:
                tab.page.goto(address)
                told["fetch"] = tab.page.evaluate("window.got")
                told["frame"] = [one.url for one in tab.page.frames[1:]]
                with tab.page.expect_navigation() as moved:
                    tab.page.evaluate("document.getElementById('f').submit()")
                told["form"] = moved.value.status

        await looking(work)
        assert ("TypeError: Failed to fetch", 403) == (told["fetch"], told["form"])
        assert not any(one.startswith(on.url) for one in told["frame"])
        assert before == on.approved()

"""The distribution's Chromium, driven by Playwright, for pages of ours; it asks nobody for anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
"""Beside ``--headless`` and a new ``--user-data-dir``, which Playwright gives."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser.

    Ubuntu has Chromium only as a snap, which containers and many hosts cannot run, so that the README's test command
    has to go on without one; where MCP_SANDBOX_REQUIRE_BROWSER=1, as in CI, its absence fails.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        missing = (
            "chromium and playwright are not both there: `.ci/setup test` installs them where Chromium is a package"
        )
        if os.environ.get("MCP_SANDBOX_REQUIRE_BROWSER") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as running:
        found = running.chromium.launch(executable_path=program, args=FLAGS, headless=True)
        try:
            yield found
        finally:
            found.close()

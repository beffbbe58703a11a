"""Bounds of packages; sizes in bytes, times in seconds unless the name says otherwise."""

from __future__ import annotations

from typing import Final

from sandbox.limits import KIB, MIB

MAX_ARCHIVE_BYTES: Final = 64 * MIB
"""One ``.mcpkg`` file, read into memory at once so that nobody changes it between the check and the use."""

MAX_MEMBERS: Final = 4096
"""Files and folders of one package; a bundled Node tool with its dependencies has about a thousand."""

MAX_UNPACKED_BYTES: Final = 256 * MIB
"""All files together."""

MAX_MEMBER_BYTES: Final = 64 * MIB
"""One file."""

MAX_RATIO: Final = 100
"""Unpacked bytes for each packed byte, over the whole package; source code reaches 10, deflate's own limit is 1032."""

RATIO_FREE_BYTES: Final = MIB
"""Unpacked bytes below which the ratio does not matter."""

MAX_NAME_BYTES: Final = 512
"""A path in a package, UTF-8."""

MAX_SEGMENT_BYTES: Final = 200
"""One name of a path: below NAME_MAX with room for a suffix of ours."""

MAX_NAME_DEPTH: Final = 32
"""Folders within folders."""

MAX_MANIFEST_BYTES: Final = MIB
"""``manifest.json``; the largest schemas known have 100 KB."""

MAX_TEXT_BYTES: Final = MIB
"""A test, an example, or a file below ``meta/``."""

MAX_TOOL_ID: Final = 80
"""Characters of a tool id: a driver's id and a contract's id are bounded so (AIP-30, AIP-14)."""

MAX_TESTS: Final = 500
"""Tests of one package."""

MAX_STEPS: Final = 32
"""Steps of one chain; each is a sandbox of its own."""

MAX_IMPLEMENTATIONS: Final = 32
"""Implementations of one tool."""

DEFAULT_TIMEOUT_MS: Final = 30_000
"""Of one call where neither endpoint nor test says one (T3-3)."""

MAX_TIMEOUT_MS: Final = 3_600_000
"""The longest that may be asked for."""

MAX_HISTORY: Final = 200
"""Test runs that ``metadata.json`` remembers."""

MAX_RESULT_BYTES: Final = 8 * MIB
"""Of one answer of an HTTP endpoint or a command, in the container; half of what one line of the wire carries."""

MAX_LOCK_SECONDS: Final = 30.0
"""How long an install waits for another one on the same store."""

SKETCH_BYTES: Final = 4 * KIB
"""Of a README that `inspect` shows."""

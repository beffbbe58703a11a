"""Which test files share what exists once, so that several workers do not stand in each other's way.

A file stays in one worker, for the fixtures of modules start containers. Files that use one network of fixed addresses,
or that build and remove the same images, stay in one worker together. (`--dist loadgroup` of pytest-xdist 3.8 would do
it with marks, and does not see them under pytest 9.)
"""

from __future__ import annotations

import re
from typing import Final

from xdist.scheduler.loadscope import LoadScopeScheduling

LABS: Final = (
    (re.compile(r"/test_(egress_\w+|mcpkg_secrets)\.py$"), "egress"),
    (re.compile(r"/test_(install|install_\w+|images|images_\w+)\.py$"), "registry"),
    (re.compile(r"/test_remote(_\w+)?\.py$"), "remote"),
)
"""Names of files, and what they share."""


def lab_of(nodeid: str) -> str:
    """Return what a test must not be separated from: its laboratory, else its file."""
    file = nodeid.partition("::")[0]
    return next((lab for pattern, lab in LABS if pattern.search(file)), file)


class ByLab(LoadScopeScheduling):
    """Hands out whole laboratories."""

    def _split_scope(self, nodeid: str) -> str:
        return lab_of(nodeid)

"""A handler around another: a base for those that only look at tool calls and pass on everything else."""

from __future__ import annotations

from sandbox.serve.client_model import Handler


class Around:
    """Passes on what is no tool call; whoever derives from it carries ``call_tool``.

    Args:
        inner: carries the requests.
    """

    def __init__(self, inner: Handler) -> None:
        self._inner = inner
        self.get_prompt = inner.get_prompt
        self.read_resource = inner.read_resource
        self.watch_resource = inner.watch_resource
        self.complete = inner.complete

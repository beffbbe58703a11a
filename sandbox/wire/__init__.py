"""MCP as bytes and values: framing, strict JSON-RPC envelopes, both protocol eras, session state as tables.

Nothing here does input or output; time and bytes come in as arguments. The invariant of the stage: *any bytes become
messages or a* :class:`~sandbox.wire.errors.WireError`, *and nothing else*, whether they arrive whole or one by one.
"""

"""Servers that somebody else runs: Streamable HTTP and the older HTTP+SSE, under the driver's own egress rules."""

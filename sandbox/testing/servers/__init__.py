"""MCP servers for tests: real processes with nothing but the standard library, honest and hostile, of either era."""

"""What ``mcp-sandbox serve`` is wired from; heavy to import."""

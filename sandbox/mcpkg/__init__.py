""".mcpkg packages on top of the same flow."""

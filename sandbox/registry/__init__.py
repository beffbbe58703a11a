"""Servers as MCP Registry entries."""

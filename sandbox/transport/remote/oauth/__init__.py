"""OAuth 2.1 towards remote servers (MCP 2025-11-25 and 2026-07-28, basic/authorization): this end is the client."""

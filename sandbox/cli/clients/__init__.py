"""The configurations of MCP clients: where they lie, how an entry looks, how one is put in and taken out."""

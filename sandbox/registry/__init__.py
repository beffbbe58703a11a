"""How servers are told of: entities, lint of ``.kno`` files, and the projections of the MCP Registry and its kin."""

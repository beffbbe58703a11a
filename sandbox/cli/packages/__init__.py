"""The actions of ``mcp-sandbox pkg``; each module has ``add_arguments(actions)``, which declares some of them."""

"""Programs that speak MCP for a package's tool, inside its sandbox; copied into the driver folder, never imported."""

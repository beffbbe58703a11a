"""State that several gateways share: one interface, in memory for one gateway, SQLite, PostgreSQL or Redis for more."""

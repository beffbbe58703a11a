"""The operator's page: who may see it, what it remembers, how it is shown."""

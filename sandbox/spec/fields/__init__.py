"""The blocks of each manifest as pydantic models: what may stand where, before it is known what it means together."""

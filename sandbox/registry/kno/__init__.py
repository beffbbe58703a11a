"""``.kno`` entities of the type ``mcp-server`` (seed 004, schema 0.1.0 … 0.5.0): read, linted, projected.

Written from the described fields; no text of the schema is part of this package.
"""

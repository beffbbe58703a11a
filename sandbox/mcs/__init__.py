"""Sandboxed servers as Model Context Standard drivers, and the reverse."""

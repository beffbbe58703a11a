"""Callers -> vetted servers."""

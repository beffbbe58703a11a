"""``.mcpkg`` packages (MCPKG v0.1 and its v0.2 parts): read as attacks, installed as drivers, run like any driver.

Flow::

    bytes ─ archive ─> contents ─ manifest ─> Manifest ─ sign ─> Trust ─ select ─> Choice ─ project ─> driver folder

An installed package is a driver folder: whatever runs it plans, sandboxes, vets, polices and audits it as such
(ADR 0095).
"""

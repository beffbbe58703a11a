"""Drafts a driver folder from a live server: what `init` does, in the order of the modules.

source (what is asked for) → configs (entries of a client's configuration) → folder (files) → make (run, list, write).
"""

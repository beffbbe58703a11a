"""Bytes between an Instance and ``wire``: channels for messages, and the server as a peer."""

"""Streamable HTTP towards clients: one handler of our own for both protocol eras.

The SDK's server takes a server object and not a session of ours, rewrites ids and reads more liberally than we do, so
the handler is written here on plain ASGI; Starlette's request and response helpers and uvicorn with the h11 parser
carry the bytes.
"""

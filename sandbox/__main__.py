"""``python -m sandbox`` is the ``mcp-sandbox`` command."""

from sandbox.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

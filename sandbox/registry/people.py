"""The pages for people: what is open to them, and one server; nothing of any entity becomes markup."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from sandbox.registry.entity import ServerEntity

HTML: Final = "text/html; charset=utf-8"


def _page(title: str, body: str) -> bytes:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title></head><body><main><h1>{html.escape(title)}</h1>{body}</main></body></html>"
    )
    return text.encode()


def listing(entities: Sequence[ServerEntity]) -> bytes:
    """Return the page of all servers that somebody may know of."""
    rows = "".join(
        f'<li><a href="/docs/mcp/{html.escape(one.slug)}">{html.escape(one.title or one.name)}</a>: '
        f"{html.escape(one.description)}</li>"
        for one in entities
    )
    nothing = "<p>Nothing is open to you here; sign in to see more.</p>"
    return _page("MCP servers", f"<ul>{rows}</ul>" if rows else nothing)


def detail(entity: ServerEntity, base_url: str) -> bytes:
    """Return the page of one server."""
    facts = {
        "Name": entity.name,
        "Version": entity.version,
        "Address": base_url + entity.endpoint_path,
        "Transport": "Streamable HTTP",
        "Sign in": "not needed" if entity.auth == "none" else "bearer token",
        "Scopes": " ".join(entity.required_scopes) or "none",
        "Tools": ", ".join(entity.tools),
    }
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
    return _page(entity.title or entity.name, f"<p>{html.escape(entity.description)}</p><dl>{rows}</dl>")

"""Gets the keys of an issuer over HTTPS: bounded in time and size, no redirects, no cookies, no proxies' surprises."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import orjson

from sandbox.cli.gateway.config import IssuerConfig
from sandbox.limits import KIB
from sandbox.serve.identity.introspection import Ask
from sandbox.serve.identity.keys import Fetch, KeySource
from sandbox.serve.identity.tokens import Issuer

MAX_BYTES: Final = 256 * KIB
"""Of one document; JWK sets with certificate chains have up to 40 KiB."""

TIMEOUT: Final = 5.0
"""Seconds for one document."""


def issuer_of(config: IssuerConfig) -> Issuer:
    """Return an issuer whose keys are fetched when they are needed."""
    return Issuer(
        config.url,
        KeySource(fetch_of(config), time.monotonic),
        config.tenant_claim,
        config.user_claim,
        config.algorithms,
    )


def fetch_of(config: IssuerConfig) -> Fetch:
    """Return what gets the JWK set of an issuer, found through its metadata when it is not named."""

    async def fetch() -> Mapping[str, Any]:
        async with httpx2.AsyncClient(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
            uri = config.jwks_uri
            if not uri:
                base = config.url.rstrip("/")
                described = await _document(client, f"{base}/.well-known/oauth-authorization-server")
                if described.get("issuer") != config.url:
                    raise ValueError("the metadata is another issuer's")
                uri = str(described.get("jwks_uri", ""))
                if not uri.startswith(("https://", base)):
                    raise ValueError("the metadata names no https address of keys")
            return await _document(client, uri)

    return fetch


def ask_of(config: IssuerConfig) -> Ask:
    """Return what asks an issuer about a token, with this gateway's own credential."""
    credential = httpx2.BasicAuth(config.client_id, os.environ[config.client_secret_env])

    async def ask(token: str) -> Mapping[str, Any]:
        form = {"token": token, "token_type_hint": "access_token"}
        async with httpx2.AsyncClient(timeout=TIMEOUT, follow_redirects=False, trust_env=False) as client:
            return await _document(client, config.introspection, form, credential)

    return ask


async def _document(
    client: httpx2.AsyncClient, url: str, form: Mapping[str, str] | None = None, auth: httpx2.BasicAuth | None = None
) -> Mapping[str, Any]:
    """Return one JSON object, asked for with a form where there is one.

    Raises:
        OSError: it cannot be had, or not in time.
        ValueError: it is something else.
    """
    try:
        method, headers = "GET" if form is None else "POST", {"accept": "application/json"}
        async with (
            asyncio.timeout(TIMEOUT),  # of all of it: the client's own is of each byte
            client.stream(method, url, headers=headers, data=form, auth=auth) as response,
        ):
            if response.status_code != 200:  # noqa: PLR2004 - OK
                raise ValueError(f"status {response.status_code}")
            body = b""
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise ValueError("too large")
    except httpx2.HTTPError as error:
        raise OSError(str(error)) from None
    value = orjson.loads(body)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - a value of the wrong form, from outside
    return value

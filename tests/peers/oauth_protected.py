"""The server of ``sdk_server.py`` over Streamable HTTP and TLS, which takes only tokens: the Python SDK's own guard.

``oauth_protected.py ADDRESS PORT CERT KEY ISSUER JWKS``: signature, issuer, audience and end of each token are checked
against the keys at JWKS.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jwt
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings

sys.path.insert(0, str(Path(__file__).parent))
import sdk_server


class Verifier:
    """Checks tokens with PyJWT."""

    def __init__(self, issuer, audience, keys):
        self.issuer, self.audience = issuer, audience
        self.keys = jwt.PyJWKClient(keys)

    async def verify_token(self, token):
        """Return who has the token, or nothing."""
        try:
            key = self.keys.get_signing_key_from_jwt(token)
            said = jwt.decode(token, key, ["RS256"], audience=self.audience, issuer=self.issuer)
        except jwt.PyJWTError:
            return None
        return AccessToken(
            token=token, client_id=said["client_id"], scopes=said["scope"].split(), expires_at=said["exp"],
            resource=self.audience,
        )  # fmt: skip


def main():
    """Serve."""
    address, port, cert, key, issuer, keys = sys.argv[1:]
    resource = f"https://{address}:{port}/mcp"
    auth = AuthSettings(
        issuer_url=issuer, resource_server_url=resource, required_scopes=["text:use"], validate_token_resource=True
    )
    app = sdk_server.build().streamable_http_app(
        auth=auth,
        token_verifier=Verifier(issuer, resource, keys),
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    uvicorn.run(app, host=address, port=int(port), ssl_certfile=cert, ssl_keyfile=key, log_level="warning", http="h11")


if __name__ == "__main__":
    main()

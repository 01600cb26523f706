"""A server that asks for a login, with the authorization server of the SDK: `oauth_server.py PORT SECONDS NOTES`.

Whoever opens its page agrees, unless the file `NOTES.deny` exists. Tokens last `SECONDS`, a refresh token works once,
and the file `NOTES` has a line for each token that was given.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken


class Provider:
    """Keeps everything in memory."""

    def __init__(self, seconds: int, notes: Path) -> None:
        self.seconds, self.notes = seconds, notes
        self.clients: dict[str, Any] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshes: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        place = str(params.redirect_uri)
        if self.notes.with_suffix(".deny").exists():
            return construct_redirect_uri(place, error="access_denied", state=params.state)
        code = secrets.token_hex(8)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(place, code=code, state=params.state)

    async def load_authorization_code(self, client: Any, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    async def exchange_authorization_code(self, client: Any, code: AuthorizationCode) -> OAuthToken:
        del self.codes[code.code]
        return self._given("code", client.client_id, code.scopes, code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refreshes.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        if self.refreshes.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        return self._given("refresh", client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.tokens.get(token)
        return None if found is None or (found.expires_at or 0) < time.time() else found

    async def revoke_token(self, token: Any) -> None:
        with self.notes.open("a") as file:
            file.write("revoked\n")
        self.tokens.clear()
        self.refreshes.clear()

    def _given(self, how: str, client_id: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = f"tok-{secrets.token_hex(12)}", f"ref-{secrets.token_hex(12)}"
        ends = int(time.time()) + self.seconds
        self.tokens[access] = AccessToken(
            token=access, client_id=client_id, scopes=scopes, expires_at=ends, resource=resource
        )
        self.refreshes[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=scopes, resource=resource)
        with self.notes.open("a") as file:
            file.write(f"{how}\n")
        return OAuthToken(access_token=access, expires_in=self.seconds, refresh_token=refresh, scope=" ".join(scopes))


def main(port: int, seconds: int, notes: Path) -> None:
    address: Any = f"http://127.0.0.1:{port}"
    provider: Any = Provider(seconds, notes)
    app = MCPServer(
        "secured",
        auth_server_provider=provider,
        auth=AuthSettings(
            issuer_url=address,
            resource_server_url=f"{address}/mcp",  # type: ignore[arg-type]
            client_registration_options=ClientRegistrationOptions(
                enabled=True, valid_scopes=["use"], default_scopes=["use"]
            ),
            revocation_options=RevocationOptions(enabled=True),
            required_scopes=["use"],
            validate_token_resource=False,
        ),
    )

    @app.tool()
    def tell() -> str:
        """Repeats the token that it was sent."""
        token = get_access_token()
        return f"you sent {token.token if token else None}"

    uvicorn.run(app.streamable_http_app(), port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))

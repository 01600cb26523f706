"""OAuth tokens of servers over HTTP: kept in one file of this user, and refreshed by one process at a time.

The flow by which a user logs in (discovery, registration, PKCE) is that of the protocol's library. Here are its two
ends: the browser that comes back to an address of this machine, and the file. A connection takes its token from the
file, and never asks: a process without a terminal could not.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
from anyio.abc import SocketAttribute

from orchestrator.errors import DISTRIBUTION, ToolError
from orchestrator.private import keep_private, state_folder
from orchestrator.tools.mcp.servers import HttpServer, sends

if TYPE_CHECKING:
    from mcp.client.auth import OAuthClientProvider

_EARLY = 10.0
"""Seconds before its end at which a token is refreshed."""
_PATIENCE = 60.0
"""Seconds to wait for another process that refreshes."""
LOGIN = 600.0
"""Seconds that a user has to log in."""
_ANSWER = (
    "<!doctype html><meta charset=utf-8><title>orchestrator</title>"
    "<p>This page can be closed: the terminal shows whether the login succeeded."
)


def key_of(url: str) -> str:
    """Return the address of a server as its tokens are kept: without a user, a query and a fragment."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def login_command(url: str) -> str:
    """Return the command that logs in to a server."""
    return f"orchestrator mcp login {shlex.quote(key_of(url))}"


class Tokens:
    """The file of tokens.

    Args:
        path: the file; None: that of this user.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_folder() / "mcp_tokens.json"
        keep_private(self.path, endings=(".lock", ".new"))

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what is kept, by `key_of` the server: `token`, `expires_at`, `client`, `issuer` and `resource`.

        Raises:
            ToolError: others can read the file, or it is damaged.
        """
        try:
            with open(self.path, encoding="utf-8") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                found = json.load(file)
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ToolError(f"{self.path} is damaged ({error}): delete it, and log in again") from None
        if os.name == "posix" and mode & 0o077:
            raise ToolError(f"{self.path} has tokens, and others can read it: chmod 600 {shlex.quote(str(self.path))}")
        return found if isinstance(found, dict) else {}

    def write(self, url: str, kept: dict[str, Any] | None) -> None:
        """Keep the tokens of a server; None removes them. Only while the file is locked."""
        found = self.read()
        if kept is None:
            found.pop(key_of(url), None)
        else:
            found[key_of(url)] = kept
        draft = self.path.with_name(self.path.name + ".new")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Exclude other processes, on systems with `flock`, and other tasks.

        Raises:
            ToolError: another process has had the lock for too long.
        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                import fcntl
            except ImportError:  # Windows
                yield
                return
            with anyio.move_on_after(_PATIENCE) as waiting:
                while True:
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await anyio.sleep(0.02)
            if waiting.cancelled_caught:
                raise ToolError(f"another process has had {self.path}.lock for {_PATIENCE:g} s: end it, and try again")
            yield
        finally:
            os.close(handle)


class _Kept:
    """The storage of the protocol's library: what is kept of one server."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self.kept = kept

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        return OAuthToken.model_validate(self.kept["token"]) if "token" in self.kept else None

    async def set_tokens(self, tokens: Any) -> None:
        self.kept["token"] = tokens.model_dump(mode="json", exclude_none=True)
        self.kept["expires_at"] = None if tokens.expires_in is None else time.time() + tokens.expires_in

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        return OAuthClientInformationFull.model_validate(self.kept["client"]) if "client" in self.kept else None

    async def set_client_info(self, client_info: Any) -> None:
        self.kept["client"] = client_info.model_dump(mode="json", exclude_none=True)


async def _provider(url: str, kept: _Kept, redirect: str, **handlers: Any) -> OAuthClientProvider:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata

    about = OAuthClientMetadata.model_validate(
        {
            "redirect_uris": [redirect],
            "client_name": DISTRIBUTION,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        }
    )
    made = OAuthClientProvider(url, about, kept, **handlers)
    context = made.context
    context.current_tokens, context.client_info = await kept.get_tokens(), await kept.get_client_info()
    if kept.kept.get("issuer"):
        context.oauth_metadata = OAuthMetadata.model_validate(kept.kept["issuer"])
    if kept.kept.get("resource"):
        context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(kept.kept["resource"])
    return made


async def token_of(url: str, tokens: Tokens, refused: str = "") -> str | None:
    """Return the token of a server, refreshed if its time is over; None if the user has to log in.

    Args:
        url: the address of the server.
        tokens: the file of tokens.
        refused: a token that the server no longer takes.

    Raises:
        ToolError: the file cannot be used.
        ConnectError: the server that gives tokens cannot be reached.
    """
    if (found := _fresh(tokens, url, refused)) is not None:
        return found
    async with tokens.locked():
        if (found := _fresh(tokens, url, refused)) is not None:  # another process has refreshed it
            return found
        before = tokens.read().get(key_of(url), {})
        if not before.get("token", {}).get("refresh_token"):
            return None
        kept = _Kept(before)
        provider = await _provider(url, kept, "http://127.0.0.1/")
        try:
            async with httpx2.AsyncClient(timeout=30) as client:
                response = await client.send(await provider._refresh_token())
                refreshed = await provider._handle_refresh_response(response)
        except httpx2.TransportError as error:
            raise httpx2.ConnectError(f"its token cannot be refreshed: {error or type(error).__name__}") from None
        if not refreshed:
            return None
        tokens.write(url, kept.kept)
        return _fresh(tokens, url, "")


def _fresh(tokens: Tokens, url: str, refused: str) -> str | None:
    kept = tokens.read().get(key_of(url), {})
    token, ends = kept.get("token", {}).get("access_token"), kept.get("expires_at")
    if not isinstance(token, str) or token == refused or (ends is not None and time.time() > ends - _EARLY):
        return None
    sends(url, token)
    return token


class StoredToken(httpx2.Auth):
    """Sends the token of a server with each request, unless the request has credentials of its own."""

    def __init__(self, server: HttpServer, tokens: Tokens | None = None) -> None:
        self._url, self._tokens = server.url, tokens or Tokens()

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the token; if it is refused, once more with a new one."""
        own = "authorization" in request.headers
        token = None if own else await token_of(self._url, self._tokens)
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401 and token is not None:
            token = await token_of(self._url, self._tokens, refused=token)
            if token is not None:
                request.headers["Authorization"] = f"Bearer {token}"
                yield request


async def login(
    server: HttpServer,
    show: Callable[[str], Awaitable[None]],
    *,
    client: tuple[str, str] | None = None,
    port: int = 0,
    tokens: Tokens | None = None,
) -> dict[str, Any]:
    """Log in to a server: the user agrees in a browser, and the tokens are kept.

    Args:
        server: the server.
        show: shows the address to open to the user.
        client: the id and the secret of a client that is registered with the server; the secret may be empty. None:
            this program registers itself.
        port: the port of this machine to which the browser comes back; 0: any free one.
        tokens: the file of tokens; None: that of this user.

    Returns:
        What is kept.

    Raises:
        ToolError: the server asks for no login or cannot be reached, the user did not agree, or the flow failed.
    """
    from mcp.client.auth import OAuthFlowError

    tokens = tokens or Tokens()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
    redirect = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/callback"
    kept = _Kept({})
    if client is not None:
        method = "client_secret_basic" if client[1] else "none"
        about = {"client_id": client[0], "redirect_uris": [redirect], "token_endpoint_auth_method": method}
        kept.kept["client"] = {**about, **({"client_secret": client[1]} if client[1] else {})}
    async with listener:
        provider = await _provider(
            server.url, kept, redirect, redirect_handler=show, callback_handler=lambda: _callback(listener)
        )
        headers = {**server.headers, "accept": "application/json, text/event-stream"}
        try:
            with anyio.fail_after(LOGIN):
                async with httpx2.AsyncClient(auth=provider, headers=headers, timeout=30) as sender:
                    for method, params in _ASKING:  # some servers greet everybody
                        said = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
                        response = await sender.post(server.url, json=said)
                        if "token" in kept.kept:
                            break
                        if (session := response.headers.get("mcp-session-id")) is not None:
                            sender.headers["mcp-session-id"] = session
        except TimeoutError:
            raise ToolError(f"{server.name}: there was no login within {LOGIN:g} s") from None
        except httpx2.TransportError as error:
            raise ToolError(f"{server.name}: it cannot be reached: {error or type(error).__name__}") from None
        except (OAuthFlowError, ValueError) as error:
            raise ToolError(f"{server.name}: the login failed: {error}") from None
    if "token" not in kept.kept:
        raise ToolError(f"{server.name}: the server does not ask for a login")
    context = provider.context
    for name, found in (("issuer", context.oauth_metadata), ("resource", context.protected_resource_metadata)):
        if found is not None:
            kept.kept[name] = found.model_dump(mode="json", exclude_none=True)
    async with tokens.locked():
        tokens.write(server.url, kept.kept)
    return kept.kept


_ABOUT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": DISTRIBUTION, "version": "1"}}
_ASKING: tuple[tuple[str, dict[str, Any]], ...] = (("initialize", _ABOUT), ("tools/list", {}))
"""Requests that a server may answer by asking for a login."""


async def _callback(listener: Any) -> Any:
    """Wait for the browser that comes back with a code."""
    from mcp.shared.auth import AuthorizationCodeResult

    found: list[dict[str, str]] = []

    async def serve(stream: Any) -> None:
        # A browser also opens connections that it does not use, and other programs try the port: these change nothing.
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, ValueError), anyio.move_on_after(10):
            async with stream:
                head = b""
                while b"\r\n" not in head and len(head) < 16_384:
                    head += await stream.receive()
                address = urlsplit(head.split(b" ", 2)[1].decode("ascii", "replace")) if head.count(b" ") > 1 else None
                known = address is not None and address.path == "/callback"
                if address is not None and known:
                    found.append({name: values[0] for name, values in parse_qs(address.query).items()})
                status, text = ("200 OK", _ANSWER) if known else ("404 Not Found", "")
                said = f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n{text}"
                await stream.send(said.encode())
        if found:
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
    (said,) = found[:1]
    if "error" in said:
        raise ToolError(f"the server refused the login: {said.get('error_description') or said['error']}")
    return AuthorizationCodeResult(code=said.get("code", ""), state=said.get("state"), iss=said.get("iss"))


async def logout(url: str, tokens: Tokens | None = None) -> bool:
    """Forget the tokens of a server, and ask it to end them if it can.

    Returns:
        Whether there were any.
    """
    tokens = tokens or Tokens()
    async with tokens.locked():
        kept = tokens.read().get(key_of(url))
        if kept is None:
            return False
        tokens.write(url, None)
    place = kept.get("issuer", {}).get("revocation_endpoint")
    given, client = kept.get("token", {}), kept.get("client", {})
    if isinstance(place, str):
        credentials = {name: client[name] for name in ("client_id", "client_secret") if name in client}
        form = {"token": given.get("refresh_token") or given.get("access_token", ""), **credentials}
        try:
            async with httpx2.AsyncClient(timeout=10) as sender:
                await sender.post(place, data=form)
        except httpx2.HTTPError:
            pass  # it ends by itself
    return True

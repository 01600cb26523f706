"""Checks of every request: its host, the page it comes from, and its credentials.

It is plain ASGI middleware, so it buffers no stream. The checks:

    Host            names this server: otherwise a site whose name resolves to this machine (DNS rebinding) could use it
    Origin          if present, is this server, or one of the allowed origins, whose pages may also read answers (CORS)
    Sec-Fetch-Site  of a write is `same-origin`, or `none` (no page); pages of other sites can only link here, unless
                    their origin is allowed
    Content-Type    of a write with a body is JSON, which no form of another site can send
    token           in `Authorization: Bearer`, or a session, whose cookie the address with `?token=` sets
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from orchestrator.web.principals import SESSION, cookies
from orchestrator.web.problems import HttpProblem, answer, fault

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from orchestrator.web.principals import Sessions
    from orchestrator.web.settings import Settings

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of responses other than pages."""
SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response that does not set them itself."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(rf"(?P<scheme>https?)://(?P<host>{_HOST.pattern})")
_PORTS = {"http": "80", "https": "443"}
_HEADERS = 1000
"""Characters of the names of headers that a preflight asks for."""


class Guard:
    """ASGI middleware that refuses requests, and adds headers to every response."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self.app, self.settings, self.sessions = app, settings, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        page = _allowed_page(Headers(scope=scope), self.settings.origins)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if self.settings.origins:
                    headers.add_vary_header("Origin")
                if page is not None:
                    headers.update({"Access-Control-Allow-Origin": page, "Access-Control-Expose-Headers": "*"})
                for name, value in SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            entry = self._checked(scope, page)
        except HttpProblem as problem:
            entry = answer(problem)
        if entry is not None:
            await entry(scope, receive, secured)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await secured(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:  # errors that no route has handled, such as one in `authorize` itself
            if begun:
                raise
            await answer(fault())(scope, receive, secured)

    def _checked(self, scope: Scope, page: str | None) -> Response | None:
        """Check a request. Return the response if the request is a preflight or only brings the token, else None.

        Args:
            scope: the request.
            page: the origin of its page, if that is an allowed one.

        Raises:
            HttpProblem: the request is refused.
        """
        headers = Headers(scope=scope)
        host = self._host(headers, scope)
        if page is None:
            _check_origin(headers, host, str(scope.get("scheme", "http")))
        if page is not None:
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                return _preflight(headers)
        elif scope["method"] not in _READS:
            _check_write(headers)
        else:
            _check_read(headers)
        return None if self.settings.token is None else self._admitted(headers, scope, self.settings.token)

    def _host(self, headers: Headers, scope: Scope) -> str:
        """Return the host of a request.

        Raises:
            HttpProblem: it is not this server.
        """
        given = headers.getlist("host")
        # A target that is not a path (`GET http://name/`) has a host, which takes precedence over the header.
        lone = len(given) == 1 and str(scope["path"]).startswith("/")
        found = _HOST.fullmatch(given[0].lower()) if lone else None
        if found is None:
            raise HttpProblem(400, "host-invalid", "the request has no valid host")
        name, allowed = found["name"], self.settings.hosts
        port = found["port"] or _PORTS.get(str(scope.get("scheme")), "80")
        if allowed is None or name in allowed or f"{name}:{port}" in allowed:
            return given[0].lower()
        if self.settings.addresses and _is_address(name):
            return given[0].lower()
        raise HttpProblem(
            403, "host-refused", f"host {given[0]!r} is not served here: use the address that was printed"
        )

    def _admitted(self, headers: Headers, scope: Scope, token: str) -> Response | None:
        """Return None for a valid token or session; for a URL with the token, a new session and the URL without it.

        Raises:
            HttpProblem: the token is missing or wrong.
        """
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == "token"]
        if given and scope["method"] in ("GET", "HEAD"):
            if len(given) == 1 and _same(given[0], token):
                return self._entered(scope, [pair for pair in query if pair[0] != "token"])
        elif self.sessions.has_any(ids := cookies(headers, self.settings.cookie)):
            scope[SESSION] = ids
            return None
        raise HttpProblem(
            401,
            "token-missing",
            "this server needs a token. Open the address that was printed, or send Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _entered(self, scope: Scope, query: list[tuple[str, str]]) -> Response:
        # One slash: `//name` would be a URL on another host.
        path = "/" + quote(str(scope["path"]).lstrip("/\\"), safe="/")
        response = Response(status_code=303, headers={"Location": f"{path}{'?' if query else ''}{urlencode(query)}"})
        response.set_cookie(
            self.settings.cookie,
            self.sessions.open(),
            max_age=int(self.settings.session),
            path="/",
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        return response


class SameOrigin:
    """ASGI middleware that refuses requests which pages of other sites send; see `orchestrator.web.same_origin`."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self.app, self.origins = app, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        app = self.app
        if (
            scope["type"] in ("http", "websocket")
            and _allowed_page(headers := Headers(scope=scope), self.origins) is None
        ):
            try:
                _check_origin(headers, headers.get("host", "").lower(), str(scope["scheme"]))
                if scope["type"] == "http" and scope["method"] not in _READS:
                    _check_write(headers)
            except HttpProblem as problem:
                app = answer(problem)
        await app(scope, receive, send)


def _allowed_page(headers: Headers, origins: frozenset[str]) -> str | None:
    """Return the origin of the page that sent a request, if it is one of the allowed origins."""
    given = headers.getlist("origin")
    return given[0] if len(given) == 1 and given[0] in origins else None


def origins_of(given: Collection[str]) -> frozenset[str]:
    """Return origins as browsers write them: without the usual port, and in lower case.

    Args:
        given: origins such as `https://shop.example` and `http://localhost:3000`.

    Raises:
        ValueError: one is not an origin.
    """
    found = set()
    for origin in [given] if isinstance(given, str) else given:
        parts = _ORIGIN.fullmatch(origin.lower())
        if parts is None:
            raise ValueError(
                f"origins: {origin!r} is not an origin: give scheme, host and port, such as 'https://shop.example' or "
                "'http://localhost:3000', without a path"
            )
        usual = f":{_PORTS[parts['scheme']]}"
        found.add(f"{parts['scheme']}://{parts['host'].removesuffix(usual)}")
    return frozenset(found)


def _preflight(headers: Headers) -> Response:
    """Answer the question of a browser whether a page of an allowed origin may send a request.

    See https://fetch.spec.whatwg.org/#cors-preflight-request.
    """
    allowed = {"Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE", "Access-Control-Max-Age": "600"}
    wanted = headers.get("access-control-request-headers", "")
    if 0 < len(wanted) <= _HEADERS and all(sign.isascii() and (sign.isalnum() or sign in "-_, ") for sign in wanted):
        allowed["Access-Control-Allow-Headers"] = wanted
    return Response(status_code=204, headers=allowed)


def _check_origin(headers: Headers, host: str, scheme: str) -> None:
    """Refuse a request that a page of another origin sent.

    Raises:
        HttpProblem: the request comes from a page of another origin.
    """
    for origin in headers.getlist("origin"):
        found = _ORIGIN.fullmatch(origin.lower())
        # Behind a proxy that ends TLS, the page has another scheme, and so another port, than this server.
        ports = {_PORTS.get(scheme), None if found is None else _PORTS[found["scheme"]]}
        hosts = {_with_port(host, port) for port in ports}
        if found is None or _with_port(found["host"], _PORTS[found["scheme"]]) not in hosts:
            raise HttpProblem(403, "origin-refused", f"requests from pages of {origin[:200]!r} are refused")


def _check_write(headers: Headers) -> None:
    """Refuse a request that a page of another site could have sent, or whose body is not JSON.

    Raises:
        HttpProblem: a page of another site could have sent the request, or its body is not JSON.
    """
    site = headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        raise HttpProblem(403, "site-refused", f"requests that change something are refused from {site[:40]!r} pages")


def _check_read(headers: Headers) -> None:
    """Allow pages of other sites to link here, but not to embed: an image could open streams and searches.

    Raises:
        HttpProblem: a page of another site embeds this URL.
    """
    site = headers.get("sec-fetch-site", "none")
    embedded = headers.get("sec-fetch-mode", "navigate") != "navigate" or (
        headers.get("sec-fetch-dest", "document") != "document"
    )
    if site not in ("same-origin", "none") and embedded:
        raise HttpProblem(403, "site-refused", f"{site[:40]!r} pages can link to this address, but not embed it")


def check_json(headers: Headers) -> None:
    """Require a JSON body.

    Raises:
        HttpProblem: the content has another type, or an encoding.
    """
    kind, _, options = headers.get("content-type", "").partition(";")
    charset = options.strip().lower().replace('"', "")
    if kind.strip().lower() != "application/json" or charset not in ("", "charset=utf-8"):
        raise HttpProblem(415, "not-json", "send the body as JSON, with Content-Type: application/json")
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpProblem(415, "encoded", "send the body as it is, without a Content-Encoding")


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode())


def _with_port(netloc: str, default: str | None) -> str:
    return netloc if re.search(r":[0-9]+$", netloc) else f"{netloc}:{default}"


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True

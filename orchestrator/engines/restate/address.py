"""The URL of a Restate server and of the workers that it calls, and the names that both sides use."""

from __future__ import annotations

import string
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from orchestrator.errors import InvalidValue, install_command

INGRESS, ADMIN, WORKER = 8080, 9070, 9080
"""The ports that Restate uses by default."""
SERVICE = "orchestrator"
"""The name of the service by default."""
HANDLER = "deliver"
"""The name of the service's handler."""
EXTRA = f"deliveries by Restate need the extra `restate`: {install_command('restate')}"

_PARAMETERS = ("admin", "listen", "workers", "service")
_IN_NAMES = string.ascii_letters + string.digits + "._-"


@dataclass(frozen=True)
class RestateAddress:
    """Parts of the URL of a Restate server."""

    ingress: str
    """URL to which runs are submitted, such as `http://127.0.0.1:8080`."""
    admin: str
    """URL at which workers are registered, and deliveries are looked up and cancelled."""
    listen: tuple[str, int]
    """Host and port on which a worker listens for deliveries."""
    workers: str
    """The URL at which the server reaches all workers."""
    service: str
    """The name of the service. Apps that share a server, but no store, need separate names."""


def address_of(url: str) -> RestateAddress:
    """Read `restate://HOST:PORT?admin=HOST:PORT&listen=HOST:PORT&workers=URL&service=NAME`.

    Args:
        url: host and port are those of the ingress, by default 127.0.0.1:8080. `admin` is port 9070 of the same host by
            default, `listen` 127.0.0.1:9080, `workers` that port as a URL, and `service` is `orchestrator`.

    Raises:
        InvalidValue: the URL is not valid.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(
            "a restate:// URL must be restate://HOST:PORT, with [ ] around an IPv6 address", where="engine"
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if parts.username is not None or parts.path not in ("", "/") or unknown:
        what = f"parameter {unknown[0]!r}" if unknown else "user, password or path"
        raise InvalidValue(f"a restate:// URL has no {what}: use {', '.join(_PARAMETERS)}", where="engine")
    host, port = _host_and_port(parts.netloc or "127.0.0.1", "127.0.0.1", INGRESS)
    admin = _host_and_port(given.get("admin", ""), host, ADMIN)
    listen = _host_and_port(given.get("listen", ""), "127.0.0.1", WORKER)
    workers = given.get("workers") or f"http://{_shown(*listen)}"
    if not _is_http(workers):
        raise InvalidValue(f"workers={workers}: use a URL such as http://workers.internal:9080", where="engine")
    service = given.get("service") or SERVICE
    if service[0] not in string.ascii_letters or service.strip(_IN_NAMES):
        raise InvalidValue(f"service={service}: use letters, digits, dots, dashes and underscores", where="engine")
    return RestateAddress(f"http://{_shown(host, port)}", f"http://{_shown(*admin)}", listen, workers, service)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _host_and_port(text: str, host: str, port: int) -> tuple[str, int]:
    """Parse HOST, HOST:PORT, :PORT or PORT. Missing parts are taken from the arguments."""
    if text.isdecimal():
        text = f":{text}"
    wrong = InvalidValue(f"{text!r} is not an address: use HOST:PORT, such as 127.0.0.1:{port}", where="engine")
    try:
        parts = urlsplit(f"//{text}")
        found = parts.hostname or host, port if parts.port is None else parts.port
    except ValueError:
        raise wrong from None
    if parts.path or parts.query or parts.username is not None:
        raise wrong
    return found


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

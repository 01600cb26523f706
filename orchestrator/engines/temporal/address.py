"""The URL of a Temporal server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from orchestrator.errors import InvalidValue

PORT = 7233
"""The port that Temporal uses by default."""
TASK_QUEUE = "orchestrator"
"""The name of the task queue by default."""

_PARAMETERS = ("task_queue", "profile")


@dataclass(frozen=True)
class TemporalAddress:
    """What a URL of a Temporal server says."""

    target: str
    """Where the server is, such as `127.0.0.1:7233`."""
    namespace: str
    """The namespace, which has to exist."""
    task_queue: str
    """The task queue that workers poll. Apps that share a namespace, and no store, need one each."""
    profile: str | None
    """The profile of Temporal's configuration file that has the certificates or the API key; None: no TLS."""


def address_of(url: str) -> TemporalAddress:
    """Read `temporal://HOST:PORT/NAMESPACE?task_queue=NAME&profile=NAME`.

    Args:
        url: host and port are 127.0.0.1:7233 by default, the namespace `default`, and the task queue `orchestrator`.
            `profile` is a profile of Temporal's configuration file (`~/.config/temporalio/temporal.toml`, or
            `TEMPORAL_CONFIG_FILE`), from which TLS, certificates and the API key are read.

    Raises:
        InvalidValue: it is no such URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(
            "a temporal:// URL is temporal://HOST:PORT, with [ ] around a host of IPv6", where="engine"
        ) from None
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if parts.username is not None or unknown:
        what = f"parameter {unknown[0]!r}" if unknown else "user or password"
        raise InvalidValue(f"a temporal:// URL has no {what}: use {', '.join(_PARAMETERS)}", where="engine")
    namespace = unquote(parts.path.strip("/")) or "default"
    if "/" in namespace:
        raise InvalidValue(f"{namespace} is no namespace: use temporal://HOST:PORT/NAMESPACE", where="engine")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port or PORT
    except ValueError:
        raise InvalidValue(f"{parts.netloc}: use HOST:PORT with a port below 65536", where="engine") from None
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return TemporalAddress(target, namespace, given.get("task_queue") or TASK_QUEUE, given.get("profile") or None)

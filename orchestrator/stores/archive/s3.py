"""An archive in a bucket, by the S3 protocol. Needs the extra `s3` (boto3, whose clients are thread-safe)."""

from __future__ import annotations

import base64
import hashlib
import time
from contextlib import closing
from threading import Lock
from typing import Any, cast
from urllib.parse import urlencode

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from orchestrator.errors import StoreError, StoreUnavailable

_GONE = {"NoSuchKey", "404", "NotFound"}
_CONNECTIONS = 32
_PART = 65_536
_SLOWEST = 65_536
"""Bytes per second."""


class S3Archive:
    """An archive in a bucket. boto3 reads the keys from the environment; no message contains them.

    Args:
        bucket: the bucket, which exists.
        prefix: prefix of the keys of all objects; may be empty.
        endpoint: the URL of the server; None: Amazon's, or the one in the environment.
        region: the region; None: the one in the environment.
        gzip: whether objects are compressed.
        timeout: seconds that the server may be silent; a request is tried up to four times.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        gzip: bool = False,
        timeout: float = 60.0,
    ) -> None:
        self.bucket, self.prefix, self.gzip = bucket, prefix, gzip
        self._options = {"endpoint": endpoint, "region": region}
        self._timeout = timeout
        self._lock = Lock()
        self._made: Any = None

    @property
    def url(self) -> str:
        query = urlencode({name: value for name, value in self._options.items() if value}, safe=":/")
        return f"s3://{self.bucket}{'/' if self.prefix else ''}{self.prefix}{'?' if query else ''}{query}"

    def __repr__(self) -> str:
        return f"S3Archive({self.url!r})"

    def put(self, name: str, data: bytes) -> None:
        """See `Archive`. The server checks the digest of the received data."""
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        kind = "application/gzip" if name.endswith(".gz") else "application/x-ndjson"
        try:
            self._client().put_object(
                Bucket=self.bucket, Key=self._key(name), Body=data, ChecksumSHA256=digest, ContentType=kind
            )
        except (BotoCoreError, ClientError) as error:
            raise self._failure("written", error) from error

    def get(self, name: str, *, most: int) -> bytes | None:
        """See `Archive`. The server's digest is not requested: the run's row contains it."""
        try:
            body = self._client().get_object(Bucket=self.bucket, Key=self._key(name))["Body"]
            with closing(body):
                return self._read(body, most + 1)
        except (BotoCoreError, ClientError) as error:
            if _code(error) in _GONE:
                return None
            raise self._failure("read", error) from error

    def remove(self, name: str) -> None:
        """See `Archive`."""
        try:
            self._client().delete_object(Bucket=self.bucket, Key=self._key(name))
        except (BotoCoreError, ClientError) as error:
            if _code(error) not in _GONE:
                raise self._failure("changed", error) from error

    def _read(self, body: Any, size: int) -> bytes:
        """Return the first bytes of a response, which may be long, but must not take for ever.

        Raises:
            ReadTimeoutError: the server sent fewer bytes per second than `_SLOWEST`.
        """
        latest = time.monotonic() + self._timeout + size / _SLOWEST
        found = bytearray()
        while len(found) < size:
            part = cast(bytes, body.read(min(size - len(found), _PART)))
            if not part:
                break
            found += part
            if time.monotonic() > latest:
                raise ReadTimeoutError(endpoint_url=self.url)
        return bytes(found)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def _client(self) -> Any:
        """Return the client, made by the first thread that needs it: this takes a while, and reads the environment."""
        with self._lock:
            if self._made is None:
                endpoint = self._options["endpoint"]
                config = Config(
                    connect_timeout=min(10.0, self._timeout),
                    read_timeout=self._timeout,
                    retries={"mode": "standard", "max_attempts": 4},
                    max_pool_connections=_CONNECTIONS,
                    response_checksum_validation="when_required",  # the row of the run contains the digest
                    s3={"addressing_style": "path"} if endpoint else None,
                )
                self._made = Session().client(
                    "s3", endpoint_url=endpoint, region_name=self._options["region"], config=config
                )
            return self._made

    def _failure(self, what: str, error: Exception) -> StoreError:
        code = _code(error)
        if code == "NoSuchBucket":
            return StoreError(
                f"archive {self.url}: the bucket {self.bucket!r} does not exist; create it, or name another"
            )
        if code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403"):
            return StoreError(
                f"archive {self.url}: the server refuses the keys of the environment ({code}); set AWS_ACCESS_KEY_ID "
                "and AWS_SECRET_ACCESS_KEY to some that may read and write the bucket"
            )
        if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
            return StoreError(
                f"archive {self.url}: the environment has no keys; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        return StoreUnavailable(
            f"archive {self.url} cannot be {what} ({code or type(error).__name__}); nothing was lost: try again"
        )


def _code(error: Exception) -> str:
    """Return the error code that the server sent; empty if there is none."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""

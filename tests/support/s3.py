"""An S3 server for tests: `moto`, as a process that listens on 127.0.0.1 and keeps its objects in memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.ports import free_port

KEY, SECRET = "AKIATESTKEY4711", "a-secret-that-nobody-shows-0815"
"""Whoever sees the secret in what the library shows has found a defect."""
REGION = "eu-central-1"


@dataclass(frozen=True)
class Bucket:
    """An empty bucket that one test has for itself."""

    endpoint: str
    name: str

    @property
    def url(self) -> str:
        """The URL of the archive in the bucket."""
        return f"s3://{self.name}/some/runs?endpoint={self.endpoint}&region={REGION}"

    def client(self) -> Any:
        """Return a client of boto3, for requests that the library does not make."""
        from boto3.session import Session

        return Session().client("s3", endpoint_url=self.endpoint, region_name=REGION)

    def keys(self) -> list[str]:
        """Return the keys of all objects."""
        client = self.client()
        try:
            return [one["Key"] for one in client.list_objects_v2(Bucket=self.name).get("Contents", ())]
        finally:
            client.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server that the tests of a process share."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(60)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    import socket

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the S3 server did not start")


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty bucket; its access keys are in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = Bucket(s3_server, f"bucket-{time.monotonic_ns()}")
    client = found.client()
    client.create_bucket(Bucket=found.name, CreateBucketConfiguration={"LocationConstraint": REGION})
    client.close()
    return found

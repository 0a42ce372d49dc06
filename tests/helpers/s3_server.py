"""A local S3: moto's server in a thread of the test's process, on a port of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

BUCKET = "tidelog"


class S3Server:
    """An S3 with one bucket. What it holds outlives `stop` and `start`, as the port does."""

    def __init__(self) -> None:
        self._server: object = None
        self.port = 0
        self.start()
        import boto3

        self.client = boto3.client("s3", endpoint_url=self.endpoint, **CREDENTIALS)  # pyright: ignore
        self.client.create_bucket(Bucket=BUCKET)  # pyright: ignore

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """What `archive.options` needs."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
            "allow_http": "true",
        }

    def start(self) -> None:
        """Listen, on the same port each time."""
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        server.start()
        self.port = server.get_host_and_port()[1]
        self._server = server

    def stop(self) -> None:
        """Listen no more."""
        self._server.stop()  # pyright: ignore


CREDENTIALS = {
    "aws_access_key_id": "test",
    "aws_secret_access_key": "test",
    "region_name": "us-east-1",
}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run one."""
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()

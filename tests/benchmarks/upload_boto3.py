"""Uploads a file's worth of memory with boto3, and says how long that took; see ``upload.py``."""

from __future__ import annotations

import io
import json
import resource
import sys
import time

import boto3  # type: ignore[import-not-found]
import botocore.auth  # type: ignore[import-not-found]
from boto3.s3.transfer import TransferConfig  # type: ignore[import-not-found]
from botocore.config import Config  # type: ignore[import-not-found]


def main(endpoint: str, megabytes: int, part_mb: int, threads: int) -> None:
    """Print seconds and CPU seconds, as JSON."""
    # Over https it would not hash what it sends; the store here speaks http alone.
    botocore.auth.S3SigV4Auth._should_sha256_sign_payload = lambda *_: False
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",  # noqa: S106 - of a store that asks nobody
        config=Config(
            s3={"addressing_style": "path"},
            max_pool_connections=threads,
            request_checksum_calculation="when_required",
        ),
    )
    content = io.BytesIO(bytes(megabytes << 20))
    transfer = TransferConfig(
        multipart_threshold=part_mb << 20,
        multipart_chunksize=part_mb << 20,
        max_concurrency=threads,
    )
    client.put_object(Bucket="bucket", Key="warm", Body=b"x")
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    client.upload_fileobj(content, "bucket", "object", Config=transfer)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": took, "cpu_s": cpu}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))

"""The size of the database, and its metric."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from log_changes import create, put

from kubechronicle.ops.server.collectors.storage import SizeCollector

Opener = Callable[[], Awaitable[Any]]


async def test_the_size_is_that_of_the_database(replicas: Opener, run_sql: Callable[..., str]) -> None:
    log = await replicas()
    collector = SizeCollector({"postgres": log.size})
    assert list(collector.collect()) == []
    await put(log, create("a"))
    await log.size.ask()
    (family,) = collector.collect()
    (sample,) = family.samples
    assert (sample.name, sample.labels) == ("apiserver_storage_size_bytes", {"storage_cluster_id": "postgres"})
    assert sample.value > 1_000_000

"""Fixtures: servers with encryption at rest, and a KMS plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_fixture
import pytest
from harness import Server, home, prepare, server_in

from tests.clients.encryption.plugin import Plugin


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that Postgres may enter, too."""
    with home("encryption") as directory:
        yield directory


@pytest.fixture
def plugin(place: Path) -> Iterator[Plugin]:
    prepare("kms")
    plugin = Plugin(place)
    try:
        yield plugin.start()
    finally:
        plugin.kill9()


@pytest.fixture
def postgres(place: Path) -> Iterator[str]:
    """Return the URL of a Postgres for several servers."""
    server = postgres_fixture.start(place / "postgres")
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def servers(place: Path) -> Iterator[Any]:
    """Return a function that makes a server with a configuration file, not started yet."""
    made: list[Server] = []

    def make(file: Path | None = None, *arguments: str, database_url: str = "") -> Server:
        flags = [] if file is None else ["--encryption-provider-config", str(file)]
        reload = [] if file is None else ["--encryption-provider-config-automatic-reload"]
        directory = place / f"server-{len(made)}"
        made.append(server_in(directory, database_url=database_url, arguments=[*flags, *reload, *arguments]))
        return made[-1]

    try:
        yield make
    finally:
        for server in made:
            server.close()

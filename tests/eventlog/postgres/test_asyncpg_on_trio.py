"""asyncpg under Trio with a real Postgres: every way to connect, with and without TLS; a Postgres that hangs, stops or
reads slowly; cancelled calls."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import postgres_fixture
import pytest
import trio
from certificates import CA, subject_of
from cryptography import x509
from log_changes import batch, create, open_session_of, put
from postgres_fixture import PostgresServer

from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknown, SetupError
from kubechronicle.eventlog.postgres import asyncpg_transport
from kubechronicle.eventlog.postgres import connection as driver
from kubechronicle.eventlog.postgres.asyncpg_on_trio import ConnectionLoop
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.session import ConnectionLost
from kubechronicle.eventlog.postgres_log import open_postgres_log
from kubechronicle.eventlog.records import Batch

SSL = "select ssl, client_dn from pg_stat_ssl where pid = pg_backend_pid()"
WHO = "select current_user"
WITHOUT_TIMERS: Any = {"timeout": None, "max_cached_statement_lifetime": 0}
HBA = """
local all all trust
hostssl all certified 127.0.0.1/32 cert
hostssl all tls_only 127.0.0.1/32 trust
hostnossl all plain_only 127.0.0.1/32 trust
host all secretive 127.0.0.1/32 scram-sha-256
host all postgres 127.0.0.1/32 trust
"""


class Guarded:
    """A Postgres with TLS, passwords and client certificates, and the files a client needs."""

    def __init__(self, server: PostgresServer, files: Path) -> None:
        self.server = server
        self.files = files

    def url(self, user: str = "postgres", *, host: str = "127.0.0.1", **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{user}@{host}:{self.server.port}/postgres?{query}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    if postgres_fixture.binaries() is None:
        pytest.skip("no Postgres on this machine")
    files = tmp_path_factory.mktemp("tls")
    authority, stranger = CA("an authority"), CA("another authority")
    (files / "ca.crt").write_bytes(authority.pem)
    (files / "stranger.crt").write_bytes(stranger.pem)
    names = [(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)]
    authority.files(files, "server", *subject_of("postgres"), usage=None, extensions=names)
    authority.files(files, "client", *subject_of("certified"))
    with postgres_fixture.running("fsync=off") as server:
        for role in ("certified", "tls_only", "plain_only", "secretive"):
            _psql(server, f"create role {role} login password 'open sesame'")
        data = server.directory / "data"
        server.stop()
        for name in ("ca.crt", "server.crt", "server.key"):
            (data / name).write_bytes((files / name).read_bytes())
            os.chmod(data / name, 0o600)
            os.chown(data / name, data.stat().st_uid, data.stat().st_gid)
        (data / "pg_hba.conf").write_text(HBA)
        server.settings = (*server.settings, "ssl=on", "ssl_ca_file=ca.crt")
        server.start()
        yield Guarded(server, files)


def _psql(server: PostgresServer, statement: str) -> None:
    tools = postgres_fixture.binaries()
    assert tools is not None
    postgres_fixture.run_as_postgres(server.directory, str(tools / "psql"), "-X", "-q", "-c", statement, server.url)


async def query(url: str, statement: str = SSL) -> Any:
    async with open_session(url) as session:
        return (await session.fetch(statement))[0]


# Ways to connect


@pytest.mark.parametrize(
    ("mode", "encrypted"),
    [("disable", False), ("allow", False), ("prefer", True), ("require", True)],
)
async def test_sslmode_without_verification(guarded: Guarded, mode: str, encrypted: bool) -> None:
    assert (await query(guarded.url(sslmode=mode)))["ssl"] is encrypted


async def test_tls_is_preferred_and_plain_is_the_fallback(guarded: Guarded, postgres: PostgresServer) -> None:
    assert (await query(guarded.url()))["ssl"] is True
    assert (await query(postgres.url))["ssl"] is False  # it has no TLS
    assert (await query(guarded.url("plain_only")))["ssl"] is False
    assert (await query(guarded.url("tls_only", sslmode="allow")))["ssl"] is True
    with pytest.raises(LogUnavailable, match="rejected SSL upgrade"):
        await query(f"{postgres.url}?sslmode=require")
    with pytest.raises(SetupError, match="28000"):
        await query(guarded.url("tls_only", sslmode="disable"))


async def test_the_certificate_of_the_server_is_verified(guarded: Guarded) -> None:
    ca, stranger = guarded.files / "ca.crt", guarded.files / "stranger.crt"
    assert (await query(guarded.url(sslmode="verify-ca", sslrootcert=ca)))["ssl"] is True
    assert (await query(guarded.url(host="localhost", sslmode="verify-full", sslrootcert=ca)))["ssl"] is True
    with pytest.raises(SetupError, match="the certificate of Postgres: "):
        await query(guarded.url(sslmode="verify-full", sslrootcert=ca))  # the certificate is not for 127.0.0.1
    for mode in ("require", "verify-ca"):
        with pytest.raises(SetupError, match="the certificate of Postgres: "):
            await query(guarded.url(sslmode=mode, sslrootcert=stranger))
    with pytest.raises(SetupError, match="No such file"):
        await query(guarded.url(sslmode="verify-full", sslrootcert=guarded.files / "none.crt"))


async def test_a_client_certificate(guarded: Guarded) -> None:
    pair = {"sslcert": guarded.files / "client.crt", "sslkey": guarded.files / "client.key"}
    assert (await query(guarded.url("certified", sslmode="require", **pair)))["client_dn"] == "/CN=certified"
    with pytest.raises(SetupError):
        await query(guarded.url("certified", sslmode="require"))


async def test_a_password_from_the_url_or_a_file(guarded: Guarded) -> None:
    passwords = guarded.files / "passwords"
    passwords.write_text(f"127.0.0.1:{guarded.server.port}:postgres:secretive:open sesame\n")
    passwords.chmod(0o600)
    for mode in ("disable", "require"):
        assert (await query(guarded.url("secretive:open%20sesame", sslmode=mode), WHO))[0] == "secretive"
        assert (await query(guarded.url("secretive", passfile=passwords, sslmode=mode), WHO))[0] == "secretive"
    with pytest.raises(SetupError, match="28P01"):
        await query(guarded.url("secretive:wrong"))


async def test_a_unix_socket(postgres: PostgresServer) -> None:
    assert (await query(postgres.socket_url, "select inet_server_addr()"))[0] is None
    with pytest.raises(LogUnavailable, match="No such file"):
        await query("postgresql://postgres@/postgres?host=/nonexistent")


async def test_a_vanished_server_is_detected(postgres: PostgresServer) -> None:
    loop = ConnectionLoop()  # type: ignore[abstract]
    connection: Any = await loop.perform(partial(asyncpg.connect, postgres.url, loop=loop, **WITHOUT_TIMERS))
    opened = loop.transports[0].get_extra_info("socket")
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
    loop.call(connection.terminate)


async def test_one_of_several_hosts(postgres: PostgresServer) -> None:
    unused_port = postgres_fixture.free_port()
    several = f"postgresql://postgres@127.0.0.1:{unused_port},127.0.0.1:{postgres.port}/postgres"
    assert (await query(several, "select inet_server_port()"))[0] == postgres.port
    assert (await query(f"{several}?target_session_attrs=primary", WHO))[0] == "postgres"
    with pytest.raises(LogUnavailable):
        await query(f"{several}?target_session_attrs=standby", WHO)
    with pytest.raises(LogUnavailable, match=rf"127\.0\.0\.1 port {unused_port}: .*refused"):
        await query(f"postgresql://postgres@127.0.0.1:{unused_port}/postgres")
    with pytest.raises(LogUnavailable, match="not known"):
        await query("postgresql://postgres@no.such.host.invalid/postgres")


async def test_a_silent_host_leaves_time_for_the_next(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncpg_transport, "TCP_TIMEOUT", 0.3)
    with socket.socket() as mute, socket.socket() as first, socket.socket() as second:
        mute.bind(("127.0.0.1", 0))
        mute.listen(0)
        for filling in (first, second):  # later connections are not even rejected
            filling.setblocking(False)
            filling.connect_ex(mute.getsockname())
        port = mute.getsockname()[1]
        several = f"postgresql://postgres@127.0.0.1:{port},127.0.0.1:{postgres.port}/postgres"
        assert (await query(several, "select inet_server_port()"))[0] == postgres.port
        with pytest.raises(LogUnavailable, match=rf"127\.0\.0\.1 port {port}: no answer"):
            await query(f"postgresql://postgres@127.0.0.1:{port}/postgres")


@pytest.mark.parametrize("size", [1, 15_000, 16_384, 70_000, 5_000_000])
async def test_messages_of_all_sizes_both_ways(guarded: Guarded, size: int) -> None:
    for mode in ("disable", "require"):
        async with open_session(guarded.url(sslmode=mode)) as session:
            text = "ü" * size
            assert (await session.fetch("select $1::text", text))[0][0] == text
            assert (await session.fetch("select length($1::text)", text))[0][0] == size
            assert (await session.fetch("select repeat('x', $1::int)", size))[0][0] == "x" * size


# A Postgres that does not answer


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def test_connecting_is_bounded(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    assert guarded.server.process is not None
    # The kernel accepts, Postgres does not answer.
    with monkeypatch.context() as patched, stopped(guarded.server.process.pid):
        patched.setattr(driver, "CONNECT_TIMEOUT", 0.2)
        for mode in ("disable", "require"):
            with pytest.raises(ConnectionLost, match="within"):
                await query(guarded.url(sslmode=mode))
        with trio.move_on_after(0.1) as scope:
            await query(guarded.url())
        assert scope.cancelled_caught
    assert (await query(guarded.url(), WHO))[0] == "postgres"


async def test_a_cancelled_read_ends_its_connection_at_once(postgres: PostgresServer) -> None:
    async with open_session(postgres.url) as session:
        with stopped(session.backend_pid):
            with trio.move_on_after(0.05) as scope:
                await session.fetch("select 1")
            assert scope.cancelled_caught
            assert session.closed
        with pytest.raises(ConnectionLost):
            await session.fetch("select 1")


async def test_an_uninterrupted_fetch_is_bounded(postgres: PostgresServer) -> None:
    async with open_session(postgres.url) as session, open_session(postgres.url) as other:
        with stopped(session.backend_pid):
            with pytest.raises(ConnectionLost, match=r"within 0\.05 s"):
                await session.fetch_uninterrupted("select 1", bound=0.05, grace=5)
            assert session.closed
        with trio.move_on_after(0.05) as scope:  # cancelled, it still waits for its answer
            await other.fetch_uninterrupted("select pg_sleep(0.2)", bound=5, grace=5)
        assert scope.cancelled_caught
        assert not other.closed
        assert (await other.fetch("select 2"))[0][0] == 2
        with stopped(other.backend_pid), trio.move_on_after(0.05):
            await other.fetch_uninterrupted("select 1", bound=5, grace=0.05)
        assert other.closed


async def test_a_batch_larger_than_the_socket_takes(database: str) -> None:
    body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"large"},"spec":"%s"}' % (b"x" * 12_000_000)
    async with open_postgres_log(database, instance="test") as log:
        await put(log, create("before"))
        with stopped(log._appending.backend_pid):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(put, log, create("large", body=body))
                loop = log._appending._loop
                while not loop.transports[-1].unsent:
                    await trio.lowlevel.checkpoint()
                assert (await log.head()).revision == 1  # other queries are not delayed by it
                os.kill(log._appending.backend_pid, signal.SIGCONT)
        (found,) = await log.read(after=1, limit=5)
        assert found.body == body


@pytest.mark.parametrize("how", ["terminated", "cancelled"])
async def test_a_connection_lost_with_half_a_batch_sent(database: str, how: str) -> None:
    large = batch(create("large", body=b'"%s"' % (b"x" * 12_000_000)))
    raised: list[Exception] = []

    async def append(log: Any, ours: Batch) -> None:
        try:
            await log.append(ours)
        except OutcomeUnknown as unknown:
            raised.append(unknown)

    async with open_postgres_log(database, instance="test") as log:
        await put(log, create("before"))
        session = log._appending
        with stopped(session.backend_pid):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(append, log, large)
                while not session._loop.transports[-1].unsent:
                    await trio.lowlevel.checkpoint()
                async with open_session_of(log) as other:
                    await other.fetch("select pg_terminate_backend($1)", session.backend_pid)
                if how == "cancelled":
                    session.terminate()
                os.kill(session.backend_pid, signal.SIGCONT)
        assert len(raised) == 1
        assert session.closed
        assert await log.settle(large) is None
        assert (await log.head()).revision == 1


async def test_a_shutdown_message_is_read_before_a_statement_is_sent(postgres: PostgresServer) -> None:
    async with open_session(postgres.url) as session, open_session(postgres.socket_url) as killer:
        await killer.fetch("select pg_terminate_backend($1, 5000)", session.backend_pid)
        with pytest.raises(ConnectionLost, match="closed"):
            await session.fetch("select 1")
        assert session.closed


async def test_a_connection_lost_while_a_query_is_under_way(postgres: PostgresServer) -> None:
    async with (
        open_session(postgres.url) as session,
        open_session(postgres.url) as killer,
        trio.open_nursery() as nursery,
    ):

        async def run_query() -> None:
            with pytest.raises(ConnectionLost, match="terminating connection due to administrator command"):
                await session.fetch("select pg_sleep(30)")

        nursery.start_soon(run_query)
        sleeping = "select pid from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'"
        while not await killer.fetch(sleeping, session.backend_pid):
            pass
        await killer.fetch("select pg_terminate_backend($1)", session.backend_pid)

"""Outside witnesses: tokens of a real time-stamping server, the proof by its authority alone, and tamperings."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import pytest
import trio
from rfc3161_client import TimestampRequestBuilder
from witnesses.time_stamping import TimeStampingService, make_authority, reply, time_stamping_service

from kubechronicle.eventlog.integrity.checkpoints import parse_statement
from kubechronicle.eventlog.integrity.digests import COLUMNS
from kubechronicle.eventlog.integrity.witnesses import name_of
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops import cli
from kubechronicle.ops.exit_codes import MISTAKE

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

LOG: Final = "kubechronicle.log"
HASHED: Final = (
    f"update {LOG} set digest = sha256(record_send(row({', '.join(COLUMNS[:-2])}))) where cause = 0 and reason = ''",
    "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
    " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
    " as hash from kubechronicle.log) c where c.revision = l.revision",
    "update kubechronicle.head set hash = (select hash from kubechronicle.log order by revision desc limit 1)",
)
"""Make digests and hashes fit edited rows, as somebody with write access can."""
TOKENS: Final = f"{LOG} where resource = 'witnesses.history.kubechronicle.dev'"
SHORTENED: Final = (
    f"delete from {LOG} where revision > 3; delete from kubechronicle.live where revision > 3;"
    " delete from kubechronicle.batches where head > 3; update kubechronicle.head set revision = 3,"
    f" hash = (select hash from {LOG} where revision = 3)"
)
UNCHAINED: Final = "history up to here does not match the noted hash"
UNPROVED: Final = "is not proved by these certificates"
STATEMENT: Final = "object #>> '{spec,statement}'"


def spec(field: str, value: str) -> str:
    """Return the statement that sets a field of the recorded tokens to an expression."""
    path = f"set object = jsonb_set(object::jsonb, '{{spec,{field}}}', to_jsonb({value}))::json"
    return f"update {LOG} {path} where resource = 'witnesses.history.kubechronicle.dev'"


TAMPERINGS: Final = {
    "a rewritten log": ((f"update {LOG} set user_name = 'bob' where revision = 2", *HASHED), UNCHAINED),
    "a rewritten log with a new id": (
        (
            f"update {LOG} set user_name = 'bob' where revision = 2",
            "update kubechronicle.head set log_id = gen_random_uuid()",
            *HASHED,
        ),
        "it was recreated, or belongs to another server",
    ),
    "removed tokens": (
        (f"delete from {TOKENS}", "delete from kubechronicle.live where name like '127%'", SHORTENED, *HASHED),
        "the log has no token of an outside witness",
    ),
    "a statement of another state": (
        (spec("statement", f"replace({STATEMENT}, 'revision: 3', 'revision: 2')"), *HASHED),
        UNPROVED,
    ),
    "a statement of another hash": (
        (spec("statement", f"regexp_replace({STATEMENT}, 'hash: ..', 'hash: 00')"), *HASHED),
        UNPROVED,
    ),
    "a statement of other marks": (
        (spec("statement", f"replace({STATEMENT}, '*=0', '*=1')"), *HASHED),
        UNPROVED,
    ),
    "a statement that is none": ((spec("statement", "'x'::text"), *HASHED), UNPROVED),
    "a token that is none": ((spec("token", "'eA=='::text"), *HASHED), UNPROVED),
    "a damaged token": ((spec("token", "'?'::text"), *HASHED), "is damaged"),
    "a hidden move of marks": (
        (
            "update kubechronicle.state set compacted_long = 2",
            "delete from kubechronicle.mark_moves",
        ),
        "the marks are *=2, but no move is recorded",
    ),
    "an edited token without hashes": (
        (spec("service", "'https://other'::text"),),
        "its content does not have its digest",
    ),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tsa")


@pytest.fixture(scope="module")
def service(directory: Path) -> Iterator[TimeStampingService]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    with time_stamping_service(directory) as found:
        yield found


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function: ``await command("verify", …)`` returns the exit code and all output."""

    async def run(*arguments: str) -> tuple[int, str]:
        where = ["--database-url", database, "--data-dir", str(tmp_path)]
        code = await trio.to_thread.run_sync(cli.main, [*arguments, *where])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


async def write(log: Any, *names: str) -> None:
    for name in names:
        body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}'
        change = Change(key=Key("pods", "ns", name), uid="u", expected=0, operation=Operation.CREATE, body=body)
        await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="a")),)))


@pytest.fixture
async def witnessed(replicas: Opener, command: Command, service: TimeStampingService, tmp_path: Path) -> Any:
    """Write 3 changes, a token in the log and in the directory ``tokens``, and two more changes. Return the log."""
    log = await replicas()
    await write(log, "a", "b", "c")
    code, output = await command("witness", "--witness", service.url, "-o", str(tmp_path / "tokens"))
    assert code == 0, output
    assert f"{service.url} signed revision 3, hash " in output
    await write(log, "d", "e")
    return log


async def test_an_untouched_log_is_proved_by_the_authority_alone(
    witnessed: Any, command: Command, service: TimeStampingService
) -> None:
    code, output = await command("verify", "--witness", str(service.ca))
    assert code == 0, output
    assert f"witnessed by {service.url}: 1 token, of revision 3 at 20" in output
    assert "up to revision 3 at 20" in output
    assert "3 later revisions not witnessed yet" in output
    assert (await command("witness", "--witness", service.url))[0] == 0
    code, output = await command("verify", "--witness", str(service.ca), "--witnessed-within", "1h")
    assert (code, f"{service.url}: 2 tokens, of revision 3" in output) == (0, True), output
    assert "1 later revision not witnessed yet" in output


async def test_openssl_alone_verifies_the_copies(
    witnessed: Any, service: TimeStampingService, tmp_path: Path, directory: Path
) -> None:
    statement, answer = sorted((tmp_path / "tokens").iterdir(), reverse=True)
    assert statement.name == f"000000000003-{name_of(service.url)}.txt"
    verify = ["openssl", "ts", "-verify", "-data", statement, "-in", answer, "-CAfile", service.ca]
    done = await trio.run_process([*map(str, verify)], capture_stdout=True, capture_stderr=True)
    assert b"Verification: OK" in done.stdout + done.stderr
    assert parse_statement(statement.read_text()).revision == 3


@pytest.mark.parametrize(("statements", "message"), TAMPERINGS.values(), ids=TAMPERINGS.keys())
async def test_a_tampering_is_named(
    witnessed: Any,
    command: Command,
    run_sql: RunSql,
    service: TimeStampingService,
    statements: tuple[str, ...],
    message: str,
) -> None:
    run_sql(*statements)
    code, output = await command("verify", "--witness", str(service.ca))
    assert code == 1, output
    assert message in output


async def test_an_older_state_put_back_is_named_by_copies_and_by_age(
    witnessed: Any, command: Command, run_sql: RunSql, service: TimeStampingService, tmp_path: Path
) -> None:
    """A consistent older log has tokens that prove it: copies of later ones, or the age of the newest, tell."""
    await command("witness", "--witness", service.url, "-o", str(tmp_path / "tokens"))
    run_sql(
        f"delete from {LOG} where revision > 4; delete from kubechronicle.live where revision > 4;"
        f" insert into kubechronicle.live select resource, namespace, name, revision, create_revision, version"
        f" from {TOKENS} on conflict do nothing; delete from kubechronicle.batches where head > 4;"
        f" update kubechronicle.head set revision = 4, hash = (select hash from {LOG} where revision = 4)"
    )
    assert (await command("verify", "--witness", str(service.ca)))[0] == 0
    code, output = await command("verify", "--witness", str(service.ca), "--witness-tokens", str(tmp_path / "tokens"))
    assert (code, "history ends before revision 6, whose hash was noted" in output) == (1, True), output
    code, output = await command("verify", "--witness", str(service.ca), "--witnessed-within", "0.001s")
    assert (code, "the newest token of an outside witness is of 20" in output) == (1, True), output


async def test_a_token_of_another_authority_proves_nothing(
    witnessed: Any, command: Command, run_sql: RunSql, service: TimeStampingService, tmp_path: Path
) -> None:
    """An intruder with a time-stamping service of his own rewrites the log, and has it signed."""
    other = tmp_path / "other"
    make_authority(other)
    forged = base64.b64encode(reply(other, service.requests[-1])).decode()
    run_sql(spec("token", f"'{forged}'::text"), *HASHED)
    code, output = await command("verify", "--witness", str(service.ca))
    assert (code, UNPROVED in output) == (1, True), output


async def test_a_later_token_for_an_earlier_state_is_named(
    witnessed: Any, command: Command, run_sql: RunSql, service: TimeStampingService, directory: Path, tmp_path: Path
) -> None:
    """An intruder rewrites the past, and has each former state signed now, as if it had been the newest."""
    statement = (tmp_path / "tokens" / f"000000000003-{name_of(service.url)}.txt").read_text()
    run_sql(f"update {LOG} set committed_at = committed_at - interval '1 day'", *HASHED)
    state = run_sql(f"select encode(hash, 'hex') from {LOG} where revision = 3")
    changed = "\n".join(f"hash: {state}" if line.startswith("hash: ") else line for line in statement.splitlines())
    query = TimestampRequestBuilder().data(f"{changed}\n".encode()).build().as_bytes()
    token = base64.b64encode(reply(directory, query)).decode()
    run_sql(
        spec("token", f"'{token}'::text"),
        spec("statement", f"'{changed}' || chr(10)"),
        *HASHED,
    )
    code, output = await command("verify", "--witness", str(service.ca))
    assert (code, "as the newest one, but the next one is of" in output) == (1, True), output


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(503, b"")], "answered 503"),
        ([(200, b"<html>")], "gave no token that can be read"),
        ([(200, bytes.fromhex("30123010020102300b0c09666f7267 6f7474656e".replace(" ", "")))], "gave no token"),
    ],
    ids=["unavailable", "no message", "a refusal"],
)
async def test_a_service_without_a_token_is_named(
    replicas: Opener,
    command: Command,
    service: TimeStampingService,
    answers: list[tuple[int, bytes]],
    message: str,
) -> None:
    await write(await replicas(), "a")
    service.broken[:] = answers
    code, output = await command("witness", "--witness", service.url)
    assert (code, message in output) == (1, True), output
    assert "signed revision" not in output


async def test_the_answer_to_another_request_is_refused(
    replicas: Opener, command: Command, service: TimeStampingService
) -> None:
    log = await replicas()
    await write(log, "a")
    assert (await command("witness", "--witness", service.url))[0] == 0
    service.broken[:] = [(200, service.answers[-1])]
    code, output = await command("witness", "--witness", service.url)
    assert (code, "gave a token for another request" in output) == (1, True), output


async def test_a_backup_is_proved_by_its_tokens(
    witnessed: Any, command: Command, service: TimeStampingService, tmp_path: Path
) -> None:
    file = tmp_path / "log.backup.gz"
    assert (await command("backup", "-o", str(file)))[0] == 0
    code, output = await command("verify", "--backup", str(file), "--witness", str(service.ca))
    assert (code, f"witnessed by {service.url}: 1 token, of revision 3" in output) == (0, True), output


async def test_a_mistake_is_one_line(replicas: Opener, command: Command, tmp_path: Path) -> None:
    await write(await replicas(), "a")
    none = tmp_path / "none.pem"
    none.write_text("x")
    for arguments, message in (
        (["witness"], "--witness: name a time-stamping service"),
        (["witness", "--witness", "ftp://x"], "must begin with https:// or http://"),
        (["verify", "--witness", str(none)], "has no certificates (PEM)"),
        (["verify", "--witness", str(tmp_path / "gone")], "cannot read"),
        (["verify", "--witnessed-within", "1h"], "name the certificates of the services with --witness"),
    ):
        code, output = await command(*arguments)
        assert (code, message in output) == (MISTAKE, True), output


async def test_servers_that_share_a_database_share_an_hourly_token(
    replicas: Opener, service: TimeStampingService, run_sql: RunSql
) -> None:
    from datetime import timedelta

    from kubechronicle.http.outgoing.client import Outgoing
    from kubechronicle.ops.server.witnessing import Witness, WitnessCollector, witnesses_of

    log = await replicas()
    await write(log, "a")
    async with trio.open_nursery() as nursery:
        outgoing = Outgoing()
        await nursery.start(outgoing.run)
        one, two = (Witness(each, log, "postgres") for each in services(service.url, service.url, outgoing=outgoing))
        asked = len(service.requests)
        assert timedelta(minutes=59).total_seconds() < await one._renew() <= 3600
        assert 3500 < await two._renew() <= 3600
        assert len(service.requests) == asked + 1
        run_sql(f"update {LOG} set committed_at = committed_at - interval '1 hour' where resource like 'witnesses%'")
        await two._renew()
        assert len(service.requests) == asked + 2
        service.broken[:] = [(500, b"")]
        run_sql(f"update {LOG} set committed_at = committed_at - interval '1 hour' where resource like 'witnesses%'")
        assert await two._renew() == 300.0
        ages, failures = WitnessCollector([one, two]).collect()
        assert [sample.value for sample in failures.samples if sample.name.endswith("_total")] == [0, 1]
        assert all(sample.value < 60 for sample in ages.samples)
        nursery.cancel_scope.cancel()
    assert not witnesses_of.__defaults__


def services(*urls: str, outgoing: Any) -> list[Any]:
    from kubechronicle.ops.server.outside.time_stamping import services_of

    return services_of(urls, outgoing)


def test_names_of_services() -> None:
    assert name_of("https://TSA.example.com/tsr/") == "tsa.example.com-tsr"
    assert name_of("http://127.0.0.1:80/a b") == "127.0.0.1-80-a-b"
    assert orjson.dumps(name_of("http://x/" + "a" * 300)).count(b"a") < 201

"""Checkpoints: their proof, verification by openssl alone, and every way to forge one."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from kubechronicle.eventlog.integrity.checkpoints import Checkpoint, parse
from kubechronicle.eventlog.integrity.digests import COLUMNS
from kubechronicle.eventlog.records import Batch, Change, Head, Key, Operation, Transaction, Who
from kubechronicle.ops import cli
from kubechronicle.ops.exit_codes import MISTAKE

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]
Command = Callable[..., Awaitable[tuple[int, str]]]

REWRITE = (
    "update kubechronicle.log set user_name = 'mallory' where revision = 2",
    f"update kubechronicle.log set digest = sha256(record_send(row({', '.join(COLUMNS[:-2])})))",
    "update kubechronicle.log l set hash = c.hash from (select revision, kubechronicle.chain((select"
    " sha256(uuid_send(log_id)) from kubechronicle.head), digest) over (order by revision rows unbounded preceding)"
    " as hash from kubechronicle.log) c where c.revision = l.revision",
    "update kubechronicle.head set hash = (select hash from kubechronicle.log order by revision desc limit 1)",
)


async def write(log: Any, *names: str) -> None:
    for name in names:
        body = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}'
        change = Change(key=Key("pods", "ns", name), uid="u", expected=0, operation=Operation.CREATE, body=body)
        await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="a")),)))


def text_of(file: str) -> str:
    return Path(file).read_text()


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function: ``await command("verify", …)`` returns the exit code and all output."""

    async def run(*arguments: str) -> tuple[int, str]:
        where = ["--database-url", database, "--data-dir", str(tmp_path)]
        code = await trio.to_thread.run_sync(cli.main, [*arguments, *where])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


@pytest.fixture
async def noted(replicas: Opener, command: Command, tmp_path: Path) -> str:
    """Write a checkpoint at revision 3, then two more changes; return the path of the checkpoint."""
    log = await replicas()
    await write(log, "a", "b", "c")
    file = tmp_path / "noted.checkpoint"
    code, output = await command("checkpoint", "-o", str(file))
    assert code == 0
    assert output.startswith("-----BEGIN PUBLIC KEY-----")
    await write(log, "d", "e")
    return str(file)


async def test_an_untouched_log_matches_its_checkpoint(noted: str, command: Command, tmp_path: Path) -> None:
    code, output = await command("verify", "--checkpoint", noted)
    assert (code, "up to revision 3 history is as it was at 20" in output) == (0, True)
    key = tmp_path / "pki" / "checkpoint.key"
    assert key.stat().st_mode & 0o777 == 0o600
    code, printed = await command("checkpoint", "--key", str(key))
    assert printed.splitlines()[:3:2] == ["kubechronicle checkpoint v3", "revision: 5"]
    later = tmp_path / "later"
    later.write_text(printed)  # with the key
    assert (await command("verify", "--checkpoint", noted, "--checkpoint", str(later)))[0] == 0


async def test_the_key_goes_to_standard_output(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["checkpoint", "-o", str(tmp_path / "c"), "--database-url", database, "--data-dir", str(tmp_path)]
    assert await trio.to_thread.run_sync(cli.main, arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("-----BEGIN PUBLIC KEY-----")
    assert "PUBLIC KEY" not in printed.err


async def test_openssl_alone_verifies_the_signature(noted: str, command: Command, tmp_path: Path) -> None:
    _, printed = await command("checkpoint")
    public = tmp_path / "public.pem"
    public.write_text(printed[printed.index("-----BEGIN") :])
    split = f"head -n 11 {noted} > signed; sed -n 's/^signature: //p' {noted} | openssl base64 -d -A > signature"
    verify = f"openssl pkeyutl -verify -pubin -inkey {public} -rawin -in signed -sigfile signature"
    done = await trio.run_process(["sh", "-c", f"{split}; {verify}"], cwd=tmp_path, capture_stdout=True, check=False)
    assert b"Signature Verified Successfully" in done.stdout


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (REWRITE, "revision 3: history up to here does not match the noted hash"),
        (
            ("update kubechronicle.head set log_id = gen_random_uuid()", *REWRITE),
            "it was recreated, or belongs to another server",
        ),
        (
            (
                "delete from kubechronicle.log where revision > 2",
                "delete from kubechronicle.live where revision > 2",
                "update kubechronicle.head set revision = 2, hash = (select hash from kubechronicle.log"
                " where revision = 2)",
            ),
            "revision 3: history ends before revision 3, whose hash was noted",
        ),
    ],
)
async def test_a_recreated_log_is_detected(
    noted: str, command: Command, run_sql: RunSql, edits: tuple[str, ...], message: str
) -> None:
    run_sql(*edits)
    assert (await command("verify"))[0] == 0  # without the checkpoint it is consistent
    code, output = await command("verify", "--checkpoint", noted)
    assert code == 1
    assert message in output


async def test_a_forged_checkpoint_is_detected(noted: str, command: Command, tmp_path: Path) -> None:
    text = text_of(noted)
    forged = tmp_path / "forged"
    forged.write_text(text.replace("revision: 3", "revision: 2"))
    assert await command("verify", "--checkpoint", str(forged)) == (
        1,
        f"{forged} was changed since it was signed: the signature does not fit\n",
    )
    (tmp_path / "pki" / "checkpoint.key").unlink()
    code, output = await command("verify", "--checkpoint", noted)
    assert (code, "name the public key with --key" in output) == (MISTAKE, True)
    await command("checkpoint")  # makes another key
    code, output = await command("verify", "--checkpoint", noted)
    assert (code, "is signed with another key than this one" in output) == (1, True)


async def test_mistakes(noted: str, command: Command, tmp_path: Path) -> None:
    for text in ("", "x" * 9999, "\xff", text_of(noted) + "more", text_of(noted).replace("-", "x")):
        file = tmp_path / "mistake"
        file.write_text(text)
        code, output = await command("verify", "--checkpoint", str(file))
        assert (code, "is no checkpoint" in output, output.count("\n")) == (MISTAKE, True, 1)
    for arguments in (
        ("verify", "--checkpoint", "/none"),
        ("verify", "--checkpoint", noted, "--key", "/none"),
        ("verify", "--checkpoint", noted, "--key", __file__),
        ("checkpoint", "--key", __file__),
        ("checkpoint", "-o", "/none/x"),
    ):
        code, output = await command(*arguments)
        assert (code, output.count("\n")) == (MISTAKE, 1)


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    checkpoint = Checkpoint(
        log_id=UUID(int=7),
        revision=0,
        hash=bytes(32),
        committed_at=datetime(1970, 1, 1, tzinfo=UTC),
        noted_at=datetime(2026, 3, 2, 14, 0, 0, 12, tzinfo=UTC),
        key=bytes(range(32)),
        marks=Head(revision=0, compacted=3, compacted_of={"events": 7, "leases.coordination.k8s.io": 0}),
        confidential=("secrets", "vaults.example.com"),
        moves=(17, bytes(range(32))),
        short=("events", "leases.coordination.k8s.io"),
    )
    signature = base64.b64encode(bytes(64)).decode()
    text = checkpoint.signed_text()
    assert parse(f"{text}signature: {signature}\n") == (checkpoint, text, signature)
    second = re.sub("moves: .*\nshort: .*\n", "", text.replace("checkpoint v3", "checkpoint v2"))
    before, signed, _ = parse(f"{second}signature: {signature}\n")
    assert (before.marks, before.moves, before.short, signed) == (checkpoint.marks, None, None, second)
    former = re.sub("marks: .*\nconfidential: .*\n", "", second.replace("checkpoint v2", "checkpoint v1"))
    earlier, signed, _ = parse(f"{former}signature: {signature}\n")
    assert (earlier.revision, earlier.marks, signed) == (0, None, former)
    for wrong in (
        text,
        former.replace("v1", "v2"),
        second.replace("v2", "v3"),
        text.replace("1970-01", "1970-13") + f"signature: {signature}\n",
    ):
        with pytest.raises(ValueError, match="is no checkpoint"):
            parse(wrong)

"""Legal holds: neither retention nor erasure takes what they cover, and the log records them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio

from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
Command = Callable[..., Awaitable[tuple[int, str]]]


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function: ``await command("hold", …)`` returns the exit code and all output."""

    async def run(*arguments: str) -> tuple[int, str]:
        where = ["--database-url", database, "--data-dir", str(tmp_path)]
        code = await trio.to_thread.run_sync(cli.main, [*arguments, *where])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


@pytest.fixture
async def log(replicas: Opener) -> Any:
    """Return a log of six revisions: ConfigMaps and Secrets, of which each is updated once, by two users."""
    log = await replicas()
    for operation, expected in ((Operation.CREATE, 0), (Operation.UPDATE, 1)):
        for place, (resource, user) in enumerate((("configmaps", "jane"), ("secrets", "jane"), ("pods", "bob")), 1):
            body = b'{"apiVersion":"v1","kind":"X","metadata":{"name":"a","namespace":"shop"}}'
            key = Key(resource, "shop", "a")
            change = Change(key=key, uid=resource, expected=expected and place, operation=operation, body=body)
            transaction = Transaction(changes=(change,), who=Who(user=user, verb="create"))
            await log.append(Batch(id=uuid4(), transactions=(transaction,)))
    return log


async def test_retention_keeps_what_a_hold_covers(log: Any, command: Command) -> None:
    created = await command("hold", "create", "case-7", "--resource", "secrets", "-n", "shop", "--reason", "case 7")
    assert created[0] == 0, created[1]
    assert "case-7: secrets in namespace shop, recorded by revision 7, by " in created[1]
    head = await log.compact(5)
    assert (head.compacted, dict(head.compacted_of)) == (5, {"secrets": 0})
    assert (await command("verify"))[0] == 0
    assert (await command("hold", "release", "case-7", "--reason", "closed"))[0] == 0
    assert (await command("hold", "list")) == (0, "")
    head = await log.compact(6)
    assert head.compacted_for("secrets") == 6
    code, output = await command("verify")
    assert (code, "marks: moved 2 times" in output) == (0, True), output


async def test_a_hold_of_everything_stops_retention(log: Any, command: Command) -> None:
    await command("hold", "create", "all", "--resource", "*", "--reason", "court")
    assert (await log.compact(5)).compacted == 0


@pytest.mark.parametrize("what", [("secret/a", "-n", "shop"), ("--user", "jane")])
async def test_an_erasure_is_refused(log: Any, command: Command, what: tuple[str, ...]) -> None:
    await command("hold", "create", "case-7", "--resource", "secrets", "--reason", "case 7")
    code, output = await command("erase", *what, "--reason", "asked for", "--yes", "--before", "5")
    assert (code, "the legal hold case-7 covers it (case 7)" in output) == (2, True), output
    assert (await command("erase", "--user", "bob", "--reason", "asked for", "--yes"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", "A", "--resource", "pods", "--reason", "x"), "is no name of a hold"),
        (("create", "a", "--resource", "Pods!", "--reason", "x"), "--resource: 'Pods!' is none"),
        (("create", "a", "--resource", "pods", "--reason", " "), "--reason: must not be empty"),
        (("release", "a", "--reason", "x"), "there is no hold a in force"),
    ],
)
async def test_mistakes(log: Any, command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, output = await command("hold", *arguments)
    assert (code, message in output) == (2, True), output

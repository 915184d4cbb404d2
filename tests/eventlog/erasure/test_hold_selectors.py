"""Legal holds with a label selector: they cover objects that match, once matched, or match later, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
import trio
from erasing_shop import Command, Opener, RunSql

from kubechronicle.eventlog.erasure import holds
from kubechronicle.eventlog.erasure.eraser import Eraser
from kubechronicle.eventlog.erasure.holds import UnderLegalHold
from kubechronicle.eventlog.erasure.plan import ErasureAuthor, ErasureRequest
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops.maintenance.hold import matcher_of

SPAN = 5  # revisions of a partition
CASE = ("hold", "create", "case-7", "--reason", "case 7")
TILL = {"app": "till"}


class Pods:
    """A log of pods. ``change`` creates, updates and, with None for the labels, deletes."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self._revisions: dict[Key, int] = {}

    async def change(
        self, name: str, labels: Mapping[str, str] | None, *, user: str = "jane", resource: str = "pods", body: str = ""
    ) -> int:
        key = Key(resource, "shop", name)
        expected = self._revisions.get(key, 0)
        operation = Operation.DELETE if labels is None else Operation.UPDATE if expected else Operation.CREATE
        metadata = {"name": name, "namespace": "shop", "labels": labels or {}}
        text = body or orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}).decode()
        change = Change(key=key, uid=name, expected=expected, operation=operation, body=text.encode())
        transaction = Transaction(changes=(change,), who=Who(user=user, verb="update"))
        head = (await self.log.append(Batch(id=uuid4(), transactions=(transaction,)))).head
        self._revisions[key] = 0 if labels is None else head
        return int(head)


@pytest.fixture
async def pods(replicas: Opener, run_sql: RunSql) -> Pods:
    """Return pods in partitions of SPAN revisions: ``now`` matches app=till, ``once`` did, ``never`` did not."""
    run_sql(
        "alter table kubechronicle.log_long detach partition kubechronicle.log_long_1",
        "drop table kubechronicle.log_long_1",
        f"update kubechronicle.retention_classes set span = {SPAN}, partitioned_until = 1 where class = 'long'",
        "select kubechronicle.make_partition('long')",
    )
    pods = Pods(await replicas())
    await pods.change("once", TILL, user="mary")
    await pods.change("now", {}, user="jane")
    await pods.change("never", {"app": "web"}, user="bob")
    await pods.change("once", {}, user="mary")
    await pods.change("now", TILL, user="jane")
    await pods.change("never", {}, user="bob")
    return pods


async def erased(command: Command, what: str, *more: str) -> str:
    """Return "held", or "erased", for an erasure of a pod, or of a user."""
    subject = ("--user", what[1:]) if what.startswith("@") else (f"pod/{what}", "-n", "shop")
    code, output = await command("erase", *subject, "--reason", "asked for", "--yes", *more)
    if code == 2:
        assert "nothing was erased: the legal hold case-7 covers it (case 7)" in output, output
        return "held"
    assert code == 0, output
    return "erased"


async def test_erasure_by_selector(pods: Pods, command: Command) -> None:
    code, output = await command(*CASE, "--selector", "app in (till)")
    assert code == 0, output
    assert "case-7: all objects that ever match app in (till), recorded by revision 7, by " in output
    assert (await command("hold", "list"))[1] == output
    await pods.change("later", {})
    await pods.change("later", TILL, user="ann")
    for name in ("now", "once", "never", "later"):
        await pods.change(name, None, user="root")
    found = {what: await erased(command, what) for what in ("now", "once", "later", "@jane", "@mary", "@ann", "@root")}
    assert set(found.values()) == {"held"}, found
    assert await erased(command, "once", "--revisions", "4") == "held"  # a revision without the label
    assert [await erased(command, what) for what in ("never", "@bob")] == ["erased", "erased"]
    assert (await command("verify"))[0] == 0
    assert (await command("hold", "release", "case-7", "--reason", "closed"))[:1] == (0,)
    assert await erased(command, "once") == "erased"
    assert (await command("verify"))[0] == 0


async def test_a_selector_beside_other_conditions(pods: Pods, command: Command) -> None:
    await command(*CASE, "--resource", "pods", "-n", "shop", "--name", "now", "-l", "app=till")
    for name in ("now", "once"):
        await pods.change(name, None, user="root")
    assert [await erased(command, what) for what in ("now", "once", "@mary")] == ["held", "erased", "erased"]


@pytest.mark.parametrize("resource", ["", "pods"])
async def test_retention_by_selector(pods: Pods, command: Command, run_sql: RunSql, resource: str) -> None:
    """The marks of all resources that may match stay, and so do all partitions with them."""
    count = "select count(*) from kubechronicle.log where resource = 'pods'"
    await command(*CASE, "-l", "app=till", *(("--resource", resource) if resource else ()))
    await pods.change("other", {}, resource="configmaps")
    await pods.change("later", {})
    await pods.change("later", TILL)
    head = await pods.log.compact(10)
    assert head.compacted_for("pods") == 0
    assert head.compacted_for("configmaps") == (10 if resource else 0)
    assert run_sql(count).strip() == "8"
    assert (await command("verify"))[0] == 0
    await command("hold", "release", "case-7", "--reason", "closed")
    assert (await pods.log.compact(10)).compacted_for("pods") == 10
    assert int(run_sql(count)) < 8
    assert (await command("verify"))[0] == 0


async def test_rows_copied_forward_and_archives_are_covered(pods: Pods, command: Command, tmp_path: Path) -> None:
    """History that retention took before the hold is looked at in the table of kept rows and in archives."""
    where = ("--history-archive", str(tmp_path))
    for name in ("now", "once", "never"):
        await pods.change(name, None, user="root")
    await pods.change("idle", TILL, user="ann")
    for _ in range(3):
        await pods.change("more", {}, user="bob")
    await pods.log.compact(11, archive=tmp_path)
    await command(*CASE, "-l", "app=till")
    found = {what: await erased(command, what, *where) for what in ("now", "once", "@jane", "@mary")}
    assert set(found.values()) == {"held"}, found
    assert await erased(command, "@ann", *where) == "held"
    for what in ("pod/never", "-n", "shop"), ("--user", "bob"):
        code, output = await command("erase", *what, "--reason", "asked for", "--yes")
        assert (code, "archives may show that the legal hold case-7 covers it" in output) == (2, True), output
    assert [await erased(command, what, *where) for what in ("never", "@bob")] == ["erased", "erased"]
    assert (await command("verify", "--archive", str(tmp_path)))[0] == 0


async def test_what_cannot_be_judged_is_covered(pods: Pods, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    await command(*CASE, "-l", "app=till")
    await pods.change("sealed", {}, body='{"encrypted":"aescbc:key1","data":"AAAA"}')
    assert await erased(command, "sealed", "--before", "0s") == "held"
    for name in ("many", "many"):
        await pods.change(name, {"of": "a"}, user="zoe")
    await pods.change("many", {"of": "b"}, user="zoe")
    monkeypatch.setattr(holds, "MOST", 1)
    assert await erased(command, "@zoe") == "held"
    monkeypatch.undo()
    assert await erased(command, "@zoe") == "erased"


async def test_a_hold_that_begins_after_the_plan_stops_the_erasure(pods: Pods, command: Command) -> None:
    request = ErasureRequest(scope="contents", resource="pods", namespace="shop", name="once", last=1)
    author = ErasureAuthor(by="x", os_user="x", program="x", reason="asked for")
    async with (
        pods.log._maintenance() as session,
        Eraser.locked(session, request, archive=None, selector_of=matcher_of) as eraser,
    ):
        assert (await eraser.plan()).rows == 1
        await command(*CASE, "-l", "app=till")
        with pytest.raises(UnderLegalHold, match="case-7 began meanwhile"):
            await eraser.erase(author)
        assert issubclass(UnderLegalHold, LogError)
        assert await session.fetch("select 1 from kubechronicle.log where kubechronicle.is_erased(object)") == []
    assert (await command("verify"))[0] == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "name what is held: --resource, --selector, or both"),
        (("-l", " "), "--selector: must not be empty"),
        (("-l", "app in (a"), "--selector: unable to parse requirement: found '', expected: ',' or ')'"),
        (("-l", "app=ü"), "--selector: "),
    ],
)
async def test_mistakes(pods: Pods, command: Command, flags: tuple[str, ...], message: str) -> None:
    code, output = await command(*CASE, *flags)
    assert (code, message in output) == (2, True), output


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("app=web,tier notin (test)", {"app": "web"}, True),
        ("app=web,tier notin (test)", {"app": "web", "tier": "test"}, False),
        ("!app", {}, True),
        ("replicas>3", {"replicas": "4"}, True),
    ],
)
def test_a_selector_is_read(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert matcher_of(selector)(labels) is matches


def test_a_selector_that_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="found '\\)'"):
        matcher_of("app=)")


async def test_a_move_of_the_marks_sees_a_hold_that_began_while_it_waited(pods: Pods, run_sql: RunSql) -> None:
    spec = '{"resource":"pods","namespace":"","name":"","reason":"x","by":"x","released":false}'
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%move_marks%'"
    async with pods.log._maintenance() as session, trio.open_nursery() as nursery, shared_appends(session):
        await session.execute("begin")
        await session.fetch("select kubechronicle.record_entry('holds', 'Hold', 'late', $1, 'x', 'create')", spec)
        nursery.start_soon(pods.log.compact, 4)
        with trio.fail_after(20):
            while run_sql(waiting + " and query not like '%pg_stat%'").strip() != "1":
                await trio.lowlevel.checkpoint()
        await session.execute("commit")
    assert (await pods.log.head()).compacted_for("pods") == 0

"""Erasures that somebody with the database in hand makes up: of rows they edited, they are no excuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import pytest
from erasing_shop import WEB, Command, RunSql, Shop, verified

from kubechronicle.eventlog.erasure.eraser import _digest
from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.erasures import Erasure
from kubechronicle.eventlog.integrity.verify import DIGESTED
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who

ROW: Final = 13  # of more-0
EDITED: Final = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'

COLUMNS: Final = ", ".join((*(name for name, _ in DIGESTED), "class", "digest", "hash"))

Edit = Callable[[dict[str, Any], str], Mapping[str, Any]]


def tombstone(columns: dict[str, Any], name: str) -> dict[str, Any]:
    return erasures.without(columns, "contents", name)


MADE_UP: Mapping[str, tuple[Edit, dict[str, Any], str]] = {
    "an object": (lambda row, name: {**row, "object": EDITED}, {}, "the row was edited"),
    "who": (lambda row, name: {**row, "user_name": "mallory"}, {"what": "who", "resource": ""}, "the row was edited"),
    "who, as erased": (
        lambda row, name: {**erasures.without(row, "who", name), "user_agent": "x"},
        {"what": "who", "resource": ""},
        "the row was edited",
    ),
    "a tombstone that says more": (
        lambda row, name: {**row, "object": tombstone(row, name)["object"].replace("{", '{"erased":"x",', 1)},
        {},
        "the row was edited",
    ),
    "a tombstone of another erasure": (lambda row, name: tombstone(row, str(uuid4())), {}, "the row was edited"),
    "a tombstone that is none": (lambda row, name: {**row, "object": '{"erased":[]}'}, {}, "the row was edited"),
    "another name": (tombstone, {"name": "more-1"}, "it tells of another erasure than there was"),
    "another resource": (tombstone, {"resource": "secrets"}, "it tells of another erasure than there was"),
    "another uid": (tombstone, {"uid": "uid-x"}, "it tells of another erasure than there was"),
    "other revisions": (tombstone, {"last": 14}, "it tells of another erasure than there was"),
    "another kind of erasure": (tombstone, {"what": "who"}, "the row was edited"),
}


async def make_up(shop: Shop, run_sql: RunSql, edit: Edit, told: Mapping[str, Any]) -> tuple[Erasure, bytes]:
    """Edit the row and add its tombstone; the erasure that tells of it, and what the log would hold of it."""
    name = str(uuid4())
    async with shop.log._maintenance() as session:
        names = [name for name, _ in DIGESTED]
        row = (await session.fetch(f"select {', '.join(names)} from kubechronicle.log where revision = {ROW}"))[0]
        columns = {name: row[name] for name in names}
        left = dict(edit(columns, name))
        await session.fetch(
            "update kubechronicle.log set object = $1::text::json, user_name = $2, user_uid = $3, user_groups = $4,"
            f" user_agent = $5, source_address = $6, audit_id = $7, user_extra = null, impersonator = $8,"
            f" request_uri = $9 where revision = {ROW}",
            *(
                left[each]
                for each in (
                    "object",
                    "user_name",
                    "user_uid",
                    "user_groups",
                    "user_agent",
                    "source_address",
                    "audit_id",
                    "impersonator",
                    "request_uri",
                )
            ),
        )
        left["user_extra"] = None
        was, remains = _digest(columns), _digest(left)
        await session.fetch(
            f"insert into kubechronicle.erased values ({ROW}, $1::text::uuid, $2, $3)", name, was, remains
        )
    erasure = Erasure(
        id=name,
        what="contents",
        resource="configmaps",
        namespace="shop",
        name="more-0",
        resources=("configmaps",),
        reason="r",
        by="mallory",
        os_user="m",
        role="m",
        count=1,
        first=ROW,
        last=ROW,
        digest=erasures.digest_of([(ROW, was, remains)]),
    )
    erasure = replace(erasure, **told)
    return erasure, erasure.body(columns["committed_at"])


async def tell(shop: Shop, key: str, body: bytes) -> None:
    change = Change(key=Key(erasures.RESOURCE, "", key), uid=key, expected=0, operation=Operation.CREATE, body=body)
    await shop.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="m")),)))


@pytest.mark.parametrize("made_up", MADE_UP)
async def test_an_edit_is_not_made_good_by_an_erasure(made_up: str, shop: Shop, run_sql: RunSql) -> None:
    edit, told, why = MADE_UP[made_up]
    erasure, body = await make_up(shop, run_sql, edit, told)
    await tell(shop, erasure.id, body)
    problem = (await verified(shop)).problem
    assert problem is not None
    assert why in problem.what


async def test_nor_where_it_was_copied_forward(shop: Shop, run_sql: RunSql) -> None:
    erasure, body = await make_up(shop, run_sql, lambda row, name: {**row, "object": EDITED}, {})
    await tell(shop, erasure.id, body)
    await shop.log.compact(20)
    assert run_sql(f"select count(*) from kubechronicle.kept where revision = {ROW}") == "1"
    problem = (await verified(shop)).problem
    assert problem is not None
    assert (problem.revision, "the row was edited" in problem.what) == (ROW, True)


async def test_nor_in_an_archive(shop: Shop, run_sql: RunSql, tmp_path: Path) -> None:
    await shop.change("more-0", None)
    erasure, body = await make_up(shop, run_sql, lambda row, name: {**row, "object": EDITED}, {})
    await tell(shop, erasure.id, body)
    await shop.log.compact(20, archive=tmp_path)
    problem = (await verified(shop, tmp_path)).problem
    assert problem is not None
    assert (problem.revision, "the row was edited" in problem.what) == (ROW, True)


async def test_an_erasure_is_told_by_the_chain_alone(shop: Shop, run_sql: RunSql) -> None:
    """And not by a row that was put beside it."""
    erasure, body = await make_up(shop, run_sql, tombstone, {})
    for revision in (10**6, 0, -5):
        run_sql(
            "create table beside as select * from kubechronicle.log where revision = 1",
            f"update beside set revision = {revision}, resource = '{erasures.RESOURCE}', name = '{erasure.id}',"
            f" object = '{body.decode()}'",
            f"insert into kubechronicle.kept ({COLUMNS}) select {COLUMNS} from beside",
            "drop table beside",
        )
        problem = (await verified(shop)).problem
        assert problem is not None
        assert (problem.revision, "never appended" in problem.what) == (revision, True)
        run_sql("truncate kubechronicle.kept")
    await tell(shop, erasure.id, body)
    assert (await verified(shop)).problem is None


async def test_an_erasure_is_told_once(shop: Shop, command: Command, run_sql: RunSql) -> None:
    """Nobody takes its place by telling of it again."""
    assert (await command("erase", *WEB))[0] == 0
    row = run_sql(f"select object from kubechronicle.log where resource = '{erasures.RESOURCE}'")
    told = orjson.loads(row)
    told["spec"]["by"] = "somebody else"
    assert (await verified(shop)).problem is None
    await tell(shop, "another", orjson.dumps(told))
    problem = (await verified(shop)).problem
    assert problem is not None
    assert "it tells of another erasure than its name" in problem.what

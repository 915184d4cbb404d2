"""Forged erasures by an attacker with access to the database: an edited row is detected all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson
import pytest
from erasing_shop import WEB, Command, RunSql, Shop, verified

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.digests import COLUMNS, columns_digest
from kubechronicle.eventlog.integrity.erasures import Erasure
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who

ROW: Final = 13  # of more-0
EDITED: Final = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}'

INSERTED: Final = ", ".join((*COLUMNS, "digest", "hash"))

Edit = Callable[[dict[str, Any], str], Mapping[str, Any]]


def tombstone(columns: dict[str, Any], name: str) -> dict[str, Any]:
    return erasures.erased_columns(columns, "contents", name)


FORGERIES: Mapping[str, tuple[Edit, dict[str, Any], str]] = {
    "an object": (lambda row, name: {**row, "object": EDITED}, {}, "the row was edited"),
    "who": (lambda row, name: {**row, "user_name": "mallory"}, {"scope": "who", "resource": ""}, "the row was edited"),
    "who, as erased": (
        lambda row, name: {**erasures.erased_columns(row, "who", name), "user_agent": "x"},
        {"scope": "who", "resource": ""},
        "the row was edited",
    ),
    "a tombstone that says more": (
        lambda row, name: {**row, "object": tombstone(row, name)["object"].replace("{", '{"erased":"x",', 1)},
        {},
        "the row was edited",
    ),
    "a tombstone of another erasure": (lambda row, name: tombstone(row, str(uuid4())), {}, "the row was edited"),
    "a tombstone that is none": (lambda row, name: {**row, "object": '{"erased":[]}'}, {}, "the row was edited"),
    "another name": (tombstone, {"name": "more-1"}, "it does not record the erasure that was made"),
    "another resource": (tombstone, {"resource": "secrets"}, "it does not record the erasure that was made"),
    "another uid": (tombstone, {"uid": "uid-x"}, "it does not record the erasure that was made"),
    "other revisions": (tombstone, {"last": 14}, "it does not record the erasure that was made"),
    "another kind of erasure": (tombstone, {"scope": "who"}, "the row was edited"),
}


async def forge(shop: Shop, run_sql: RunSql, edit: Edit, fields: Mapping[str, Any]) -> tuple[Erasure, bytes]:
    """Edit the row and add its tombstone; return the erasure with these fields, and the body of its entry."""
    name = str(uuid4())
    async with shop.log._maintenance() as session:
        names = list(COLUMNS)
        row = (await session.fetch(f"select {', '.join(names)} from kubechronicle.log where revision = {ROW}"))[0]
        columns = {name: row[name] for name in names}
        forged = dict(edit(columns, name))
        await session.fetch(
            "update kubechronicle.log set object = $1::text::json, user_name = $2, user_uid = $3, user_groups = $4,"
            f" user_agent = $5, source_address = $6, audit_id = $7, user_extra = null, impersonator = $8,"
            f" request_uri = $9, reason = $10 where revision = {ROW}",
            *(
                forged[each]
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
                    "reason",
                )
            ),
        )
        forged["user_extra"] = None
        was, remains = columns_digest(columns), columns_digest(forged)
        await session.fetch(
            f"insert into kubechronicle.erased values ({ROW}, $1::text::uuid, $2, $3)", name, was, remains
        )
    erasure = Erasure(
        id=name,
        scope="contents",
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
    erasure = replace(erasure, **fields)
    return erasure, erasure.body(columns["committed_at"])


async def append_entry(shop: Shop, key: str, body: bytes) -> None:
    change = Change(key=Key(erasures.RESOURCE, "", key), uid=key, expected=0, operation=Operation.CREATE, body=body)
    await shop.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=Who(user="m")),)))


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_an_edit_posing_as_an_erasure_is_detected(forgery: str, shop: Shop, run_sql: RunSql) -> None:
    edit, fields, why = FORGERIES[forgery]
    erasure, body = await forge(shop, run_sql, edit, fields)
    await append_entry(shop, erasure.id, body)
    problem = (await verified(shop)).problem
    assert problem is not None
    assert why in problem.message


async def test_an_edit_of_a_row_copied_forward_is_detected(shop: Shop, run_sql: RunSql) -> None:
    erasure, body = await forge(shop, run_sql, lambda row, name: {**row, "object": EDITED}, {})
    await append_entry(shop, erasure.id, body)
    await shop.log.compact(20)
    assert run_sql(f"select count(*) from kubechronicle.kept where revision = {ROW}") == "1"
    problem = (await verified(shop)).problem
    assert problem is not None
    assert (problem.revision, "the row was edited" in problem.message) == (ROW, True)


async def test_an_edit_in_an_archive_is_detected(shop: Shop, run_sql: RunSql, tmp_path: Path) -> None:
    await shop.change("more-0", None)
    erasure, body = await forge(shop, run_sql, lambda row, name: {**row, "object": EDITED}, {})
    await append_entry(shop, erasure.id, body)
    await shop.log.compact(20, archive=tmp_path)
    problem = (await verified(shop, tmp_path)).problem
    assert problem is not None
    assert (problem.revision, "the row was edited" in problem.message) == (ROW, True)


async def test_an_erasure_is_recorded_by_the_chain_alone(shop: Shop, run_sql: RunSql) -> None:
    """A row that was copied forward but never appended does not record an erasure."""
    erasure, body = await forge(shop, run_sql, tombstone, {})
    for revision in (10**6, 0, -5):
        run_sql(
            "create table beside as select * from kubechronicle.log where revision = 1",
            f"update beside set revision = {revision}, resource = '{erasures.RESOURCE}', name = '{erasure.id}',"
            f" object = '{body.decode()}'",
            f"insert into kubechronicle.kept ({INSERTED}) select {INSERTED} from beside",
            "drop table beside",
        )
        problem = (await verified(shop)).problem
        assert problem is not None
        assert (problem.revision, "never appended" in problem.message) == (revision, True)
        run_sql("truncate kubechronicle.kept")
    await append_entry(shop, erasure.id, body)
    assert (await verified(shop)).problem is None


async def test_an_erasure_is_recorded_once(shop: Shop, command: Command, run_sql: RunSql) -> None:
    """A second entry about the same erasure is detected."""
    assert (await command("erase", *WEB))[0] == 0
    row = run_sql(f"select object from kubechronicle.log where resource = '{erasures.RESOURCE}'")
    entry = orjson.loads(row)
    entry["spec"]["by"] = "another author"
    assert (await verified(shop)).problem is None
    await append_entry(shop, "another", orjson.dumps(entry))
    problem = (await verified(shop)).problem
    assert problem is not None
    assert "it records another erasure than its name" in problem.message

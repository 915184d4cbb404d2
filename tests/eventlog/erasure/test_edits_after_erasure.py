"""Edits of erased rows and of their tombstones are detected."""

from __future__ import annotations

from erasing_shop import WEB, Command, RunSql, Shop, verified

from kubechronicle.eventlog.integrity.verify import verify

TAMPERING = (
    ("update kubechronicle.log set name = 'x' where revision = 4", 4, "not the row that its erasure left"),
    (
        "update kubechronicle.log set object = (object::text || ' ')::json where revision = 4",
        4,
        "not the row that its erasure",
    ),
    ("update kubechronicle.log set digest = sha256(digest) where revision = 4", 4, ""),
    ("update kubechronicle.log set user_name = 'x' where revision = 3", 3, "does not have its digest"),
    (
        "update kubechronicle.log set object = (select object from kubechronicle.log where revision = 4)"
        " where revision = 3",
        3,
        "its contents are gone, and no erasure records it",
    ),
    ("delete from kubechronicle.erased where revision = 4", 4, "no erasure records it"),
    ("update kubechronicle.erased set remains = sha256(remains) where revision = 4", 4, "not the row that its erasure"),
    ("update kubechronicle.erased set was = sha256(was) where revision = 4", 4, "tombstone belongs to another row"),
    ("update kubechronicle.erased set erasure = gen_random_uuid() where revision = 4", 4, "no record of that"),
    (
        "insert into kubechronicle.erased select 3, erasure, l.digest, sha256('x') from kubechronicle.erased e, "
        "kubechronicle.log l where l.revision = 3 and e.revision = 4",
        3,
        "not the row that its erasure",
    ),
    ("insert into kubechronicle.erased select 99, erasure, was, was from kubechronicle.erased limit 1", 99, "no such"),
    (
        "update kubechronicle.log set object = replace(object::text, 'asked', 'ASKED')::json where revision = 25",
        25,
        "digest",
    ),
    # Other contents in place of the erased ones, and their tombstone deleted.
    (
        "with gone as (delete from kubechronicle.erased where revision = 12) update kubechronicle.log set object = '{}'"
        " where revision = 12",
        12,
        "does not have its digest",
    ),
)


async def test_an_edit_after_an_erasure_is_detected(shop: Shop, command: Command, run_sql: RunSql) -> None:
    checkpoint = await verified(shop)
    await command("erase", *WEB)
    for edit, revision, why in TAMPERING:
        copies = ("create table t_log as table kubechronicle.log", "create table t_e as table kubechronicle.erased")
        run_sql(*copies, edit)
        problem = (await verified(shop)).problem
        assert problem is not None, edit
        assert (problem.revision, why in problem.message) == (revision, True), (edit, problem)
        run_sql(
            "truncate kubechronicle.log, kubechronicle.erased",
            "insert into kubechronicle.log table t_log",
            "insert into kubechronicle.erased table t_e",
            "drop table t_log, t_e",
        )
    async with shop.log._maintenance() as session:  # anchors noted before and after the erasure
        for noted in (checkpoint, await verified(shop)):
            assert (await verify(session, anchors={noted.revision: noted.hash})).problem is None
    run_sql("update kubechronicle.log set object = (object::text || ' ')::json where revision = 5")
    code, output = await command("erase", "configmap/other", "-n", "shop", "--before", "0s", "--reason", "r", "--yes")
    assert (code, "revision 5 was edited" in output) == (2, True)  # an edited row is not erased
    assert (await verified(shop)).problem.revision == 5

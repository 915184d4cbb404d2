"""Tags name their user in their contents: with a user, this name is erased in all Tags, and they keep their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from erasing_shop import BOB, JANE, Command, Opener, RunSql, Shop, verified
from msgspec import structs

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.eventlog.testing import open_stack

ERASE = ("erase", "--user", "jane", "--reason", "asked for", "--yes")
TABLES = "select object::text from kubechronicle.log union all select object::text from kubechronicle.kept"
ROOT = Who(user="root", verb="delete")


def contents(name: str, spec: dict[str, Any]) -> bytes:
    metadata = {"name": name, "uid": f"uid-{name}"}
    return orjson.dumps({"apiVersion": "history.kubechronicle.dev/v1", "kind": "Tag", "metadata": metadata, **spec})


def tagged(name: str, user: str) -> bytes:
    spec = {"revision": "7", "time": "2026-01-01T00:00:00Z", "user": user, "reason": f"as {user} said"}
    return contents(name, {"spec": spec})


async def put(shop: Shop, name: str, operation: Operation, body: bytes, *, who: Who) -> int:
    """Append a change of a Tag and return its revision."""
    key = Key(erasures.TAGS, "", name)
    expected, _ = shop.live.get(key, (0, ""))
    change = Change(key=key, uid=f"uid-{name}", expected=expected, operation=operation, body=body)
    result = await shop.log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
    shop.live[key] = (0 if operation is Operation.DELETE else result.head, "")
    return int(result.head)


async def tag_moments(shop: Shop) -> None:
    """Make a Tag of jane that stays, one that root has deleted, and one of bob."""
    await put(shop, "mine", Operation.CREATE, tagged("mine", "jane"), who=JANE)
    await put(shop, "gone", Operation.CREATE, tagged("gone", "jane"), who=JANE)
    await put(shop, "gone", Operation.DELETE, tagged("gone", "jane"), who=ROOT)
    await put(shop, "other", Operation.CREATE, tagged("other", "bob"), who=structs.replace(BOB, impersonator=""))


def specs(rows: str) -> list[dict[str, Any]]:
    return [orjson.loads(row)["spec"] for row in rows.splitlines()]


async def test_the_user_is_erased_in_tags(
    shop: Shop, command: Command, replicas: Opener, run_sql: RunSql, tmp_path: Path
) -> None:
    await tag_moments(shop)
    head = (await shop.log.head()).revision
    async with open_stack(await replicas()) as stack:
        code, output = await command(*ERASE)
        assert code == 0, output
        assert "jane" not in run_sql(TABLES)
        await stack.views.wait_applied(head + 2)  # of the Tag, and of the erasure
        view = stack.views[erasures.TAGS]
        held = [view.get("", "mine"), view.get("", "other"), *(event.entry for event in view.events)]
        assert "jane" not in str([entry.json for entry in held if entry is not None])
        entry = view.get("", "mine")
        assert entry is not None
        assert orjson.loads(entry.json)["spec"] == {"revision": "7", "time": "2026-01-01T00:00:00Z", "user": "<erased>"}
    of_root = run_sql(f"select user_name, reason from kubechronicle.log where revision = {head - 1}")
    assert of_root == "root|"
    (bobs,) = specs(
        run_sql(
            "select object from kubechronicle.log where name = 'other' and class = 'long' and resource like 'tags%'"
        )
    )
    assert (bobs["user"], bobs["reason"]) == ("bob", "as bob said")
    verdict = await verified(shop)
    assert (verdict.problem, [each.resources for each, _ in verdict.erasures]) == (None, [(erasures.TAGS,)])
    assert (await command(*ERASE))[0] == 1
    assert (await command("erase", "tag/gone", "--reason", "r", "--yes"))[0] == 0  # a row may be erased twice
    assert (await verified(shop)).problem is None


async def test_tags_in_archives(shop: Shop, command: Command, tmp_path: Path, run_sql: RunSql) -> None:
    await tag_moments(shop)
    await shop.log.compact((await shop.log.head()).revision, archive=tmp_path)
    code, output = await command(*ERASE)
    assert (code, "archives were not read" in output) == (3, True)
    code, output = await command(*ERASE, "--history-archive", str(tmp_path))
    assert (code, "already erased in the database" in output) == (0, True), output
    code, output = await command("verify", "--archive", str(tmp_path))
    assert code == 0, output
    assert (await verified(shop, tmp_path)).unerased == 0
    assert "jane" not in run_sql(TABLES)
    assert (await command(*ERASE, "--history-archive", str(tmp_path)))[0] == 1


async def test_an_edited_tag_does_not_pass_for_an_erased_one(shop: Shop, command: Command, run_sql: RunSql) -> None:
    await tag_moments(shop)
    assert (await command(*ERASE))[0] == 0
    run_sql("update kubechronicle.log set object = replace(object::text, '\"7\"', '\"8\"')::json where name = 'gone'")
    assert (await verified(shop)).problem is not None


async def test_a_tag_that_changes_meanwhile_leaves_everything(
    shop: Shop, command: Command, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tag_moments(shop)
    async with shop.log._maintenance() as session:
        kind = type(session)
    fetch = kind.fetch

    async def interrupted(self: Any, sql: str, *arguments: Any) -> Sequence[Any]:
        found = await fetch(self, sql, *arguments)
        if "from kubechronicle.live e" in sql and "tags" in sql:
            found = [dict(row) | {"revision": row["revision"] - 1} for row in found]
        return found

    with monkeypatch.context() as patched:
        patched.setattr(kind, "fetch", interrupted)
        code, output = await command(*ERASE)
    assert (code, output.count("the Tag mine was changed meanwhile")) == (2, 1), output
    assert run_sql("select count(*) from kubechronicle.erased") == "0"
    assert (await command(*ERASE))[0] == 0
    assert "jane" not in run_sql(TABLES)
    assert (await verified(shop)).problem is None


async def test_encrypted_tags_are_listed(shop: Shop, command: Command) -> None:
    body = orjson.dumps({"encrypted": "k8s:enc:aesgcm:v1:k:", "apiVersion": "v1", "kind": "Tag", "data": "AA=="})
    await put(shop, "sealed", Operation.CREATE, body, who=JANE)
    code, output = await command(*ERASE)
    assert (code, "encrypted at rest keep the name" in output, "tag/sealed" in output) == (0, True, True), output

"""The schema for analysts: the examples of its page, and the limits of its readers."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import postgres_fixture
import pytest
import trio
from documents.pages import parts

from kubechronicle.eventlog.records import Batch, Change, Key, Operation, Transaction, Who
from kubechronicle.ops import cli

Opener = Callable[[], Awaitable[Any]]
RunSql = Callable[..., str]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sql.md"
KINDS = {
    "namespaces": ("v1", "Namespace"),
    "deployments.apps": ("apps/v1", "Deployment"),
    "configmaps": ("v1", "ConfigMap"),
    "secrets": ("v1", "Secret"),
}
PASSWORD = "Y29ycmVjdCBob3JzZQ=="
CI = Who(user="system:serviceaccount:ci:deployer", verb="patch", user_agent="argocd/v3.1")
ADMIN = Who(user="kubernetes-admin", groups=("system:masters",), verb="create", user_agent="kubectl/v1.36.0")
JANE = Who(user="jane", verb="patch", user_agent="kubectl/v1.36.0", source_address="198.51.100.7")
BOB = Who(user="bob", impersonator="mallory", verb="delete", user_agent="curl/8.14.1")


def web(image: str, replicas: int) -> dict[str, Any]:
    container = {"name": "web", "image": f"registry.example/web:{image}"}
    return {"spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}}}


STORY: tuple[tuple[str, Who, str, str, str, dict[str, Any] | None], ...] = (
    ("09:00", ADMIN, "namespaces", "", "shop", {}),
    ("09:01", ADMIN, "deployments.apps", "shop", "web", web("1.4", 3)),
    ("09:01", ADMIN, "configmaps", "shop", "settings", {"data": {"currency": "EUR"}}),
    ("09:02", ADMIN, "secrets", "shop", "database", {"data": {"password": "aHVudGVyMg=="}}),
    ("11:30", CI, "deployments.apps", "shop", "web", web("1.5", 3)),
    ("11:31", CI, "configmaps", "shop", "settings", {"data": {"currency": "USD"}}),
    ("13:05", JANE, "deployments.apps", "shop", "web", web("1.5", 0)),
    ("13:40", CI, "secrets", "shop", "database", {"data": {"password": PASSWORD}}),
    ("14:10", BOB, "configmaps", "shop", "settings", None),
    ("14:12", JANE, "deployments.apps", "shop", "web", web("1.5", 3)),
)


@pytest.fixture
async def story(replicas: Opener, run_sql: RunSql) -> Any:
    """Write the changes of a day in a shop, the 2nd of March, and return the log."""
    log = await replicas()
    state: dict[Key, tuple[int, bytes]] = {}
    for revision, (_, who, resource, namespace, name, content) in enumerate(STORY, 1):
        key = Key(resource, namespace, name)
        expected, body = state.get(key, (0, b""))
        api_version, kind = KINDS[resource]
        if content is not None:
            metadata = {"name": name, "managedFields": [{"manager": who.user_agent, "at": revision}]}
            body = orjson.dumps({"apiVersion": api_version, "kind": kind, "metadata": metadata, **content})
        operation = Operation.DELETE if content is None else Operation.UPDATE if expected else Operation.CREATE
        change = Change(key=key, uid=f"{kind}-{name}".lower(), expected=expected, operation=operation, body=body)
        await log.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=who),)))
        state[key] = (revision, body)
    run_sql(
        *(
            f"update kubechronicle.log set committed_at = '2026-03-02 {at}+00' where revision = {revision}"
            for revision, (at, *_) in enumerate(STORY, 1)
        ),
        "update kubechronicle.head set committed_at = '2026-03-02 14:12+00'",
    )
    return log


def query_as(url: str, *statements: str, role: str = "chronicle_reader") -> str:
    """Run statements with psql under the role; return its output, errors included."""
    tools = postgres_fixture.binaries()
    assert tools is not None
    commands = [part for statement in (f"set role {role}", *statements) for part in ("-c", statement)]
    done = subprocess.run(
        [str(tools / "psql"), "-X", "-q", "-v", "VERBOSITY=terse", url, *commands],
        env={**os.environ, "PGTZ": "UTC", "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "\n".join(line.rstrip() for line in (done.stdout + done.stderr).strip("\n").splitlines())


def examples() -> list[tuple[str, str]]:
    """Return the queries that the page shows with an answer."""
    pairs = itertools.pairwise(parts(PAGE))
    return [(query.text, answer.text) for query, answer in pairs if (query.kind, answer.kind) == ("sql", "text")]


async def test_the_examples_of_the_page_return_the_shown_results(story: Any, database: str) -> None:
    assert len(examples()) == PAGE.read_text().count("```text")
    for statement, answer in examples():
        assert query_as(database, statement) == answer.strip("\n"), statement


async def test_the_query_for_keys_still_needed(story: Any, database: str) -> None:
    page = (PAGE.parent / "encryption.md").read_text()
    [statement] = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert re.search(r"^ secrets +\| +\| +2 \|", query_as(database, statement), re.MULTILINE)


async def test_the_columns_equal_those_of_the_page(story: Any, database: str, run_sql: RunSql) -> None:
    sections = re.findall(r"^### (\w+).*?\n(.*?)(?=^##)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    documented = {
        name: re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", text, re.M))) for name, text in sections
    }
    calls = {"changes": "", "who_did_what": "", "objects_at": "(0)", "object_history": "('', '', '')"}
    calls |= {"reads": "", "read_recordings": "", "tags": ""}
    for name, call in calls.items():
        heading = query_as(database, f"select * from chronicle.{name}{call} limit 0").splitlines()[0]
        assert sorted(heading.replace(" ", "").split("|")) == sorted(documented[name])


WITHHELD = """
    create function pg_temp.shout(value anyelement) returns boolean language plpgsql cost 0.0000001
    as $$ begin raise notice '%', value; return true; end $$;
"""
PRYING = (
    "select * from chronicle.changes where pg_temp.shout(changes)",
    "select * from chronicle.changes where pg_temp.shout(object)",
    "select * from chronicle.changes where resource = 'secrets' and object::text::int = 1",
    "select * from chronicle.changes where (object #>> '{data,password}')::int = 1",
    "select * from chronicle.who_did_what w where pg_temp.shout(w)",
    "select * from chronicle.who_did_what where resource = 'secrets' and changed::text::int = 1",
    "select * from chronicle.objects_at(10) o where pg_temp.shout(o)",
    "select * from chronicle.objects_at(10, 'secrets', 'shop') where object::text::int = 1",
    "select * from chronicle.objects_at(now()) where pg_temp.shout(object)",
    "select * from chronicle.object_history('secrets', 'shop', 'database') o where pg_temp.shout(o)",
    "set search_path = pg_temp, pg_catalog; create temp table log (object json);"
    " create function pg_temp.strpos(text, text) returns int language plpgsql as 'begin raise notice ''%'', $1;"
    " return 0; end'; select * from chronicle.object_history('secrets', 'shop', 'database');"
    " select * from chronicle.changes",
    "create table pg_temp.loot as select * from chronicle.changes; table pg_temp.loot",
    "explain (analyze, verbose) select * from chronicle.changes where resource = 'secrets'",
)


async def test_readers_cannot_see_the_contents_of_secrets(story: Any, database: str, run_sql: RunSql) -> None:
    await story.append(_unreadable_secret())
    run_sql("analyze kubechronicle.log")
    for prying in PRYING:
        output = query_as(database, WITHHELD, prying)
        assert PASSWORD not in output, prying
        assert "aHVudGVyMg" not in output, prying
        assert "topsecret" not in output, prying
        assert "ERROR:  permission" not in output, prying
    assert "NOTICE:  (2," in query_as(database, WITHHELD, PRYING[0])  # so the statement does read the rows


async def test_characters_that_jsonb_cannot_hold_are_replaced(story: Any, run_sql: RunSql) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nul"},"data":{"x":"a\\u0000\\u0000b\\\\u0000"}}'
    change = Change(key=Key("configmaps", "shop", "nul"), uid="u", expected=0, operation=Operation.CREATE, body=body)
    await story.append(Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=ADMIN),)))
    text = run_sql("select object #>> '{data,x}' from chronicle.changes where name = 'nul'")
    assert text == "a\ufffd\ufffdb\\u0000"


def _unreadable_secret() -> Batch:
    """Return a batch with a Secret that cannot be converted to jsonb; the error of the conversion would quote it."""
    body = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"odd"},"data":{"x":"topsecret\\u0000"},"n":%s}' % (
        b"1" * 200_000
    )
    change = Change(key=Key("secrets", "shop", "odd"), uid="u", expected=0, operation=Operation.CREATE, body=body)
    return Batch(id=uuid4(), transactions=(Transaction(changes=(change,), who=ADMIN),))


@pytest.mark.parametrize(
    "statement",
    [
        "select * from kubechronicle.log",
        "select * from kubechronicle.log_long_1",
        "select * from kubechronicle.kept",
        "select * from kubechronicle.live",
        "select * from kubechronicle.head",
        "select kubechronicle.readable('{}')",
        "select kubechronicle.let_read('chronicle_reader')",
        "delete from kubechronicle.confidential_resources",
    ],
)
async def test_the_tables_of_the_log_cannot_be_read(database: str, statement: str) -> None:
    assert "permission denied for schema kubechronicle" in query_as(database, statement)


async def test_readers_cannot_write_and_other_roles_cannot_read(database: str, run_sql: RunSql) -> None:
    for statement in (
        "delete from chronicle.changes",
        "update chronicle.changes set name = ''",
        "create table chronicle.mine ()",
    ):
        output = query_as(database, statement)
        assert "permission denied" in output or "cannot" in output
    role = f"r{uuid4().hex}"
    run_sql(f"create role {role}")
    assert "permission denied" in query_as(database, "select chronicle.revision_at(now())", role=role)
    run_sql(f"select kubechronicle.let_read('{role}')")
    assert "permission denied" not in query_as(database, "select count(*) from chronicle.changes", role=role)
    run_sql(f"drop owned by {role}", f"drop role {role}")


async def test_other_resources_can_be_made_confidential(
    story: Any, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["history", "confidential", "--database-url", database]
    add = [*command, "--add", "configmaps", "--add", "vaults.example.com"]
    assert await trio.to_thread.run_sync(cli.main, add) == 0
    assert await trio.to_thread.run_sync(cli.main, [*command, "--remove", "vaults.example.com"]) == 0
    assert capsys.readouterr().out.split() == ["configmaps", "secrets", "vaults.example.com", "configmaps", "secrets"]
    for source in ("changes", "objects_at(6)", "object_history('configmaps', 'shop', 'settings')"):
        assert "EUR" not in query_as(database, f"select * from chronicle.{source}")


async def test_the_state_equals_that_of_the_log_at_every_revision(story: Any, run_sql: RunSql) -> None:
    for revision in range(11):
        for resource in KINDS:
            rows = run_sql(f"select name, revision from chronicle.objects_at({revision}, '{resource}')")
            listed = await story.list_at(resource, revision=revision, limit=100)
            assert rows.split() == [f"{record.key.name}|{record.revision}" for record in listed]


async def test_compacted_history_is_not_returned(story: Any, database: str, run_sql: RunSql) -> None:
    await story.compact(6)
    assert run_sql("select min(revision) from chronicle.changes") == "7"
    assert run_sql("select min(revision) from chronicle.who_did_what") == "7"
    assert run_sql("select min(revision) from chronicle.object_history('deployments.apps', 'shop', 'web')") == "7"
    assert "revision 5 has been compacted" in query_as(database, "select * from chronicle.objects_at(5)")
    assert run_sql("select count(*) from chronicle.objects_at(6)") == "4"
    run_sql("""update kubechronicle.head set compacted_of = '{"configmaps": 8}'""")
    output = query_as(database, "select resource from chronicle.objects_at(7)")
    assert "there is no history of configmaps" in output
    assert "deployments.apps" in output
    assert "revision 7 has been compacted" in query_as(database, "select * from chronicle.objects_at(7, 'configmaps')")
    assert "in the future" in query_as(database, "select chronicle.revision_at(now() + interval '1 hour')")
    assert "above the newest" in query_as(database, "select * from chronicle.objects_at(11)")


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": None}, {"/a": {"from": 1, "to": None}}),
        ({"a": 1}, {}, {"/a": {"from": 1}}),
        ({}, {"a/b~c": {}}, {"/a~1b~0c": {"to": {}}}),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, {"/a/1/b": {"from": 2, "to": 3}}),
        ({"a": [1]}, {"a": [1, 2]}, {"/a": {"from": [1], "to": [1, 2]}}),
        ({"metadata": {"managedFields": 1}}, {"metadata": {"managedFields": 2}}, {}),
        ({"data": {"managedFields": 1}}, {"data": {"managedFields": 2}}, {"/data/managedFields": {"from": 1, "to": 2}}),
        ([1], {}, {"": {"from": [1], "to": {}}}),
    ],
)
async def test_differences(run_sql: RunSql, before: Any, after: Any, difference: Any) -> None:
    texts = (orjson.dumps(side).decode().replace("'", "''") for side in (before, after))
    result = run_sql("select chronicle.difference('{}', '{}')".format(*texts))
    assert orjson.loads(result) == difference

"""Migrations: they add up to schema.sql, apply once however many servers start, and reject an unknown schema."""

from __future__ import annotations

import subprocess

import postgres_fixture
import pytest
import trio

from kubechronicle.eventlog.errors import SetupError
from kubechronicle.eventlog.postgres.connection import migrate, open_session
from kubechronicle.eventlog.postgres.migrate import (
    FIRST_WITH_SERVES_FROM,
    AppliedMigration,
    Migration,
    check_schema,
    migrations,
    pending,
)


def dumped(url: str) -> list[str]:
    """Return the catalog as dumped by pg_dump, and the initial rows."""
    tools = postgres_fixture.binaries()
    assert tools is not None
    command = [str(tools / "pg_dump"), "--no-owner", "--no-comments", "--inserts", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # differs between any two databases: keys of psql's restricted mode, the log id, the time of the migration
    skipped = (
        "--",
        "\\restrict",
        "\\unrestrict",
        "INSERT INTO kubechronicle.state",
        "INSERT INTO kubechronicle.heads",
        "INSERT INTO kubechronicle.migrations",
    )
    return [line for line in text.splitlines() if line and not line.startswith(skipped)]


FORMER_TABLE = """
create schema kubechronicle;
create table kubechronicle.migrations (
    number int primary key, name text not null, sha256 text not null, applied_at timestamptz not null default now()
)
"""
"""The table in which versions before 0.2 recorded what they had applied."""

NAMES = [f"{migration.number:04}_{migration.name}" for migration in migrations()]


async def begin_with_former_version(url: str) -> None:
    """Make the table of migrations as a former version, which then ends."""
    async with open_session(url) as session:
        await session.execute(FORMER_TABLE)


async def test_migrations_add_up_to_schema_sql(database: str, empty_database: str) -> None:
    await begin_with_former_version(empty_database)
    assert await migrate(empty_database) == NAMES
    assert dumped(database) == dumped(empty_database)


async def test_a_new_database_gets_the_whole_schema_in_one_step(empty_database: str) -> None:
    assert await migrate(empty_database) == ["schema.sql"]
    async with open_session(empty_database) as session:
        await check_schema(session)
        rows = await session.fetch("select number, name, sha256, serves_from from kubechronicle.migrations order by 1")
    assert [tuple(row) for row in rows] == [
        (known.number, known.name, known.sha256, known.serves_from if known.number >= FIRST_WITH_SERVES_FROM else None)
        for known in migrations()
    ]


async def test_the_schema_is_made_once_when_several_servers_start_at_once(empty_database: str) -> None:
    assert sorted(await started_at_once(empty_database)) == [[], [], [], ["schema.sql"]]


async def test_migrations_apply_once_when_several_servers_start_at_once(empty_database: str) -> None:
    await begin_with_former_version(empty_database)
    applied = await started_at_once(empty_database)
    assert sorted(name for some in applied for name in some) == NAMES
    assert await migrate(empty_database) == []


async def started_at_once(url: str) -> list[list[str]]:
    applied: list[list[str]] = []

    async def start() -> None:
        applied.append(await migrate(url))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(start)
    return applied


async def test_a_migration_tells_its_progress(empty_database: str) -> None:
    await begin_with_former_version(empty_database)
    shown: list[tuple[int, int]] = []
    await migrate(empty_database, lambda done, total: shown.append((done, total)))
    assert shown == [(done, len(migrations())) for done in range(len(migrations()))]


async def test_the_schema_is_checked(empty_database: str) -> None:
    async with open_session(empty_database) as session:
        with pytest.raises(SetupError, match="run `kubechronicle migrate`"):
            await check_schema(session)
        await migrate(empty_database)
        await check_schema(session)
        await session.execute("update kubechronicle.migrations set sha256 = 'x' where number = 1")
        with pytest.raises(SetupError, match="0001_log differs"):
            await check_schema(session)


async def test_a_failed_migration_leaves_nothing_and_reports_the_reason(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubechronicle.eventlog.postgres import migrate as module

    await begin_with_former_version(empty_database)
    broken = Migration(number=1, name="broken", script="create table kubechronicle.half (); select 1 / 0")
    monkeypatch.setattr(module, "migrations", lambda: [broken])
    with pytest.raises(SetupError, match=r"0001_broken failed: .*division by zero"):
        await migrate(empty_database)
    monkeypatch.undo()
    assert len(await migrate(empty_database)) == len(migrations())


def test_pending_migrations() -> None:
    one, two = (Migration(number=number, name="x", script=str(number)) for number in (1, 2))
    first, second = AppliedMigration(one.sha256), AppliedMigration(two.sha256)
    assert pending([one, two], {}) == [one, two]
    assert pending([one, two], {1: first}) == [two]
    assert pending([one, two], {1: first, 2: second}) == []
    with pytest.raises(SetupError, match="differs"):
        pending([one], {1: second})


def test_a_newer_schema_is_refused_unless_each_newer_migration_allows_this_version() -> None:
    one = Migration(number=1, name="x", script="1")
    first = AppliedMigration(one.sha256)
    assert pending([one], {1: first, 2: AppliedMigration("a", 1), 3: AppliedMigration("b", 1)}) == []
    for third in (AppliedMigration("b"), AppliedMigration("b", 2)):
        with pytest.raises(SetupError, match=r"migrated by a newer kubechronicle \(to 3, known here: 1\); upgrade"):
            pending([one], {1: first, 2: AppliedMigration("a", 1), 3: third})


def test_a_migration_says_beside_which_schemas_servers_work() -> None:
    """A migration whose text does not say it ends the downgrade to the versions before."""
    script = "-- Add a table.\n-- Servers of schema 0007 work beside this.\nselect 1"
    assert Migration(number=8, name="x", script=script).serves_from == 7
    assert Migration(number=8, name="x", script="select 1").serves_from is None
    later = [migration for migration in migrations() if migration.number >= FIRST_WITH_SERVES_FROM]
    assert later[0].serves_from == 18


async def test_a_server_starts_on_the_schema_of_a_later_version_that_allows_it(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = len(migrations())
    async with open_session(database) as session:
        recorded = await session.fetch("select serves_from from kubechronicle.migrations where number = 19")
        assert recorded[0][0] == 18
        await session.execute(f"insert into kubechronicle.migrations values ({newest + 1}, 'x', 'y', now(), {newest})")
        await check_schema(session)
        assert await migrate(database) == []
        assert "migrated by a newer kubechronicle" in caplog.text
        await session.execute(f"update kubechronicle.migrations set serves_from = null where number = {newest + 1}")
        with pytest.raises(SetupError, match="newer kubechronicle"):
            await check_schema(session)
        with pytest.raises(SetupError, match="newer kubechronicle"):
            await migrate(database)


def test_migrations_are_shipped_with_the_package() -> None:
    assert [migration.number for migration in migrations()] == list(range(1, len(migrations()) + 1))
    assert migrations()


DIGESTS = {
    "0001": "039a29f8c10706ef6a3f9f5bc850faf3349fb3f5fee604d0d3bf618accea04bc",
    "0002": "cb834dc7d583d0c7850ec741121beead7ea421cb0c41200777bd598a54c441ec",
    "0003": "ae8c6bec6ba7c333c3145eedf839b035d4d79b4726394fbe2dfd453fa5b533f5",
    "0004": "0e5bd8b233de4b7288f80274410fd873e9763aaafa8adf7150baf7476572d701",
    "0005": "5bcf93fec5f897540966f6a87add45a9d7108a845f7662579c340b43ce07f1c3",
    "0006": "5b0fc0d1d7912e19ccc9cf5e94925cda5d300bafbe0cfe01f8fdacd8be88c546",
    "0007": "994337ff98550a3954ccadc0b774d2012b7e9751c21f2b81977fd206f908fc65",
    "0008": "4c7cd8046e8ef8b07e52583a3141716c37dd45bc7394d5f6b9916f0e78425d85",
    "0009": "16d110328549aa291a480ad5ab825b8db6b55ebbbbcdb0d2c49917e25247d442",
    "0010": "621a94f059f85a6a2f0a3f522770c90fced5a821b0257237296cefdf30057b30",
    "0011": "8c6788c19ec6020993d354812b816fb06b0f409274bd07256d77e8fa739cb7ef",
    "0012": "0836296ef73b8e58972b7e469400fdcd4b21f8d83c8717e5549346ca34070881",
    "0013": "0b7d67eacbfc431ac07d787cddb8df177acada028cc609a953221ce60c90af93",
    "0014": "a449f44ddaae090eb80d757152b999bff0e9c56152eed962deca262be5799a27",
    "0015": "48e1b9c3d99a7ff84074539a815c472c35cf64be4c4ac4b75329179996649221",
    "0016": "7e1425d585d5754e028e1e74b624430335636bb08abf6cadd8ba1a007dcfa88b",
    "0017": "e1fee4ac57b3d3a0d7c7ad2993b41c7783c592e2d6e17b6aaa2b2cec39d4fabe",
    "0018": "a35eeb86e1dedf0a9b4dc7f15c7b3a88d14c3761019c424c8de218b5d7f15cb3",
    "0019": "a61cdef4bba244a1334734a3ee4414350dd8fec3b6db20112f57a7e6745bf138",
    "0020": "0452b0b3294186761137fb3f5c985b76bfe818bd43a0f8d11aad5d3ea37c5f84",
    "0021": "081d6043f7d98320b69339a83d953d072ff0f606ee7e3bfa5a444180e4c75bd0",
    "0022": "afc975a0064e3aca62d261b34bec67002c8902cb5d88bfc6b96101fbf146886b",
    "0023": "ad547557d20dbc495009ed10a01d17eed5564cd6754642ba40c4b2c406b9b64d",
    "0024": "aaa79ff467fcab38c311557a24356c40f730489542b6eee5d21496c1eae6d553",
    "0025": "65a7c71d278e4afcd806bb0ded61353ec09fb1a919e1239befd9a57c59d83eb5",
    "0026": "e3261951571145019f7db94615cb870bacc896f7e5d790ce203fbddf4fba6b33",
    "0027": "a7d55103949be8cababa84b83b69611cf6b87103e50d66d99fb092bce19f04f5",
    "0028": "ece95189e153a55b81eff41586d77fc348ce7c070b0b117eae99c1172f97581a",
}
"""SHA-256 of the migrations that databases have applied, by number. Add new ones; never change a line."""


def test_applied_migrations_never_change() -> None:
    """A changed comment is enough for a server to reject every existing database."""
    digests = {f"{migration.number:04}": migration.sha256 for migration in migrations()}
    assert digests == DIGESTS

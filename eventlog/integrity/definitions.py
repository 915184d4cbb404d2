"""The comparison of the database's definitions with those of this version: tables, views, functions, triggers, rights.

A writer of the database could leave all rows as they are, and change what readers see: a view that leaves out a user, a
function, a trigger, a right for everybody. So the schema of this version is made beside the one in use, under other
names, in a transaction that is rolled back. The same server writes the definitions of both as text, so that all
versions of Postgres agree. Each difference has a name:

    function chronicle.revision_at(moment timestamp with time zone) is another one than in this version
    view chronicle.who_did_what is another one than in this version
    trigger hide on kubechronicle.log is none of this version

Rights of readers in the schema chronicle are the operator's (let_read), and so are partitions, which retention makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.integrity.digests import SHORT
from kubechronicle.eventlog.postgres.migrate import PACKAGE, WHOLE, migrations
from kubechronicle.eventlog.postgres.session import ConnectionLost, PostgresSession

SCHEMAS: Final = ("kubechronicle", "chronicle")
BESIDE: Final = {"kubechronicle": "kc_beside", "chronicle": "chron_beside"}
"""The names of the schemas of this version while they are compared."""
_WORD: Final = re.compile(r"\b(kubechronicle|chronicle)\b")
_BACK: Final = re.compile(r"\b(kc_beside|chron_beside)\b")
_NAMES: Final = {beside: name for name, beside in BESIDE.items()}

_BEGIN: Final = "begin; set local statement_timeout = 0; set local lock_timeout = '10s'"
# $1 schemas. Partitions of the log and of recorded reads are left out.
_DEFINITIONS: Final = """
with relations as (
    select c.*, n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any ($1::text[]) and c.relname !~ '^(log_(long|short)|reads)_[0-9]+' and c.relname !~ '_[0-9]{4,}'
), functions as (
    select p.*, n.nspname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = any ($1::text[])
)
select case r.relkind when 'v' then 'view' else 'table' end as kind, r.nspname || '.' || r.relname as name,
    concat_ws(' ', r.relkind::text, r.relpersistence::text, r.relrowsecurity::text, r.relforcerowsecurity::text,
        case when r.relkind = 'v' then array_to_string(r.reloptions, ',') end,
        case when r.relkind = 'v' then pg_get_viewdef(r.oid) end, pg_get_partkeydef(r.oid)) as definition
from relations r where r.relkind in ('r', 'v', 'p', 'm', 'f', 'S')
union all
select 'column', r.nspname || '.' || r.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    a.attnotnull::text, a.attidentity::text, a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid),
    a.attcollation::regcollation::text)
from relations r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
where r.relkind in ('r', 'v', 'p', 'm', 'f')
union all
select 'constraint', r.nspname || '.' || r.relname || '.' || k.conname, pg_get_constraintdef(k.oid)
from relations r join pg_constraint k on k.conrelid = r.oid
union all
select 'index', r.nspname || '.' || x.relname, pg_get_indexdef(i.indexrelid) || ' ' || i.indisvalid::text
from relations r join pg_index i on i.indrelid = r.oid join pg_class x on x.oid = i.indexrelid
union all
select 'trigger', t.tgname || ' on ' || n.nspname || '.' || c.relname,
    pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = any ($1::text[]) and not t.tgisinternal
union all
select 'rule', w.rulename || ' on ' || n.nspname || '.' || c.relname, pg_get_ruledef(w.oid) || ' ' || w.ev_enabled::text
from pg_rewrite w join pg_class c on c.oid = w.ev_class join pg_namespace n on n.oid = c.relnamespace
where n.nspname = any ($1::text[]) and w.rulename <> '_RETURN'
union all
select 'policy', p.polname || ' on ' || r.nspname || '.' || r.relname,
    concat_ws(' ', p.polcmd::text, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
from relations r join pg_policy p on p.polrelid = r.oid
union all
select 'function', f.nspname || '.' || f.proname || '(' || pg_get_function_identity_arguments(f.oid) || ')',
    pg_get_functiondef(f.oid)
from functions f where f.prokind in ('f', 'p')
union all
select 'right', lower(x.privilege_type) || ' on ' || o.name || ' for '
    || coalesce((select rolname from pg_roles where oid = x.grantee), 'everybody'), ''
from (
    select nspname || '.' || relname as name, relacl as acl, relowner as owner, nspname = any ($2::text[]) as open
    from relations
    union all
    select nspname || '.' || proname || '(' || pg_get_function_identity_arguments(oid) || ')', proacl, proowner,
        nspname = any ($2::text[])
    from functions
    union all
    select 'schema ' || nspname, nspacl, nspowner, nspname = any ($2::text[])
    from pg_namespace where nspname = any ($1::text[])
) o cross join lateral aclexplode(o.acl) x
where x.grantee <> o.owner
    and not (o.open and x.grantee <> 0 and x.privilege_type in ('SELECT', 'EXECUTE', 'USAGE'))
"""
_MIGRATIONS: Final = "select number, sha256 from kubechronicle.migrations"
_CLASSES: Final = "select resource, class from kubechronicle.resource_classes where class <> 'long'"
# Batches whose time is not that of their newest row.
_BATCHES: Final = """
select b.head from kubechronicle.batches b join kubechronicle.log l on l.revision = b.head
where b.first_revision <= b.head and b.committed_at <> l.committed_at order by 1 limit 1
"""


async def differences(session: PostgresSession) -> tuple[list[str], str]:
    """Return what is not as this version makes it, and why the definitions were not compared ("": they were).

    The session must be in no transaction.
    """
    found = [*await _of_migrations(session), *await _of_classes(session)]
    found += [
        f"the batch up to revision {row[0]} has another time than its changes" for row in await session.fetch(_BATCHES)
    ]
    if len(await session.fetch(_MIGRATIONS)) > len(migrations()):
        return found, "a newer version has migrated the database"
    script = resources.files(PACKAGE).joinpath(WHOLE).read_text(encoding="utf-8")
    try:
        await session.execute(f"{_BEGIN};\n{_WORD.sub(lambda found: BESIDE[found[1]], script)}")
        await session.execute("set local search_path = pg_catalog")
        present = await _definitions(session, list(SCHEMAS), ["chronicle"])
        expected = await _definitions(session, list(BESIDE.values()), [BESIDE["chronicle"]])
    except ConnectionLost:
        raise
    except LogError as error:
        return found, str(error)
    finally:
        if not session.closed:
            await session.execute("rollback")
    own = {(kind, _back(name)): _back(text) for (kind, name), text in expected.items()}
    return found + _compared(present, own), ""


def _back(text: str) -> str:
    return _BACK.sub(lambda found: _NAMES[found[1]], text)


async def _definitions(
    session: PostgresSession, schemas: list[str], open_schemas: list[str]
) -> dict[tuple[str, str], str]:
    rows = await session.fetch(_DEFINITIONS, schemas, open_schemas)
    return {(row["kind"], row["name"]): row["definition"] for row in rows}


def _compared(present: Mapping[tuple[str, str], str], own: Mapping[tuple[str, str], str]) -> list[str]:
    found = []
    for kind, name in sorted(present.keys() | own.keys()):
        if (kind, name) not in own:
            found.append(f"{kind} {name} is none of this version")
        elif (kind, name) not in present:
            found.append(f"{kind} {name} of this version is missing")
        elif present[kind, name] != own[kind, name]:
            found.append(f"{kind} {name} is another one than in this version")
    return found


async def _of_migrations(session: PostgresSession) -> list[str]:
    recorded = {row[0]: row[1] for row in await session.fetch(_MIGRATIONS)}
    known = {migration.number: migration for migration in migrations()}
    return [
        f"migration {number:04}_{known[number].name} is recorded with another text"
        for number, digest in sorted(recorded.items())
        if number in known and known[number].sha256 != digest
    ]


async def _of_classes(session: PostgresSession) -> list[str]:
    """Compare the retention classes: a resource of another class loses its history sooner."""
    present = {row[0]: row[1] for row in await session.fetch(_CLASSES)}
    own = dict.fromkeys(SHORT, "short")
    return [
        f"the retention class of {name} is {present.get(name, 'long')}, not {own.get(name, 'long')}"
        for name in sorted(present.keys() | own.keys())
        if present.get(name) != own.get(name)
    ]

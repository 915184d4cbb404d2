"""The end of a log and the namespaces of its objects, by which the logs of one cluster are compared after a restore."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.postgres.session import PostgresSession

NAMESPACES: Final = "namespaces"

_END: Final = """
select h.revision, h.committed_at, j.first, j.last, j.about
from kubechronicle.head h left join lateral (
    select first, last, about from kubechronicle.jumps
    where starts_with(about, '{"jump":"restore"') order by last desc limit 1) j on true
"""
# $1 resources. One pass over their live objects.
_NAMESPACES: Final = """
select namespace, count(*) as objects from kubechronicle.live
where resource = any ($1::text[]) and namespace <> '' group by namespace
"""
# $1 names of namespaces.
_PRESENT: Final = f"""
select name from kubechronicle.live
where resource = '{NAMESPACES}' and namespace = '' and name = any ($1::text[])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The newest state of a log.

    ``committed_at``: of its newest change.
    ``bumped_at``: the time at which revisions were passed over after its newest restore; None: never.
    ``is_fresh``: nothing was appended since then.
    """

    committed_at: datetime
    bumped_at: datetime | None = None
    is_fresh: bool = False


async def end_of(session: PostgresSession) -> End:
    """Return the end of a log. LogError, LogCorrupt."""
    row = (await session.fetch(_END))[0]
    if row["last"] is None:
        return End(committed_at=row["committed_at"])
    try:
        jump = jumps.parse(row["first"], row["last"], row["about"])
    except ValueError as error:
        raise LogCorrupt(f"the jump to revision {row['last']}: {error}") from None
    return End(committed_at=row["committed_at"], bumped_at=jump.at, is_fresh=jump.last == row["revision"])


async def namespaces_of(session: PostgresSession, resources: Collection[str]) -> dict[str, int]:
    """Return the number of present objects of these resources, by namespace. LogError."""
    return {row["namespace"]: row["objects"] for row in await session.fetch(_NAMESPACES, list(resources))}


async def absent_namespaces(session: PostgresSession, names: Collection[str]) -> Sequence[str]:
    """Return the namespaces among ``names`` that do not exist in a main log. LogError."""
    present = {row["name"] for row in await session.fetch(_PRESENT, list(names))}
    return sorted(set(names) - present)


# -- bumping -----------------------------------------------------------------------------------------------------------
#
# Jumps of a log to a higher revision, so that no revision that clients know is given to another change.
#
# After a restore, clients may hold revisions of changes that are lost. With etcd, their watches would go on silently
# from there, and miss the changes that got those numbers meanwhile. The jump makes the numbers of the lost changes
# known: a watch or list from one of them is answered with 410 Expired, and informers list again.


async def bump_revisions(session: PostgresSession, by: int) -> Jump:
    """Add ``by`` to the newest revision, while no server uses the log. NotSoleAppender: one does."""
    jump = await _jump(session, by, jumps.RESTORE)
    assert jump is not None
    return jump


async def begin_at(session: PostgresSession, revision: int) -> None:
    """Let an empty log begin behind a revision. Nothing happens to one that has begun. NotSoleAppender."""
    await _jump(session, revision, jumps.START)


async def _jump(session: PostgresSession, by: int, reason: str) -> Jump | None:
    await session.execute("begin")
    try:
        await session.fetch("select 1 from kubechronicle.state for update")  # first of all locks, as in each function
        rows = await session.fetch("select revision, clock_timestamp() from kubechronicle.head")
        revision, now = rows[0]
        if revision and reason == jumps.START:
            await session.execute("rollback")
            return None
        jump = jumps.make(first=revision + 1, last=revision + by, reason=reason, at=now)
        await session.fetch("select kubechronicle.jump($1, $2)", jump.last, jump.about)
        await session.execute("commit")
    except BaseException:
        session.terminate()
        raise
    return jump

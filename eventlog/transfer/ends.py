"""The end of a log and the namespaces of its objects, by which the logs of one cluster are compared after a restore."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kubechronicle.eventlog.errors import LogCorrupt
from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.postgres.session import Session

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


async def end_of(session: Session) -> End:
    """Return the end of a log. LogError, LogCorrupt."""
    row = (await session.fetch(_END))[0]
    if row["last"] is None:
        return End(committed_at=row["committed_at"])
    try:
        jump = jumps.parse(row["first"], row["last"], row["about"])
    except ValueError as error:
        raise LogCorrupt(f"the jump to revision {row['last']}: {error}") from None
    return End(committed_at=row["committed_at"], bumped_at=jump.at, is_fresh=jump.last == row["revision"])


async def namespaces_of(session: Session, resources: Collection[str]) -> dict[str, int]:
    """Return the number of present objects of these resources, by namespace. LogError."""
    return {row["namespace"]: row["objects"] for row in await session.fetch(_NAMESPACES, list(resources))}


async def absent_namespaces(session: Session, names: Collection[str]) -> Sequence[str]:
    """Return the namespaces among ``names`` that do not exist in a main log. LogError."""
    present = {row["name"] for row in await session.fetch(_PRESENT, list(names))}
    return sorted(set(names) - present)

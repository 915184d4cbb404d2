"""Jumps of a log to a higher revision, so that no revision that clients know is given to another change.

After a restore, clients may hold revisions of changes that are lost. With etcd, their watches would go on silently from
there, and miss the changes that got those numbers meanwhile. The jump makes the numbers of the lost changes known: a
watch or list from one of them is answered with 410 Expired, and informers list again.
"""

from __future__ import annotations

from kubechronicle.eventlog.integrity import jumps
from kubechronicle.eventlog.integrity.jumps import Jump
from kubechronicle.eventlog.postgres.session import Session


async def bump_revisions(session: Session, by: int) -> Jump:
    """Add ``by`` to the newest revision, while no server uses the log. NotSoleAppender: one does."""
    jump = await _jump(session, by, jumps.RESTORE)
    assert jump is not None
    return jump


async def begin_at(session: Session, revision: int) -> None:
    """Let an empty log begin behind a revision. Nothing happens to one that has begun. NotSoleAppender."""
    await _jump(session, revision, jumps.START)


async def _jump(session: Session, by: int, reason: str) -> Jump | None:
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

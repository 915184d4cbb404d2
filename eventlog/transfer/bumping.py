"""bump_revisions: let the log go on at a higher revision, so that no revision that clients know is given again.

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
    await session.execute("begin")
    try:
        rows = await session.fetch("select revision, clock_timestamp() from kubechronicle.head for update")
        revision, now = rows[0]
        jump = jumps.make(first=revision + 1, last=revision + by, reason=jumps.RESTORE, at=now)
        await session.fetch("select kubechronicle.jump($1, $2)", jump.last, jump.about)
        await session.execute("commit")
    except BaseException:
        session.terminate()
        raise
    return jump

"""The check of the state beside the log: recorded drops, marks, and confidential resources. See drops.py."""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.eventlog.integrity import drops
from kubechronicle.eventlog.integrity.chain import ChainCheck, ChainProblem
from kubechronicle.eventlog.integrity.checkpoints import Checkpoint
from kubechronicle.eventlog.integrity.drops import Drop, DropCheck
from kubechronicle.eventlog.integrity.marks import MarkMove, wrong_marks
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.session import PostgresSession

_MARKS = "select revision, compacted_long, compacted_of from kubechronicle.head"
_CONFIDENTIAL = "select resource from kubechronicle.confidential_resources order by 1"
_SHORT = (
    "select resource::text from kubechronicle.resource_classes where class = 'short' order by resource collate \"C\""
)
DROPS = f"""
select r.revision, r.committed_at, r.object from kubechronicle.live e cross join lateral (
    select revision, committed_at, object from kubechronicle.log where revision = e.revision
    union all
    select revision, committed_at, object from kubechronicle.kept where revision = e.revision limit 1) r
where e.resource = '{drops.RESOURCE}' order by 1
"""


async def recorded_drops(session: PostgresSession) -> tuple[list[Drop], ChainProblem | None]:
    """Return the drops that the log records; their entries are proved later, with the chain."""
    found = []
    for row in await session.fetch(DROPS):
        try:
            found.append(drops.parse(row["object"], revision=row["revision"], dropped_at=row["committed_at"]))
        except ValueError as error:
            return [], ChainProblem(revision=row["revision"], message=str(error))
    return found, None


async def compare_state(
    session: PostgresSession,
    check: ChainCheck,
    drop_check: DropCheck,
    checkpoints: Sequence[Checkpoint],
    moves: Sequence[MarkMove],
) -> ChainProblem | None:
    """Compare the marks, the retention classes and the confidential resources with the log and with checkpoints."""
    marks = rows.head((await session.fetch(_MARKS))[0])
    if wrong := wrong_marks(moves, marks):
        return ChainProblem(revision=0, message=wrong)
    classes = tuple(row[0] for row in await session.fetch(_SHORT))
    for each in checkpoints:
        if each.moves is not None and not _has_move(moves, *each.moves):
            message = "the moves of marks up to here are not those of the time of a checkpoint"
            return ChainProblem(revision=each.revision, message=message)
    newest = max(checkpoints, key=lambda each: each.revision, default=None)  # a later version may add classes
    if newest is not None and newest.short is not None and newest.short != classes:
        message = f"the resources of the class short are {_listed(classes)}, not {_listed(newest.short)} as noted"
        return ChainProblem(revision=newest.revision, message=message)
    noted = [each for each in checkpoints if each.marks is not None]
    for each in noted:
        assert each.marks is not None
        if back := drops.marks_moved_back(each.marks, marks):
            message = f"the mark of {back} is lower than when a checkpoint was signed at this revision"
            return ChainProblem(revision=each.revision, message=message)
    found = drop_check.finish(marks, [(each.revision, each.marks) for each in noted if each.marks is not None])
    if found is not None:
        return ChainProblem(revision=found[0], message=found[1])
    confidential = tuple(row[0] for row in await session.fetch(_CONFIDENTIAL))
    expected = check.confidential
    if expected is None:
        newest = max(noted, key=lambda each: each.revision, default=None)
        expected = newest.confidential if newest is not None else drops.ALWAYS
    if confidential != expected:
        message = f"the confidential resources are {_listed(confidential)}, but the log says {_listed(expected)}"
        return ChainProblem(revision=check.revision, message=message)
    return None


def _has_move(moves: Sequence[MarkMove], number: int, hash_: bytes) -> bool:
    return number == 0 or (number <= len(moves) and moves[number - 1].hash == hash_)


def _listed(resources: Sequence[str]) -> str:
    return ", ".join(resources) or "none"

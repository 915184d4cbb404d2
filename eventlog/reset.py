"""Reset: brings all objects back to their state at a marked revision, for servers of tests.

A reset is a transaction like any other, so watches report it, and history keeps the changes before it. Objects created
since the mark are deleted, also those with finalizers. Changed and deleted ones are as they were:

    mark = 230     create configmaps/default/a    231
                   update nodes/one               232
    reset          update nodes/one               233  with the contents of its last revision up to 230
                   delete configmaps/default/a    234
    mark = 234
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from kubechronicle.eventlog.appender import Appender
from kubechronicle.eventlog.errors import RejectedError
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Change, Key, Operation, Record, Transaction, Who

ROWS: Final = 1000  # of one read of the log
PATIENCE: Final = 30.0  # seconds for one transaction
QUIET: Final = 0.05  # seconds without a change, after which the control loops have followed the last one
LONGEST_UNREST: Final = 3.0  # seconds
PASSES: Final = 5
"""A control loop may write while a pass is under way. The next pass undoes its write. The last pass finds none."""


class Done(NamedTuple):
    """``mark``: the new mark, which has the state of the former one. It is the former one if somebody writes on."""

    mark: int
    deleted: int
    restored: int


class Reset:
    """``keeps``: tells the keys that a reset leaves as they are.

    ``forget``: called with a revision up to which history is not needed any more: that of the mark before the last one.
    So the changes before a reset can be read until the next one.
    """

    def __init__(
        self, log: RevisionLog, appender: Appender, keeps: Callable[[Key], bool], forget: Callable[[int], object]
    ) -> None:
        self._log = log
        self._appender = appender
        self._keeps = keeps
        self._forget = forget
        self._mark: int | None = None
        self._turn = trio.Lock()

    async def mark(self) -> int:
        """Mark the present state, as soon as the control loops rest, and return its revision."""
        async with self._turn:
            self._mark = await self._quiet_head()
            return self._mark

    async def _quiet_head(self) -> int:
        latest = trio.current_time() + LONGEST_UNREST
        former, newest = -1, (await self._log.head()).revision
        while former != newest and trio.current_time() < latest:
            await trio.sleep(QUIET)
            former, newest = newest, (await self._log.head()).revision
        return newest

    async def reset(self, who: Who) -> Done | None:
        """Bring all objects back to their state at the mark. None: there is no mark. LogError."""
        async with self._turn:
            if self._mark is None:
                return None
            deleted = restored = 0
            for _ in range(PASSES):
                changes, newest = await self._differences(self._mark)
                if not changes:
                    self._forget(self._mark)
                    self._mark = newest
                    break
                transaction = Transaction(changes=tuple(changes), who=who)
                try:
                    await self._appender.append(transaction, deadline=trio.current_time() + PATIENCE)
                except RejectedError:  # somebody else was faster
                    continue
                gone = sum(change.operation is Operation.DELETE for change in changes)
                deleted, restored = deleted + gone, restored + len(changes) - gone
            return Done(self._mark, deleted, restored)

    async def _differences(self, mark: int) -> tuple[list[Change], int]:
        """Return the changes that lead from the newest state to the marked one, and the revision of the newest one.

        First come the objects that are restored.
        """
        changed, newest = await self._changed_keys(mark)
        restored, deleted = [], []
        for key in changed:
            before = await self._log.get_at(key, revision=mark)
            now = await self._log.get_at(key, revision=newest)
            if before is not None and (now is None or now.body != before.body):
                restored.append(_to(before, now))
            elif before is None and now is not None:
                deleted.append(_change(now, now, Operation.DELETE))
        return [*restored, *reversed(deleted)], newest

    async def _changed_keys(self, mark: int) -> tuple[list[Key], int]:
        """Return the keys with changes since the mark, in the order of their first ones, and the newest revision."""
        keys: dict[Key, None] = {}
        newest = mark
        while True:
            rows = await self._log.read(after=newest, limit=ROWS)
            keys.update((row.key, None) for row in rows if not self._keeps(row.key))
            newest = rows[-1].revision if rows else newest
            if rows.is_last(ROWS):
                return list(keys), newest


def _to(before: Record, now: Record | None) -> Change:
    return _change(before, now, Operation.CREATE if now is None else Operation.UPDATE)


def _change(wanted: Record, now: Record | None, operation: Operation) -> Change:
    return Change(
        key=wanted.key,
        uid=wanted.uid,
        expected=now.revision if now is not None else 0,
        operation=operation,
        body=wanted.body,
    )

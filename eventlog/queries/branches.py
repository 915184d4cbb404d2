"""The changes of branches: a small log of its own for each, beside the main log and its hash chain.

A branch begins at a revision of the main log, its base. Its changes have the revisions after that, so the numbers above
the base mean other changes in the branch than in the main log:

    main log    … 40  41  42  43                     the base is 41
    branch            41  42' 43' 44'

Both logs have such a table (Postgres and memory); BranchLog (eventlog/branch_log.py) makes a RevisionLog of it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.queries.changes import Chunk
from kubechronicle.eventlog.records import Key, Record, Who

MOST_BYTES: Final = 64 * 1024 * 1024
MOST_CHANGES: Final = 50_000
"""Bounds of one branch: bytes of its objects, and changes. The views of each server that serves it hold them."""
EVERYTHING: Final = Key("", "", "")


class BranchHead(NamedTuple):
    """The newest revision of a branch, and the size of its changes.

    ``epoch``: an append of an earlier epoch is rejected, so that a lost one cannot commit late.
    ``erased``: the changes were dropped, because contents of history were erased.
    """

    base: int
    revision: int
    changes: int
    bytes: int
    epoch: int
    erased: bool = False


class BranchOutcome(enum.Enum):
    """The outcome of an append."""

    APPENDED = "appended"
    BEHIND = "behind"
    FULL = "full"
    GONE = "gone"


class BranchAnswer(NamedTuple):
    """The answer to an append or a settlement. ``committed_at``: of APPENDED. ``epoch``: the present one."""

    outcome: BranchOutcome
    epoch: int
    committed_at: datetime | None = None


class BranchGone(LogError):
    """The branch has no changes in the database any more: it was deleted, or contents of history were erased."""

    def __init__(self, *, erased: bool) -> None:
        why = "its changes were dropped when contents of history were erased" if erased else "it was deleted"
        super().__init__(f"this branch is gone: {why}")


class BranchFull(LogError):
    """The branch has as many changes, or as many bytes of them, as it may have. Nothing was committed."""

    def __init__(self) -> None:
        super().__init__(
            f"this branch is full: it may have {MOST_CHANGES} changes and {MOST_BYTES // 2**20} MiB of objects in "
            "them; delete it, and create another one"
        )


class BranchTable(Protocol):
    """The changes of all branches. Every call may raise LogUnavailable."""

    async def open(self, branch: UUID, base: int) -> BranchHead:
        """Return the head of a branch, which begins now if it is not there, and note its use."""
        ...

    async def head(self, branch: UUID) -> BranchHead | None:
        """Return the head of a branch; None: it is not there."""
        ...

    async def append(
        self, branch: UUID, batch: UUID, epoch: int, records: Sequence[Record], who: Sequence[Who]
    ) -> BranchAnswer:
        """Append records that begin after the head, all or none, and note the use.

        A repetition of the same batch has the same answer. OutcomeUnknown: call ``settle``.
        """
        ...

    async def settle(self, branch: UUID, batch: UUID) -> BranchAnswer:
        """Return the outcome of a batch: APPENDED, or BEHIND if it never will commit."""
        ...

    async def read(
        self, branch: UUID, *, after: int, limit: int, until: int = 0, scope: Key = EVERYTHING
    ) -> Chunk[Record]:
        """Return records in revision order, without ``who``. ``until`` 0: to the end. ``scope``: "" stands for any."""
        ...

    async def get_at(self, branch: UUID, key: Key, *, revision: int) -> Record | None:
        """Return the newest record of a key up to a revision, which may be a deletion."""
        ...

    async def authors(self, branch: UUID, revisions: Sequence[int]) -> Mapping[int, Who]:
        """Return the authors of records."""
        ...

    async def note_use(self, branch: UUID) -> None:
        """Note that the branch is in use."""
        ...

    async def unused_since(self) -> Mapping[UUID, datetime]:
        """Return the time of the last use of each branch."""
        ...

    async def remove(self, branches: Collection[UUID]) -> None:
        """Drop the changes of branches."""
        ...

    async def wait_changed(self, branch: UUID) -> None:
        """Return when another server may have appended to the branch, or after a while."""
        ...

"""BranchTail: the tail of a branch, which loads the base, and then applies the changes of the branch as events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubechronicle.eventlog.branches.branch_log import BranchLog
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.records import Head
from kubechronicle.eventlog.tail import Tail
from kubechronicle.eventlog.views.views import Views

LoadBase = Callable[[], Awaitable[dict[str, list[Entry]]]]
"""Return all objects as of the base, by resource."""


class BranchTail(Tail):
    """``log``: of the branch; ``over``: the same, decrypted. ``load_base``: called again after a crash."""

    def __init__(self, log: BranchLog, over: RevisionLog, views: Views, load_base: LoadBase) -> None:
        super().__init__(over, views)
        self._of_branch = log
        self._load_base = load_base
        self._base: dict[str, list[Entry]] | None = None

    async def prepare(self) -> None:
        """Load the base before the tail runs, so that its errors reach the caller."""
        self._base = await self._load_base()

    def end(self) -> None:
        """End all watches: the branch is closed here. Their clients list again."""
        self.views.load({}, Head(revision=self.views.applied, compacted=self.views.applied), restart=True)

    async def _read_everything(self) -> tuple[Head, dict[str, list[Entry]]]:
        base, self._base = self._base, None
        self._of_branch.reset()
        head = Head(revision=self._of_branch.base, compacted=self._of_branch.base)
        return head, await self._load_base() if base is None else base

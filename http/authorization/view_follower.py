"""A follower of a view: keeps an index up to date. The index catches up before each use.

A Following is the task that does most of it before, in short steps: after the start, and after many changes at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol

import trio

from kubechronicle.actors.pauses import Pauses
from kubechronicle.eventlog.entries import Entry, Event
from kubechronicle.eventlog.records import Operation

FEW: Final = 64
"""Changes that are left to the next question."""


class EventsAfter(Protocol):
    """The recent events of a view (eventlog.views.window.Window)."""

    @property
    def events(self) -> Sequence[Event]: ...

    def after(self, revision: int) -> int: ...


class FollowedView(Protocol):
    """The part of a View that authorizers read: of the present one, or of the state at a moment (past.py)."""

    @property
    def applied(self) -> int: ...

    @property
    def held_since(self) -> int: ...

    @property
    def window(self) -> EventsAfter: ...

    def entries(self, namespace: str = "") -> Sequence[Entry]: ...

    def get(self, namespace: str, name: str) -> Entry | None: ...


class FollowedViews(Protocol):
    def __getitem__(self, resource: str) -> FollowedView: ...


Take = Callable[[str, str, Entry | None], None]
"""Called with each changed object: (namespace, name, its entry, None if it is deleted)."""


class ViewFollower:
    """Passes the changes of one view to ``take``, from the last seen revision on."""

    def __init__(self, view: FollowedView, take: Take) -> None:
        self._view = view
        self._take = take
        self._seen = -1
        self._known: dict[tuple[str, str], Entry] = {}
        self._restarts = 0

    def catch_up(self) -> bool:
        """Pass on all changes since the last call. Returns whether there were any."""
        view = self._view
        if self._seen >= view.held_since and view.window.after(self._seen) == len(view.window.events):
            return False
        for _ in self.steps():
            pass
        return True

    def steps(self) -> Iterator[None]:
        """Pass on all changes, one in each step. Between two steps, ``catch_up`` may do the rest."""
        window = self._view.window
        while True:
            if self._seen < self._view.held_since:
                yield from self._restart()
            first = window.after(self._seen)
            if first == len(window.events):
                return
            event = window.events[first]
            self._seen = event.revision
            self._one(event.entry, gone=event.operation is Operation.DELETE)
            yield

    def _restart(self) -> Iterator[None]:
        """Pass on the changes between the known objects and the whole state, with the deletions.

        Needed when the history in memory does not reach back to the last seen revision. A later restart ends this one.
        """
        self._restarts += 1
        mine, applied, entries = self._restarts, self._view.applied, self._view.entries()
        present = {entry.key[1:] for entry in entries}
        for namespace, name in self._known.keys() - present:
            del self._known[(namespace, name)]
            self._take(namespace, name, None)
        for entry in entries:
            if self._known.get(entry.key[1:]) is not entry:
                self._one(entry, gone=False)
                yield
                if mine != self._restarts:
                    return
        self._seen = applied

    def _one(self, entry: Entry, *, gone: bool) -> None:
        _, namespace, name = entry.key
        if gone:
            self._known.pop((namespace, name), None)
        else:
            self._known[(namespace, name)] = entry
        self._take(namespace, name, None if gone else entry)


class Following:
    """Lets followers catch up, until cancelled. ``finish``: does the rest of the work after that.

    ``runs``: False before the task has begun and after it has ended: then whoever asks does all work.
    """

    def __init__(self, followers: Sequence[ViewFollower], finish: Callable[[], Awaitable[None]] | None = None) -> None:
        self.runs = False
        self._followers = followers
        self._finish = finish
        self._left = 0  # changes that the task has not been told of
        self._changed, self._done = trio.Event(), trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self.runs = True
        try:
            await self._catch_up()
            task_status.started()
            while True:
                await self._changed.wait()
                await self._catch_up()
        finally:
            self.runs = False
            self._done.set()

    async def _catch_up(self) -> None:
        self._changed, self._left = trio.Event(), 0
        pauses = Pauses()
        for follower in self._followers:
            await pauses.take(follower.steps())
        if self._finish is not None:
            await self._finish()
        self._done.set()
        self._done = trio.Event()

    def wake(self, events: Sequence[Event] | None) -> None:
        """Let the task take changes, if they are many. Called with each of them; None: with everything."""
        self._left += FEW if events is None else len(events)
        if self._left >= FEW:
            self._changed.set()

    async def wait(self) -> None:
        """Wait until the task has done its work, or ends."""
        if self.runs:
            self._changed.set()
            await self._done.wait()

"""The actor of one resource type: it decides every write of that type, one key at a time.

A request prepares its object outside (read, patch, default, admit, validate) and sends a Commit. The actor knows the
revision of each key in the view, and the keys with a commit in flight. ``decide`` is pure; nothing here awaits a
webhook, a client or a query. The log checks the expected revision again at commit, so a view that lags behind another
replica costs a rejection, never a wrong write.

    Commit(a, expected 7)   view: a at 7            -> Append            a is in flight
    Commit(b, expected 0)   view: b absent          -> Append            a and b are in flight together
    Commit(a, expected 7)   a in flight             -> Wait              behind the first
    (a commits as 8)                                -> the second: expected 7, view says 8 -> Conflict(actual 8)

While the actor sleeps on an empty mailbox, a sender handles its own message at once, because waking the actor's task
would cost more than the decision. An exception raised then still counts as the actor's crash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
import trio

from kubechronicle.actors.errors import ActorCrashed, MailboxFull
from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.records import Change, Key, Record, Rejected, Transaction

# -- mailbox -----------------------------------------------------------------------------------------------------------
#
# A bounded mailbox: the only way into an actor.
#
# It outlives the actor's incarnations: messages in it when the actor crashes are handled by the next one. Messages are
# received in the order of their arrival, by one task. Any task of the same trio run may send.

M = TypeVar("M")

DEFAULT_CAPACITY = 4096
"""Several times the requests that --max-mutating-requests-inflight admits. More would turn overload into timeouts."""


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """Messages ``waiting`` now; ``received`` and ``refused`` since start."""

    waiting: int
    received: int
    refused: int


class Mailbox(Generic[M]):
    def __init__(self, owner: str, *, capacity: int = DEFAULT_CAPACITY) -> None:
        self._owner = owner
        self._capacity = capacity
        self._messages: deque[M] = deque()
        self._reader: trio.lowlevel.Task | None = None
        self._received = 0
        self._refused = 0

    def put_nowait(self, message: M, *, reserved: bool = False) -> None:
        """Put a message in the mailbox. MailboxFull: it is at its capacity.

        ``reserved``: never reject the message: it answers a request of the actor, which bounds their number.
        """
        if len(self._messages) >= self._capacity and not reserved:
            self._refused += 1
            raise MailboxFull(self._owner, self._capacity)
        self._messages.append(message)
        if self._reader is not None:
            trio.lowlevel.reschedule(self._reader)
            self._reader = None

    @property
    def idle(self) -> bool:
        """True while the reader sleeps on an empty mailbox: it would handle a message put now before any other."""
        return self._reader is not None

    async def wait_not_empty(self) -> None:
        """Return once a message is in the mailbox. One reader only."""
        if self._messages:
            await trio.lowlevel.checkpoint()
            return
        if self._reader is not None:
            raise trio.BusyResourceError(f"two tasks read the mailbox of {self._owner}")
        self._reader = trio.lowlevel.current_task()

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._reader = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def take_nowait(self) -> M | None:
        """Remove and return the oldest message, or None."""
        if not self._messages:
            return None
        self._received += 1
        return self._messages.popleft()

    def statistics(self) -> MailboxStatistics:
        return MailboxStatistics(len(self._messages), self._received, self._refused)


# -- resource actor ----------------------------------------------------------------------------------------------------

CommitOutcome = tuple[Record, ...] | Rejected | Exception

"""The outcome of a transaction: its records, the log's rejection, or an error (LogUnavailable, OutcomeUnknown…)."""

MAX_WAITING_PER_KEY = 512
"""Commits that may wait for one key. A client that writes one object faster gets 429 instead of an endless queue."""


class Submit(Protocol):
    """Submit a transaction to the appender.

    The appender calls ``done`` once with the outcome, after a commit is durable and applied to the local view. It
    raises an error like MailboxFull at its capacity. ``deadline``: trio time.
    """

    def __call__(self, transaction: Transaction, done: Callable[[CommitOutcome], None], *, deadline: float) -> None: ...


class Commit:
    """A transaction to commit. The key of its main change decides its actor.

    ``wait()`` returns the outcome, to one task. If its caller is cancelled or late, a commit that is not submitted yet
    is dropped (``abandoned``).
    """

    __slots__ = ("_waiting", "abandoned", "deadline", "outcome", "submitted", "transaction")

    def __init__(self, transaction: Transaction, *, deadline: float) -> None:
        self.transaction = transaction
        self.deadline = deadline
        self.outcome: CommitOutcome | None = None
        self.submitted = False
        self.abandoned = False
        self._waiting: trio.lowlevel.Task | None = None

    @property
    def change(self) -> Change:
        """The main change."""
        return self.transaction.changes[self.transaction.main]

    def finish(self, outcome: CommitOutcome) -> None:
        self.outcome = outcome
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    def wait(self, *, limited: bool = False) -> Awaitable[CommitOutcome]:
        """Return the outcome. At the deadline it is an error: nothing happened, or the outcome is not known yet.

        ``limited``: the caller is cancelled at the deadline or soon after, so no timer is needed here.
        """
        return self._wait() if limited else self._wait_until_deadline()

    async def _wait_until_deadline(self) -> CommitOutcome:
        with trio.move_on_at(self.deadline):
            return await self._wait()
        if self.outcome is not None:
            return self.outcome
        if self.submitted:
            return OutcomeUnknownForNow("the deadline passed before the outcome was known")
        return LogUnavailable("the deadline passed before the change was sent")

    async def _wait(self) -> CommitOutcome:
        if self.outcome is None:
            self._waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        else:
            await trio.lowlevel.checkpoint()
        assert self.outcome is not None
        return self.outcome

    def _abandon(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        self._waiting = None
        self.abandoned = True
        return trio.lowlevel.Abort.SUCCEEDED


class Finished(msgspec.Struct, frozen=True):
    """Message: the commit of this key is finished."""

    key: Key


class Crashed(msgspec.Struct, frozen=True):
    """Message: a sender's handling of a message failed. The actor raises its error."""

    error: Exception


# -- the decision -----------------------------------------------------------------------------------------------------


class KeyState(msgspec.Struct, frozen=True):
    """The actor's knowledge of a key: its revision in the view (0: absent), and if a commit is in flight."""

    revision: int
    in_flight: bool


class Append(msgspec.Struct, frozen=True):
    """The commit may go to the log."""


class Wait(msgspec.Struct, frozen=True):
    """Another commit of the key is in flight. Decide again when it has finished."""


class WriteConflict(msgspec.Struct, frozen=True):
    """The key is not at the expected revision."""

    actual: int


Decision = Append | Wait | WriteConflict
APPEND, WAIT = Append(), Wait()


def decide(state: KeyState, expected: int) -> Decision:
    """Decide if a commit that expects the key at ``expected`` (0: absent) may be appended now.

    An expectation above the view's revision is appended: the request was prepared on a newer state, another replica's
    write, than this view has applied. The log decides it.
    """
    if state.in_flight:
        return WAIT
    if expected == state.revision or expected > state.revision:
        return APPEND
    return WriteConflict(state.revision)


# -- the actor --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceActorStatistics:
    """Current ``in_flight`` keys and ``waiting`` commits; ``decided`` commits and ``conflicts`` since start."""

    in_flight: int
    waiting: int
    decided: int
    conflicts: int


class ResourceActor:
    """``current_revision(namespace, name)``: the view's. ``submit``: the appender's."""

    def __init__(
        self,
        resource: str,
        *,
        current_revision: Callable[[str, str], int],
        submit: Submit,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        self.resource = resource
        self._current_revision = current_revision
        self._submit = submit
        self._mailbox: Mailbox[Commit | Finished | Crashed] = Mailbox(resource, capacity=capacity)
        self._in_flight: dict[Key, deque[Commit]] = {}  # key → commits waiting for the one in flight
        self._deciding: Commit | None = None
        self._decided = 0
        self._conflicts = 0

    def begin(self, transaction: Transaction, *, deadline: float) -> Commit:
        """Send a transaction. Its outcome is returned by ``Commit.wait``. MailboxFull: nothing happened."""
        commit = Commit(transaction, deadline=deadline)
        self._put(commit)
        return commit

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Handle messages forever.

        A new incarnation starts with no commits in flight. The appender still answers those of the last one, and the
        log rejects writes that conflict with them.
        """
        self._in_flight = {}
        task_status.started()
        try:
            while True:
                await self._mailbox.wait_not_empty()
                while (message := self._mailbox.take_nowait()) is not None:
                    self._handle(message)
        finally:
            self._fail_undecided()

    def _put(self, message: Commit | Finished, *, reserved: bool = False) -> None:
        """Handle the message here if the actor sleeps, else put it in the mailbox. See the head of this file."""
        if not self._mailbox.idle:
            self._mailbox.put_nowait(message, reserved=reserved)
            return
        try:
            self._handle(message)
        except Exception as error:
            self._mailbox.put_nowait(Crashed(error), reserved=True)

    def _handle(self, message: Commit | Finished | Crashed) -> None:
        if isinstance(message, Commit):
            self._receive(message)
        elif isinstance(message, Finished):
            self._finished(message.key)
        else:
            raise message.error

    def _receive(self, commit: Commit) -> None:
        if commit.abandoned:
            return
        self._deciding = commit
        change = commit.change
        key, expected = change.key, change.expected
        waiting = self._in_flight.get(key)
        decision = decide(KeyState(self._current_revision(key.namespace, key.name), waiting is not None), expected)
        self._decided += 1
        if isinstance(decision, Append):
            self._append(commit, key)
        elif isinstance(decision, WriteConflict):
            self._conflicts += 1
            commit.finish(Rejected(key=key, expected=expected, actual=decision.actual))
        elif waiting is not None and len(waiting) < MAX_WAITING_PER_KEY:
            waiting.append(commit)
        else:
            commit.finish(MailboxFull(f"{self.resource} {key.namespace}/{key.name}", MAX_WAITING_PER_KEY))
        self._deciding = None

    def _append(self, commit: Commit, key: Key) -> None:
        def done(outcome: CommitOutcome) -> None:
            commit.finish(outcome)
            self._put(Finished(key), reserved=True)

        try:
            self._submit(commit.transaction, done, deadline=commit.deadline)
        except Exception as error:
            commit.finish(error)  # the appender is at its capacity: nothing happened
            return
        commit.submitted = True
        self._in_flight.setdefault(key, deque())

    def _finished(self, key: Key) -> None:
        waiting = self._in_flight.pop(key, None)
        if waiting is None:
            return  # begun by an earlier incarnation
        try:
            while waiting and key not in self._in_flight:
                self._receive(waiting.popleft())
        finally:  # if that fails, _fail_undecided finds the others here
            if waiting:
                self._in_flight.setdefault(key, deque()).extend(waiting)

    def _fail_undecided(self) -> None:
        """Finish undecided commits with ActorCrashed when the incarnation ends. The mailbox keeps its messages."""
        undecided = [commit for waiting in self._in_flight.values() for commit in waiting]
        if self._deciding is not None and not self._deciding.submitted:
            undecided.append(self._deciding)
        self._deciding = None
        for commit in undecided:
            if commit.outcome is None:
                commit.finish(ActorCrashed(self.resource))

    def statistics(self) -> ResourceActorStatistics:
        waiting = sum(len(commits) for commits in self._in_flight.values())
        return ResourceActorStatistics(len(self._in_flight), waiting, self._decided, self._conflicts)

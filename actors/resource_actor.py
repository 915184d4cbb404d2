"""The actor of one resource type: it decides every write of that type, one key at a time.

A request prepares its object outside (read, patch, default, admit, validate) and sends a Commit. The actor holds two
facts: what the view says of a key, and which keys have a commit of its own in flight. ``decide`` is pure and never
waits; nothing here awaits a webhook, a client or a query. The log checks the expectation once more at commit, so a view
that lags behind another replica costs a refusal, never a wrong write.

    Commit(a, expected 7)   view: a at 7            -> Append            a is in flight
    Commit(b, expected 0)   view: b absent          -> Append            a and b are in flight together
    Commit(a, expected 7)   a in flight             -> Wait              behind the first
    (a commits as 8)                                -> the waiting one: expected 7, view says 8 -> Conflict(actual 8)

While the actor sleeps on an empty mailbox, whoever would put a message there handles it for the actor at once: waking a
task to decide costs a lone write more than the decision. Whatever goes wrong then is the actor's crash all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from kubechronicle.actors.errors import ActorCrashed, MailboxFull
from kubechronicle.actors.mailbox import DEFAULT_CAPACITY, Mailbox
from kubechronicle.eventlog.errors import LogUnavailable, OutcomeUnknownForNow
from kubechronicle.eventlog.records import Key, Record, Rejected, Transaction

# What became of a transaction: its records, the refusal, or why it could not be told (LogUnavailable, OutcomeUnknown…).
Outcome = tuple[Record, ...] | Rejected | Exception

# Commits that may wait behind one key. A client that hammers one object gets 429 instead of an endless queue.
MAX_WAITING_PER_KEY = 512


class Submit(Protocol):
    """The appender's way in: takes the transaction now, calls ``done`` once with the outcome, after it is durable and
    applied to the local view. Raises MailboxFull-like errors at its bound. ``deadline`` in trio time."""

    def __call__(self, transaction: Transaction, done: Callable[[Outcome], None], *, deadline: float) -> None: ...


class Commit:
    """A request's wish to commit a transaction whose first change has the key this actor owns.

    ``wait()`` gives the outcome, to one task. A commit taken back by a cancelled or late caller is dropped if it was
    not submitted.
    """

    __slots__ = ("_waiting", "abandoned", "deadline", "outcome", "submitted", "transaction")

    def __init__(self, transaction: Transaction, *, deadline: float) -> None:
        self.transaction = transaction
        self.deadline = deadline
        self.outcome: Outcome | None = None
        self.submitted = False
        self.abandoned = False
        self._waiting: trio.lowlevel.Task | None = None

    @property
    def key(self) -> Key:
        return self.transaction.changes[0].key

    def settle(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    async def wait(self, *, limited: bool = False) -> Outcome:
        """The outcome; at the deadline, what is known then: nothing happened, or it is not known yet. ``limited``:
        somebody cancels the caller at the deadline or soon after, and no timer has to be set for it once more."""
        try:
            if limited:
                await self._settled()
            else:
                with trio.move_on_at(self.deadline):
                    await self._settled()
        except trio.Cancelled:
            self.abandoned = True
            raise
        if self.outcome is None:
            self.abandoned = True
            if self.submitted:
                return OutcomeUnknownForNow("the deadline passed before the outcome was known")
            return LogUnavailable("the deadline passed before the change was sent")
        return self.outcome

    async def _settled(self) -> None:
        if self.outcome is not None:
            await trio.lowlevel.checkpoint()
            return
        self._waiting = trio.lowlevel.current_task()

        def abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
            self._waiting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


@dataclass(frozen=True, slots=True)
class Settled:
    """The appender is done with the commit of this key."""

    key: Key


@dataclass(frozen=True, slots=True)
class Crashed:
    """Handling a message while the actor slept failed: the actor is to fail of it."""

    error: Exception


# -- the decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyState:
    """What the actor knows of a key: its revision in the view (0: absent) and whether a commit is in flight."""

    revision: int
    in_flight: bool


@dataclass(frozen=True, slots=True)
class Append:
    """The commit may go to the log."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another commit of the key is in flight; decide again when it has settled."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The key is not at the expected revision."""

    actual: int


Decision = Append | Wait | Conflict
APPEND, WAIT = Append(), Wait()


def decide(state: KeyState, expected: int) -> Decision:
    """Whether a commit that expects the key at ``expected`` (0: absent) may be appended now.

    An expectation above the view's revision is let through: the preparing request saw a newer state (another replica's
    write) than this view has applied, and the log has the last word.
    """
    if state.in_flight:
        return WAIT
    if expected == state.revision or expected > state.revision:
        return APPEND
    return Conflict(state.revision)


# -- the actor --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceActorStatistics:
    """``in_flight`` keys and ``waiting`` commits now; ``decided`` and ``conflicts`` since start."""

    in_flight: int
    waiting: int
    decided: int
    conflicts: int


class ResourceActor:
    """``current_revision(namespace, name)`` is the view's; ``submit`` the appender's."""

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
        self._mailbox: Mailbox[Commit | Settled | Crashed] = Mailbox(resource, capacity=capacity)
        self._in_flight: dict[Key, deque[Commit]] = {}  # key -> the commits that wait behind the one in flight
        self._in_hand: Commit | None = None
        self._decided = 0
        self._conflicts = 0

    def begin(self, transaction: Transaction, *, deadline: float) -> Commit:
        """Hand a transaction over; await its outcome with ``Commit.wait``. MailboxFull: nothing happened."""
        commit = Commit(transaction, deadline=deadline)
        self._put(commit)
        return commit

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Handle messages forever. A new incarnation starts with no commits in flight: those of the last one are the
        appender's, their callers get their answers from it, and the log refuses what would clash with them."""
        self._in_flight = {}
        task_status.started()
        try:
            while True:
                await self._mailbox.wait_not_empty()
                while (message := self._mailbox.take_nowait()) is not None:
                    self._handle(message)
        finally:
            self._fail_undecided()

    def _put(self, message: Commit | Settled, *, reserved: bool = False) -> None:
        """Handle the message if the actor sleeps, else leave it in the mailbox. See the head of this file."""
        if not self._mailbox.idle:
            self._mailbox.put_nowait(message, reserved=reserved)
            return
        try:
            self._handle(message)
        except Exception as error:
            self._mailbox.put_nowait(Crashed(error), reserved=True)

    def _handle(self, message: Commit | Settled | Crashed) -> None:
        if isinstance(message, Commit):
            self._receive(message)
        elif isinstance(message, Settled):
            self._settled(message.key)
        else:
            raise message.error

    def _receive(self, commit: Commit) -> None:
        if commit.abandoned:
            return
        self._in_hand = commit
        key = commit.key
        waiting = self._in_flight.get(key)
        expected = commit.transaction.changes[0].expected
        decision = decide(KeyState(self._current_revision(key.namespace, key.name), waiting is not None), expected)
        self._decided += 1
        if isinstance(decision, Append):
            self._append(commit)
        elif isinstance(decision, Conflict):
            self._conflicts += 1
            commit.settle(Rejected(key=key, expected=expected, actual=decision.actual))
        elif waiting is not None and len(waiting) < MAX_WAITING_PER_KEY:
            waiting.append(commit)
        else:
            commit.settle(MailboxFull(f"{self.resource} {key.namespace}/{key.name}", MAX_WAITING_PER_KEY))
        self._in_hand = None

    def _append(self, commit: Commit) -> None:
        key = commit.key

        def done(outcome: Outcome) -> None:
            commit.settle(outcome)
            self._put(Settled(key), reserved=True)

        try:
            self._submit(commit.transaction, done, deadline=commit.deadline)
        except Exception as error:
            commit.settle(error)  # the appender's bound: certainly nothing happened
            return
        commit.submitted = True
        self._in_flight.setdefault(key, deque())

    def _settled(self, key: Key) -> None:
        waiting = self._in_flight.pop(key, None)
        if waiting is None:
            return  # begun by an earlier incarnation
        try:
            while waiting and key not in self._in_flight:
                self._receive(waiting.popleft())
        finally:  # should that fail, they are still held, and told of it (_fail_undecided)
            if waiting:
                self._in_flight.setdefault(key, deque()).extend(waiting)

    def _fail_undecided(self) -> None:
        """The incarnation ends: whoever it held undecided learns that nothing happened. The mailbox stays."""
        undecided = [commit for waiting in self._in_flight.values() for commit in waiting]
        if self._in_hand is not None and not self._in_hand.submitted:
            undecided.append(self._in_hand)
        self._in_hand = None
        for commit in undecided:
            if commit.outcome is None:
                commit.settle(ActorCrashed(self.resource))

    def statistics(self) -> ResourceActorStatistics:
        waiting = sum(len(commits) for commits in self._in_flight.values())
        return ResourceActorStatistics(len(self._in_flight), waiting, self._decided, self._conflicts)

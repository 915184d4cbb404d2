"""What can go wrong between a request and the log, as typed errors. The HTTP edge turns them into Status objects."""

from __future__ import annotations


class ActorError(Exception):
    """Base of the actors' own errors."""


class MailboxFull(ActorError):
    """The actor's mailbox is at its bound: nothing happened, try again later (HTTP 429)."""

    def __init__(self, actor: str, capacity: int) -> None:
        super().__init__(f"the mailbox of {actor} is full ({capacity} messages)")
        self.actor = actor
        self.capacity = capacity


class ActorCrashed(ActorError):
    """The actor died with this message in hand, before anything was appended: safe to send again."""

    def __init__(self, actor: str) -> None:
        super().__init__(f"{actor} crashed before it decided")
        self.actor = actor


class SupervisorGaveUp(ActorError):
    """A child kept dying: more than ``intensity`` restarts within ``period`` seconds. Escalates to the parent."""

    def __init__(self, supervisor: str, child: str, restarts: int, period: float) -> None:
        super().__init__(f"supervisor {supervisor}: {child} was restarted {restarts} times within {period:g} s")
        self.supervisor = supervisor
        self.child = child

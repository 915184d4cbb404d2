"""Errors between a request and the log. The HTTP server turns them into Status objects."""

from __future__ import annotations


class ActorError(Exception):
    """Base class of the actors' errors."""


class MailboxFull(ActorError):
    """The actor's mailbox is at its capacity: nothing happened, the client retries later (HTTP 429)."""

    def __init__(self, actor: str, capacity: int) -> None:
        super().__init__(f"the mailbox of {actor} is full ({capacity} messages)")
        self.actor = actor
        self.capacity = capacity


class ActorCrashed(ActorError):
    """The actor crashed while it held this message, before anything was appended: it is safe to send again."""

    def __init__(self, actor: str) -> None:
        super().__init__(f"{actor} crashed before it decided")
        self.actor = actor


class SupervisorGaveUp(ActorError):
    """A child was restarted more than ``intensity`` times within ``period`` seconds. Raised to the parent."""

    def __init__(self, supervisor: str, child: str, restarts: int, period: float) -> None:
        super().__init__(f"supervisor {supervisor}: {child} was restarted {restarts} times within {period:g} s")
        self.supervisor = supervisor
        self.child = child

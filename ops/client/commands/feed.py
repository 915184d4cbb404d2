"""`feed`: write the changes of the log to a file, a broker or a webhook as they are made, each at least once.

It reads through the API with the rights of its own user, as every client: it needs no access to the database, sees only
what that user may see, and Secrets are masked.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from kubechronicle.ops.client import kubeconfig
from kubechronicle.ops.client.feeds.opening import KEYS, open_sink
from kubechronicle.ops.client.feeds.position import FeedPosition, StateFile
from kubechronicle.ops.client.feeds.sinks import Sink, Unavailable
from kubechronicle.ops.client.feeds.source import Arrivals, FeedBatch, FeedSource
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, scopes_in, scopes_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import (
    add_all_namespaces_flag,
    add_noise_flag,
    add_subject_flags,
    field_path,
    noise_of,
)
from kubechronicle.ops.errors import OperatorError

EXAMPLES: Final = """\
  kubectl chronicle feed -A                                    new changes as lines of JSON
  kubectl chronicle feed -A --since 1d --no-follow > day.jsonl
  kubectl chronicle feed secrets -A --to https://audit.example.com/in --state secrets.state
  kubectl chronicle feed -A --to kafka://kafka-1:9092,kafka-2:9092/changes --state feed.state
  kubectl chronicle feed -n shop --operation delete --to nats://nats:4222/shop.deleted --state shop.state
  kubectl chronicle feed -A --after 4711                       the changes after revision 4711
exit code: 0 ended or interrupted; 2 for errors, also if changes were dropped before they were delivered
"""
OLDEST: Final = "oldest"
OPERATIONS: Final = ("create", "update", "delete")
BATCH: Final = 500
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument(
        "--to", metavar="ADDRESS", default="-", help="- (stdout), file:…, https://…, kafka://…, nats://…"
    )
    parser.add_argument("--state", metavar="FILE", default="", help="keep the position in it, and go on from there")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--since", metavar="MOMENT", default="now", help=f"where a new feed begins: 2h, a time, {OLDEST} (default now)"
    )
    begin.add_argument("--after", metavar="REVISION", type=int, help="begin after this revision, whatever the state")
    parser.add_argument("--no-follow", action="store_true", help="end at the newest change")
    parser.add_argument("--accept-loss", action="store_true", help="go on although changes were dropped meanwhile")
    parser.add_argument("--user", metavar="NAME", default="", help="only changes by this user; NAME* is a prefix")
    parser.add_argument("--operation", choices=OPERATIONS, default="", help="only changes of this kind")
    parser.add_argument("--verb", metavar="VERB", default="", help="only changes by requests with this verb")
    parser.add_argument("--field", metavar="PATH", default="", help="only changes of this field, or within it")
    parser.add_argument("-l", "--selector", metavar="LABELS", default="", help="only objects with these labels")
    add_noise_flag(parser)
    parser.add_argument(
        "--content", choices=("diff", "full", "none"), default="diff", help="of a change (default diff)"
    )
    parser.add_argument("--show-secrets", action="store_true", help="the values of Secrets instead of masks; recorded")
    parser.add_argument("--batch", metavar="N", type=int, default=BATCH, help=f"changes sent at once (default {BATCH})")
    parser.add_argument("--key", choices=KEYS, default=KEYS[0], help="the key of a message of Kafka (default revision)")
    parser.add_argument(
        "--sink-config", metavar="FILE", default="", help="name = value: credentials, headers, properties"
    )
    parser.add_argument(
        "--give-up", metavar="SECONDS", type=float, default=0, help="end if nothing answers for so long (default never)"
    )
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0. OperatorError."""
    if arguments.batch < 1:
        raise OperatorError("--batch must be at least 1")
    arguments.output = "json"
    session = Session.open(arguments)
    source = FeedSource(session.client, _query(session), {})
    state = StateFile(arguments.state) if arguments.state else None
    feed = Feed(session.screen, source, state, give_up=arguments.give_up)
    feed.position = _beginning(session, source, state)
    if arguments.accept_loss and (lost := source.accept_loss(feed.position)):
        session.screen.note(f"{lost}; the feed goes on without them")
    if state is not None:
        state.write(feed.position)  # a feed that is stopped before its first change goes on from here
    sink = open_sink(arguments.to, config_file=arguments.sink_config, key=arguments.key)
    with _interruptible():
        try:
            if arguments.no_follow:
                feed.run(sink, None, arguments.batch)
            else:
                with Arrivals(session.client, source.query) as arrivals:
                    feed.run(sink, arrivals, arguments.batch)
        except KeyboardInterrupt:
            session.screen.note(f"stopped after revision {feed.position.revision}; --after goes on from there")
        sink.close()
    return 0


def _query(session: Session) -> RevisionQuery:
    arguments = session.arguments
    fields = {
        "who.actor": arguments.user,
        "operation": arguments.operation,
        "request.verb": arguments.verb,
        "changed": field_path(arguments.field) if arguments.field else "",
    }
    fields = {name: value for name, value in fields.items() if value}
    content = "" if arguments.content == "none" else arguments.content
    if arguments.words:
        scopes = scopes_of(session.subject(arguments.words, session.kinds(), name_required=False))
    else:
        scopes = scopes_in("" if arguments.all_namespaces else session.namespace)
        fields |= noise_of(arguments)
    return RevisionQuery(scopes, fields, content=content, labels=arguments.selector)


def _beginning(session: Session, source: FeedSource, state: StateFile | None) -> FeedPosition:
    """Return the position at which the feed begins: that of the flag --after, of the state file, or of --since."""
    arguments = session.arguments
    if arguments.after is not None:
        if arguments.after < 0:
            raise OperatorError("--after must not be negative")
        return FeedPosition(arguments.after)
    if state is not None and (kept := state.read()) is not None:
        return kept
    if arguments.since == OLDEST:
        return source.oldest()
    return source.position_at({} if arguments.since == "now" else bounds(session.client, arguments.since, ""))


class Feed:
    """``position``: of the last delivered change. ``give_up``: seconds without any answer; 0: never."""

    position: FeedPosition

    def __init__(self, screen: Screen, source: FeedSource, state: StateFile | None, *, give_up: float) -> None:
        self._screen, self._source, self._state, self._give_up = screen, source, state, give_up
        self._failing_since: float | None = None
        self._failures = 0
        self._skipped: set[str] = set()

    def run(self, sink: Sink, arrivals: Arrivals | None, size: int) -> None:
        """Deliver batches until there are no more, or without end. OperatorError."""
        while True:
            try:
                for batch in self._source.batches(self.position, size=size, arrivals=arrivals):
                    self._deliver(sink, batch)
            except Unavailable as failure:
                self._pause(failure)
            else:
                return

    def _deliver(self, sink: Sink, batch: FeedBatch) -> None:
        """Send a batch until it is acknowledged, and only then move the position on."""
        self._note_skipped()
        while batch.changes:
            try:
                sink.send(batch.changes)
                break
            except Unavailable as failure:
                self._pause(failure)
        if self._failing_since is not None:
            self._screen.note("it answers again")
        self._failing_since, self._failures = None, 0
        if batch.position != self.position:
            self.position = batch.position
            if self._state is not None:
                self._state.write(batch.position)

    def _note_skipped(self) -> None:
        """Tell once of each list that the user may not read."""
        for reason in self._source.query.warnings:
            if reason not in self._skipped:
                self._skipped.add(reason)
                self._screen.note(f"skipped: {reason}")
        self._source.query.warnings.clear()

    def _pause(self, failure: Unavailable) -> None:
        """Wait before the next attempt, twice as long each time. OperatorError: it has lasted too long."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
            self._screen.note(f"{failure}; the feed tries again")
        if self._give_up and now - self._failing_since >= self._give_up:
            raise OperatorError(f"{failure}; delivered up to revision {self.position.revision}")
        pause = failure.after or min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 16)
        sleep(pause)


sleep: Callable[[float], None] = time.sleep
"""Tests replace it."""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM end the feed as Ctrl-C does."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)

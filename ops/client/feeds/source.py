"""The changes after a position, in the order of the log, without gaps: as batches, without end.

A pass reads the lists of revisions from the position to the newest revision, page by page. Then watches tell that there
is more; they carry no contents, because those of several lists arrive in any order.

Invariant: a batch is yielded only if nothing between the position before it and its last change has been dropped from
the log. Lists leave out dropped changes without a word, so the marks are asked for after each page: they only rise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from kubechronicle.api.history.extents import moment_text
from kubechronicle.api.history.positions import advanced, is_joined, revisions_of
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.feeds.position import FeedPosition
from kubechronicle.ops.client.feeds.sinks import Unavailable
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    Scope,
    after,
    number_of,
    parameters_of,
    read_revisions,
)
from kubechronicle.ops.errors import OperatorError

T = TypeVar("T")

IDLE: Final = 30.0
"""Seconds after which the source looks for itself: the position moves on, past the changes that are not selected."""
WATCH_PAUSE: Final = 1.0
"""Seconds before a watch that ended begins again. The server ends every watch after some time."""
TEMPORARY: Final = frozenset((429, 500, 502, 503, 504))


class Lost(OperatorError):
    """Changes after the position are not in the log any more."""


class FeedBatch(NamedTuple):
    """Changes, maybe none, and the position once they are delivered."""

    changes: Sequence[Object]
    position: FeedPosition


@dataclass(slots=True)
class FeedSource:
    """``accepted``: by database and resource, the revision up to which dropped changes are accepted as lost."""

    client: Client
    query: RevisionQuery
    accepted: dict[tuple[str, str], int]

    # -- the beginning ------------------------------------------------------------------------------------------------

    def position_at(self, bounds: Mapping[str, str]) -> FeedPosition:
        """Return the position of a moment, as the bounds of a selector. {}: of now."""
        found = self._retention(bounds)
        return _position(found["after"] if bounds else found["newest"])

    def oldest(self) -> FeedPosition:
        """Return the position before the oldest change that is kept, and accept the loss of all before it."""
        found = self._retention({"revision.from": "1"})
        self._accept(found)
        marks: dict[tuple[str, bool], int] = {}
        for each in found["lost"]:
            mark, log = int(each["until"]["revision"]), (each.get("database", ""), "resource" in each)
            marks[log] = min(mark, marks.get(log, mark))
        begins = [mark for (name, partly), mark in marks.items() if not partly or (name, False) not in marks]
        return FeedPosition(advanced(int(found["after"]["revision"]), begins))

    def accept_loss(self, position: FeedPosition) -> str:
        """Accept that changes after a position are lost by now; return which ones, "" for none."""
        found = self._retention(after(position.revision))
        text = self._lost(found, position)
        self._accept(found)
        return text

    def _accept(self, found: Object) -> None:
        for each in found["lost"]:
            self.accepted[_lost_of(each)] = int(each["until"]["revision"])

    # -- reading ------------------------------------------------------------------------------------------------------

    def batches(self, position: FeedPosition, *, size: int, arrivals: Arrivals | None) -> Iterator[FeedBatch]:
        """Yield the batches after a position; with ``arrivals``, without end. Lost, Unavailable, OperatorError."""
        while True:
            position, newest = self._newest(position)
            if newest.revision > position.revision:
                yield from self._between(position, newest, size)
                position = newest
            if arrivals is None:
                return
            arrivals.wait(IDLE)

    def _between(self, position: FeedPosition, newest: FeedPosition, size: int) -> Iterator[FeedBatch]:
        """Yield the changes between two positions, and at last the second position."""
        fields = {**self.query.fields, **after(position.revision), "revision.to": str(newest.revision)}
        changes = read_revisions(self.client, self.query.replaced(fields=fields, oldest_first=True, limit=0))
        while page := _asked(lambda: list(islice(changes, size))):
            self._check_kept(position)
            position = _moved(position, page)
            yield FeedBatch(page, position)
        self._check_kept(position)
        yield FeedBatch((), newest)

    def _newest(self, position: FeedPosition) -> tuple[FeedPosition, FeedPosition]:
        """Return the position, with the revisions of all logs, and the newest one. Lost; OperatorError: the position is
        of another log."""
        found = _asked(lambda: self._retention(after(position.revision)))
        newest, known = _position(found["newest"]), _position(found["after"])
        if is_joined(position.revision) != is_joined(newest.revision):
            position = known  # other kinds are selected now, or the server has got a second database
        ends = revisions_of(newest.revision)
        for place, revision in revisions_of(position.revision).items():
            if ends.get(place, 0) < revision:
                raise OperatorError(
                    f"the newest revision is {ends.get(place, 0)}, but the feed has reached {revision}: the log was "
                    "restored from a backup, or this is another cluster; name a --since to begin anew"
                )
        if position.time and known.time and position.time != known.time:
            raise OperatorError(
                f"revision {position.revision} was committed at {known.time}, but the feed had one of "
                f"{position.time}: the log was restored from a backup, or this is another cluster; name a --since to "
                "begin anew"
            )
        self._check(found, position)
        return position, newest

    def _check_kept(self, position: FeedPosition) -> None:
        self._check(_asked(lambda: self._retention(after(position.revision))), position)

    def _check(self, found: Object, position: FeedPosition) -> None:
        if text := self._lost(found, position):
            raise Lost(
                f"{text}: they were dropped before the feed has delivered them; --accept-loss goes on without them"
            )

    def _lost(self, found: Object, position: FeedPosition) -> str:
        """Return which changes after the position are lost, without those that are accepted; "" for none."""
        lost = [
            each
            for each in sorted(found["lost"], key=lambda each: "resource" not in each)
            if int(each["until"]["revision"]) > self.accepted.get(_lost_of(each), 0)
        ]
        rest = "all other resources" if any("resource" in each for each in lost) else "all resources"
        texts = [
            f"{printable(each.get('resource', rest))}{_place(each)} up to {moment_text(each['until'])}" for each in lost
        ]
        return f"changes after revision {position.revision} are lost, of {', of '.join(texts)}" if lost else ""

    def _retention(self, bounds: Mapping[str, str]) -> Object:
        """Return the RevisionRetention of the selection, with these bounds."""
        query = self.query.replaced(fields={**self.query.fields, **bounds}, content="")
        for scope in query.scopes:
            try:
                return self.client.get(scope.path, {"summary": "retention", **parameters_of(query, scope)})
            except ApiError as error:
                if error.code != 403 or not scope.optional:
                    raise
        raise OperatorError("the user may read none of the lists of changes")


class Arrivals:
    """Watches that tell of new changes, each in a thread. Their failures are no news: the source meets them itself."""

    def __init__(self, client: Client, query: RevisionQuery) -> None:
        self._client, self._query = client, query.replaced(content="")
        self._news, self._closed = threading.Event(), False

    def __enter__(self) -> Arrivals:
        for scope in self._query.scopes:
            threading.Thread(target=self._watch, args=(scope,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True

    def wait(self, seconds: float) -> None:
        """Return when there may be news, or after some seconds."""
        self._news.wait(seconds)
        self._news.clear()

    def _watch(self, scope: Scope) -> None:
        while not self._closed:
            try:
                for _ in self._client.watch(scope.path, parameters_of(self._query, scope)):
                    self._news.set()
                    if self._closed:
                        return
            except ApiError as error:
                if error.code == 403:
                    return
            except OperatorError:
                pass
            time.sleep(WATCH_PAUSE)


def _moved(position: FeedPosition, changes: Sequence[Object]) -> FeedPosition:
    """Return the position after changes that follow it.

    Of several logs, its time is the latest of their times, as the server has it; "": that of one log is not known.
    """
    revision = advanced(position.revision, map(number_of, changes))
    if not is_joined(position.revision):
        return FeedPosition(revision, str(changes[-1]["time"]))
    times = [position.time, *(str(each["time"]) for each in changes)]
    return FeedPosition(revision, max(times) if position.time else "")


def _lost_of(lost: Mapping[str, Any]) -> tuple[str, str]:
    return lost.get("database", ""), lost.get("resource", "")


def _place(lost: Mapping[str, Any]) -> str:
    return f" in database {printable(lost['database'])}" if "database" in lost else ""


def _position(moment: Mapping[str, Any]) -> FeedPosition:
    return FeedPosition(int(moment["revision"]), str(moment.get("time", "")))


def _asked(ask: Callable[[], T]) -> T:
    """Return the answer of the server. Unavailable: it has none for now."""
    try:
        return ask()
    except ApiError as error:
        if error.code in TEMPORARY:
            raise Unavailable(str(error)) from None
        raise
    except OperatorError as error:
        if type(error) is OperatorError:  # of the connection
            raise Unavailable(str(error)) from None
        raise

"""Availability: does the database answer, and does it take changes? The one state behind the server's log, /readyz, the
metrics, and the text that clients read.

No decisions of SQL here: the tail and the log report what happened to their queries. There are two sides.

    reads      fail: the database is lost, or a lock blocks the queries. Then changes fail too, and are not told apart
    changes    are refused or blocked, each of them, while reads go on

Each side is told once when its trouble begins, and once when it ends. PostgresLog owns the state, and tells a database
that refuses every change from one that refuses a single change (postgres/trials.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import trio

from kubechronicle.eventlog.errors import Blocked, ChangesRefused, LogError

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""Seconds within which the log answers small queries; /readyz fails while one takes longer."""

CONNECTION: Final = "08"  # the class of a failure without a SQLSTATE: there was no connection
CLASSES: Final = frozenset(
    {
        "08", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "20", "21", "22", "23", "24", "25", "26", "27", "28", "2B",
        "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57", "58", "72", "F0",
        "HV", "KC", "P0", "XX",
    }
)  # fmt: skip
"""Classes of Postgres, and our own. A trigger may raise any other one: bounds the series of the metric."""
OTHER: Final = "other"


class Availability:
    """``last_error``: the reason why reads fail now. ``count``: how often the database was lost.

    ``of``: names the database in log lines, if there are several. ``failed_appends``: by class of SQLSTATE.
    """

    def __init__(self, of: str = "") -> None:
        self.of = of
        self.last_error: LogError | None = None
        self.count = 0
        self.failed_appends: Counter[str] = Counter()
        self.refused_for: LogError | None = None
        self.suspected = False  # an append has failed since the last one that succeeded
        self.resource = ""  # of the change that was refused
        self.changed: Callable[[], None] = lambda: None  # called when reads or changes begin or cease to fail
        self._since = 0.0
        self._told = False
        self._refused_since = 0.0
        self._refusal_told = False  # for its present reason
        self._begin_told = False
        self._asked: dict[str, float] = {}  # by query: when the one under way was sent
        self._troubled = trio.Event()
        self._recheck = trio.Event()

    # Reads

    def failed(self, error: LogError) -> None:
        """Note that the query for new changes failed."""
        if self.last_error is None:
            self.count += 1
            self._since = trio.current_time()
            self._told = not (self._refusal_told and str(error) == str(self.refused_for))
            if self._told:
                logger.error("%s %s: %s", self._named, "blocked" if isinstance(error, Blocked) else "lost", error)
        self.last_error = error
        self.changed()

    def succeeded(self) -> None:
        if self.last_error is not None:
            self.last_error = None
            self.changed()
            if self._told:
                logger.warning("%s back after %.1f s", self._named, trio.current_time() - self._since)

    def sent(self, query: str) -> None:
        """Note that a query is under way; ``query``: its purpose."""
        self._asked[query] = trio.current_time()

    def answered(self, query: str) -> None:
        self._asked.pop(query, None)

    def problem(self) -> str:
        """Return the reason why the database does not answer now, "" if it does."""
        if self.last_error is not None:
            return str(self.last_error)
        for query, since in self._asked.items():
            if (seconds := trio.current_time() - since) > ANSWER_SECONDS:
                return f"the database has not answered {query} for {seconds:.0f} s"
        return ""

    # Changes

    def count_failure(self, error: LogError) -> None:
        """Count an append that failed, by the class of its SQLSTATE."""
        self.suspected = True
        kind = error.sqlstate[:2] or CONNECTION
        self.failed_appends[kind if kind in CLASSES else OTHER] += 1

    def refuse(self, error: LogError, resource: str, *, waited: float = 0.0) -> None:
        """Note that every change is refused or blocked now.

        ``resource``: of a refused change. ``waited``: seconds for which changes were blocked already.
        """
        if self.refused_for is None:
            self.resource = resource
            self._refused_since = trio.current_time() - waited
            self._refusal_told = self._begin_told = False
            self._troubled.set()
        elif self.refused_for.sqlstate != error.sqlstate or isinstance(error, Blocked) is not self._is_blocked:
            self._refusal_told = False
        self.refused_for = error
        self.changed()
        if not self._refusal_told and not self.problem():
            self._refusal_told = self._begin_told = True
            verb = "blocks" if self._is_blocked else "refuses"
            logger.error("%s %s every change: %s", self._named, verb, error)

    def accept(self) -> None:
        """Note that the database takes changes."""
        if self.refused_for is not None:
            self.refused_for, self._refusal_told = None, False
            self._troubled = trio.Event()
            self.changed()
            if self._begin_told:
                seconds = trio.current_time() - self._refused_since
                logger.warning("%s takes changes again after %.1f s", self._named, seconds)

    def refusal(self, error: LogError) -> ChangesRefused:
        """Return the error for a change that was refused like all others. ``error``: its own."""
        reason = self.refused_for or error
        return ChangesRefused(self._described(reason), reason)

    def explained(self, error: LogError) -> LogError:
        """Return the error for a change that was lost, and has not committed: the refusal if it was one of it."""
        refused = self.refused_for
        return self.refusal(error) if refused is not None and refused.sqlstate == error.sqlstate != "" else error

    def append_problem(self) -> str:
        """Return the reason why the database takes no changes now, "" if it takes them."""
        return self.problem() or (self._described(self.refused_for) if self.refused_for is not None else "")

    def note_append(self) -> None:
        """Let the trouble be looked at again: a change was committed."""
        self.suspected = self.refused_for is not None
        self._recheck.set()

    async def wait_troubled(self) -> None:
        await self._troubled.wait()

    async def wait_recheck(self, seconds: float) -> None:
        """Return after so many seconds, or when a change was committed."""
        self._recheck = trio.Event()
        with trio.move_on_after(seconds):
            await self._recheck.wait()

    @property
    def _named(self) -> str:
        return f"database of {self.of}" if self.of else "database"

    @property
    def _is_blocked(self) -> bool:
        return isinstance(self.refused_for, Blocked)

    def _described(self, error: LogError) -> str:
        seconds = trio.current_time() - self._refused_since
        if isinstance(error, Blocked):
            return f"each change {error}, since {seconds:.0f} s"
        return f"refused for {seconds:.0f} s: {error}"

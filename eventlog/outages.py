"""Outages: says once that the database is lost, and once that it is back. For /readyz, metrics and the server's log."""

from __future__ import annotations

import logging

import trio

from kubechronicle.eventlog.errors import LogError

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""Seconds within which the log answers small queries; /readyz fails while one takes longer."""


class Outages:
    """``last_error``: the reason of the present outage. ``count``: outages so far.

    ``of``: names the database in log lines, if there are several.
    """

    def __init__(self, of: str = "") -> None:
        self._named = f"database of {of}" if of else "database"
        self.last_error: LogError | None = None
        self.count = 0
        self._since = 0.0
        self._asked: dict[str, float] = {}  # by query: when the one under way was sent

    def failed(self, error: LogError) -> None:
        if self.last_error is None:
            self.count += 1
            self._since = trio.current_time()
            logger.error("%s lost: %s", self._named, error)
        self.last_error = error

    def succeeded(self) -> None:
        if self.last_error is not None:
            self.last_error = None
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

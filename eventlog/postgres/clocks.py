"""Clocks: the time by the server's clock, and its comparison with that of the database.

A commit is stamped by the clock of the database, which all servers share. It may jump: a failover to a machine with
another time, a wrong NTP server, a restored virtual machine. A time in the future would stay in the log for ever, since
commit times never go back. So each append carries the server's time, too. If the two differ by more than
five seconds, the earlier one counts, unless the log is already more than a minute later (the function agreed_time).

The server's own clock may jump as well, and is the same clock if the database runs on this machine. SteadyClock goes on
by the kernel's time since boot, which never jumps. It follows a jump once that has lasted for five minutes:

    wall clock   12:00:00  12:00:10  13:00:20 (jump)  …  12:00:40 (back)
    SteadyClock  12:00:00  12:00:10  12:00:20         …  12:00:40
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

import trio

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.session import SessionPool

# -- clock sql ---------------------------------------------------------------------------------------------------------
#
# The statements of PostgresLog that a clock of the server takes part in (clocks.py). SQL only.

# As sql.APPEND, and $23: the time by the server's clock. Of a batch of one change, see rows.change_arguments.
APPEND = (
    "select * from kubechronicle.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
    " $18, $19, $20, $21, $22, $23)"
)
# The same with each column of texts as one text, see rows.joined_arguments. Postgres takes as long as for arrays.
_JOINED = "string_to_array(${}, E'\\x1f')".format
APPEND_JOINED = (
    f"select * from kubechronicle.append($1, $2, $3, $4, {', '.join(map(_JOINED, range(5, 12)))}, $12,"
    f" {', '.join(map(_JOINED, range(13, 21)))}, $21, $22, $23)"
)
APPEND_CHANGE = (
    "select kubechronicle.append_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
    " $18, $19, $20, $21, $22, $23)"
)

# The same through a pooler in transaction mode, where statement_timeout is that of the role: they bring the bound of
# each wait for a lock. The function is called after the setting, which its first argument depends on.
_BOUNDED = "set_config('lock_timeout', '30s', true)"
_POOLED_BATCH = f"from {_BOUNDED} bound, lateral kubechronicle.append(case when bound <> '' then $1::uuid end,"
POOLED = {
    APPEND: APPEND.replace("select *", "select appended.*").replace("from kubechronicle.append($1,", _POOLED_BATCH)
    + " appended",
    APPEND_JOINED: APPEND_JOINED.replace("select *", "select appended.*").replace(
        "from kubechronicle.append($1,", _POOLED_BATCH
    )
    + " appended",
    APPEND_CHANGE: APPEND_CHANGE.replace("select ", f"select case when {_BOUNDED} <> '' then ") + " end",
}

# $1 a time or null, $2 an age, $3 the time by the server's clock. A bisection: some twenty index descents in a log of a
# million revisions.
MOMENT_AT = "select revision, moment, clock, known from kubechronicle.moment_at($1, $2, $3)"

# The time of the database, and that of the newest commit.
CLOCK = "select clock_timestamp() as clock, h.committed_at from kubechronicle.head h"


# -- clocks ------------------------------------------------------------------------------------------------------------

logger = logging.getLogger(__name__)

TOLERANCE = 2.0  # seconds between two readings that count as no jump: NTP corrects small differences at once
PATIENCE = 300.0  # seconds after which a jump of the wall clock counts as its correction
SKEW = 5.0  # seconds by which the clocks may differ without a warning
INTERVAL = 15.0  # seconds between two comparisons


class SteadyClock:
    """The wall clock without its jumps. ``wall``, ``elapsed``: readings in seconds; the second one never jumps."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._ahead = wall() - elapsed()  # of the wall clock before the elapsed time
        self._jump, self._jumped_at = 0.0, 0.0

    def now(self) -> float:
        """Return seconds since 1970."""
        elapsed = self._elapsed()
        ahead = self._wall() - elapsed
        jump = ahead - self._ahead
        if abs(jump) > TOLERANCE:
            if abs(jump - self._jump) > TOLERANCE:
                self._jump, self._jumped_at = jump, elapsed
                logger.warning("this server's clock jumped by %.0f s; it counts if it stays so", jump)
            if elapsed - self._jumped_at < PATIENCE:
                return self._ahead + elapsed
            logger.warning("this server's clock stays %.0f s from where it was: following it", jump)
        self._ahead, self._jump = ahead, 0.0
        return ahead + elapsed


class Clocks:
    """``skew``: seconds by which the database's clock is ahead of this server's. ``ahead``: seconds by which the newest
    commit is ahead of the later clock. Both as of the last comparison."""

    def __init__(self, pool: SessionPool, clock: SteadyClock | None = None) -> None:
        self._pool = pool
        self._clock = clock or SteadyClock()
        self.skew = 0.0
        self.ahead = 0.0
        self._warned = False

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC)

    async def run(self) -> None:
        """Compare the clocks now and then."""
        while True:
            try:
                await self.compare()
            except LogError as error:
                logger.debug("the clocks could not be compared: %s", error)
            await trio.sleep(INTERVAL)

    async def compare(self) -> None:
        """Ask the database for its time. LogUnavailable."""
        before = self._clock.now()
        of_database, newest = (await self._pool.fetch(CLOCK))[0]
        after = self._clock.now()
        then = of_database.timestamp()
        self.skew = 0.0 if before <= then <= after else then - (before if then < before else after)
        self.ahead = max(0.0, newest.timestamp() - max(then, after))
        self._tell()

    def _tell(self) -> None:
        wrong = abs(self.skew) > SKEW or self.ahead > SKEW
        if wrong and not self._warned:
            logger.warning(
                "the database's clock differs from this server's by %+.0f s, and the newest commit is %.0f s ahead of "
                "both: correct the clocks. Until then commit times are bounded, but less exact",
                self.skew,
                self.ahead,
            )
        elif self._warned and not wrong:
            logger.warning("the clocks of the database and of this server agree again")
        self._warned = wrong

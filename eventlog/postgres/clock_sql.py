"""The statements of PostgresLog that a clock of the server takes part in (clocks.py). SQL only."""

from __future__ import annotations

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

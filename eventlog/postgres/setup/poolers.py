"""Connection poolers between the server and Postgres (PgBouncer and the like).

A pooler in session mode is like Postgres itself. One in transaction mode gives each transaction any connection to
Postgres, so nothing may outlast a transaction: no prepared statement, no setting, no LISTEN. Reads and appends get
along with that: each is one statement, and the appending functions bring their settings. Migrations, retention and
LISTEN do not. So such a server has two addresses, that of the pooler and the direct one of the database.

A pooler is recognised by the process id that it reports, which is not that of the process in Postgres. In transaction
mode, a second client gets the connection to Postgres that the first one has just used.
"""

from __future__ import annotations

from contextlib import suppress

from kubechronicle.eventlog.errors import LogError, SetupError
from kubechronicle.eventlog.postgres.session import ConnectionUnusable, Session

ATTEMPTS = 3  # other clients of the pooler may use the connection in between
_PROCESS = "select pg_backend_pid()"
REFUSAL = (
    "--database-url leads to a connection pooler in transaction mode: give the address of the database itself too, by "
    "--database-direct-url, or use the pooler in session mode"
)


async def refuse_transaction_mode(session: Session) -> None:
    """SetupError: a pooler in transaction mode is between. LogUnavailable."""
    try:
        if await _is_pooled_by_transaction(session):
            raise SetupError(REFUSAL)
    except ConnectionUnusable:  # a prepared statement was lost
        raise SetupError(REFUSAL) from None


async def _is_pooled_by_transaction(session: Session) -> bool:
    process = (await session.fetch(_PROCESS))[0][0]
    if process == session.backend_pid:
        return False
    for _ in range(ATTEMPTS):
        second = await session.sibling()
        try:
            await second.execute("begin")
            if (await second.fetch(_PROCESS))[0][0] == process or (await session.fetch(_PROCESS))[0][0] != process:
                return True
        finally:
            with suppress(LogError):
                await second.execute("rollback")
            await second.close()
    return False

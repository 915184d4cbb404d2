"""Outside witnesses: tokens of time-stamping services (RFC 3161) over statements about the log, kept in the log itself.

A statement is the text of a checkpoint without a key (checkpoints.py), so it covers all rows up to its revision, the
marks and the retention classes. A service signs the statement's digest with its own time: the token. An edited
history has other digests, and nobody can make tokens of the past for these, not even with all our keys.

Each token is a change of an object of the log, of which there is one per service:

    {"apiVersion": "history.kubechronicle.dev/v1", "kind": "Witness", "metadata": {"name": "tsa.example.com", …},
     "spec": {"service": "https://tsa.example.com", "statement": "kubechronicle checkpoint v3\\n…", "token": "MIIS…"}}

So tokens are chained, backed up and retained as all history; the newest one is always kept. There is neither HTTP nor a
certificate here (ops/server/outside/time_stamping.py).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import orjson

from kubechronicle.eventlog.integrity.checkpoints import Checkpoint
from kubechronicle.eventlog.postgres import rows
from kubechronicle.eventlog.postgres.locks import shared_appends
from kubechronicle.eventlog.postgres.session import PostgresSession

RESOURCE: Final = "witnesses.history.kubechronicle.dev"
ACTOR: Final = "kubechronicle"
LONGEST_NAME: Final = 200
Ask: TypeAlias = "Callable[[Checkpoint], Awaitable[WitnessToken]]"
_STATE: Final = """
select revision, compacted_long, compacted_of, log_id, hash, committed_at, clock_timestamp() as noted_at,
    array(select resource::text from kubechronicle.confidential_resources order by 1) as confidential,
    coalesce((select max(number) from kubechronicle.mark_moves), 0) as moves,
    coalesce((select hash from kubechronicle.mark_moves order by number desc limit 1), decode(repeat('0', 64), 'hex'))
        as moves_hash,
    array(select resource::text from kubechronicle.resource_classes where class = 'short'
        order by resource collate "C") as short
from kubechronicle.head
"""
# $1 the name. The time since the newest token.
_AGE: Final = """
select clock_timestamp() - r.committed_at from kubechronicle.live e cross join lateral (
    select l.committed_at from kubechronicle.log l where l.revision = e.revision union all
    select k.committed_at from kubechronicle.kept k where k.revision = e.revision limit 1) r
where e.resource = 'witnesses.history.kubechronicle.dev' and e.namespace = '' and e.name = $1
"""
_RECORD: Final = "select kubechronicle.record_entry('witnesses', 'Witness', $1, $2, $3, 'witness')"
_TOKENS: Final = """
select distinct on (revision) revision, object from (
    select revision, object from kubechronicle.kept where resource = 'witnesses.history.kubechronicle.dev' union all
    select revision, object from kubechronicle.log where resource = 'witnesses.history.kubechronicle.dev') t
where object is not null order by revision
"""
# $1 revision.
_NEXT: Final = "select committed_at from kubechronicle.log where revision > $1 order by revision limit 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessToken:
    """A service's answer about a statement.

    ``origin``: the place of the token, for people.
    """

    origin: str
    service: str
    statement: bytes
    token: bytes


async def state_of(session: PostgresSession) -> Checkpoint:
    """Return the present state of the log, without a key. LogError."""
    found = (await session.fetch(_STATE))[0]
    return Checkpoint(
        log_id=found["log_id"],
        revision=found["revision"],
        hash=bytes(found["hash"]),
        committed_at=found["committed_at"],
        noted_at=found["noted_at"],
        marks=rows.head(found),
        confidential=tuple(found["confidential"]),
        moves=(found["moves"], bytes(found["moves_hash"])),
        short=tuple(found["short"]),
    )


def name_of(service: str) -> str:
    """Return the name of a service's object: ``tsa.example.com-tsr`` for https://tsa.example.com/tsr."""
    parts = urlsplit(service)
    return re.sub(r"[^a-z0-9.]+", "-", f"{parts.netloc}{parts.path}".lower())[:LONGEST_NAME].strip("-.")


async def age_of_token(session: PostgresSession, service: str) -> timedelta | None:
    """Return the time since a service's newest token was recorded, by the database's clock; None without one."""
    found = await session.fetch(_AGE, name_of(service))
    return found[0][0] if found else None


async def record_token(session: PostgresSession, token: WitnessToken, *, actor: str = ACTOR) -> None:
    """Append a token to the log, beside running servers. LogError."""
    spec = {
        "service": token.service,
        "statement": token.statement.decode("ascii"),
        "token": base64.b64encode(token.token).decode(),
    }
    async with shared_appends(session):
        await session.fetch(_RECORD, name_of(token.service), orjson.dumps(spec).decode(), actor)


async def recorded_tokens(session: PostgresSession) -> list[WitnessToken]:
    """Return all tokens that the log holds, the oldest first. ValueError: one is damaged. LogError."""
    return [token_of(row["revision"], row["object"]) for row in await session.fetch(_TOKENS)]


def token_of(revision: int, body: str) -> WitnessToken:
    """Return the token in an object of the log. ValueError: it is damaged."""
    origin = f"the token in revision {revision}"
    try:
        spec = orjson.loads(body)["spec"]
        return WitnessToken(
            origin=origin,
            service=str(spec["service"]),
            statement=spec["statement"].encode("ascii"),
            token=base64.b64decode(spec["token"], validate=True),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{origin} is damaged") from None


async def next_commit(session: PostgresSession, revision: int) -> datetime | None:
    """Return the commit time of the first row after a revision; None without one."""
    found = await session.fetch(_NEXT, revision)
    return found[0][0] if found else None


async def renew(session: PostgresSession, service: str, ask: Ask, *, after: timedelta) -> tuple[timedelta, int]:
    """Let a service sign the present state, unless its newest token is younger than ``after``.

    Return the age of its newest token now, and the revision of a new one's statement, 0 without one. LogError, and the
    errors of ``ask``.
    """
    age = await age_of_token(session, service)
    if age is not None and age < after:
        return age, 0
    state = await state_of(session)
    token = await ask(state)
    await record_token(session, token)
    return timedelta(), state.revision

"""The servers that use the database, and a short text of each about itself."""

from __future__ import annotations

from typing import Any, Final

import orjson

from kubechronicle.eventlog.postgres.session import Session

SEEN_WITHIN: Final = "1 day"  # servers that were seen before are gone
_FORGET: Final = "delete from kubechronicle.servers where seen_at < now() - interval '30 days' or name = $1"
_ADD: Final = "insert into kubechronicle.servers (name, trust) values ($1, $2::jsonb) on conflict do nothing"
_OTHERS: Final = f"""
select name, trust::text as trust from kubechronicle.servers
where name <> $1 and seen_at > now() - interval '{SEEN_WITHIN}' order by name
"""
SEEN: Final = "update kubechronicle.servers set seen_at = now() where name = $1"


async def introduce(session: Session, name: str, trust: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Note this server, and return what is noted of the others that ran within the last day, by name."""
    await session.fetch(_FORGET, name)
    await session.fetch(_ADD, name, orjson.dumps(trust).decode())
    return {row["name"]: orjson.loads(row["trust"]) for row in await session.fetch(_OTHERS, name)}

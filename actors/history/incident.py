"""RevisionIncident: the changes of a selection, the unusual ones first, with causes (api/explaining/incidents.py).

They are compared with the LOOKBACK changes before: who made these, and of which kinds. The newest MOST changes of the
selection are read. Objects that the client may not read have no fields and no owners, as in a list.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Final

import trio

from kubechronicle.actors.history.change_records import SecretValues, change_of
from kubechronicle.actors.history.log_changes import LogChanges
from kubechronicle.actors.history.other_logs import NAMESPACES
from kubechronicle.actors.history.revision_selection import RevisionSelection
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.errors import status
from kubechronicle.api.explaining.causes import Fact, fact_of
from kubechronicle.api.explaining.incidents import Before, grant_of, incident_document
from kubechronicle.api.history.cells import NOISY_RESOURCES
from kubechronicle.api.history.revisions import API_VERSION, masked_change, revision_object
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.queries.changes import ChangeQuery, pair_size
from kubechronicle.eventlog.queries.groups import GroupQuery
from kubechronicle.eventlog.records import Record

MOST: Final = 2000
"""Changes of one incident."""
LOOKBACK: Final = 50_000
"""Changes before the incident that it is compared with: some 50 ms of Postgres."""
CHUNK: Final = 200
AT_ONCE: Final = 10
"""Changes that are compared before other requests have their turn."""


async def incident(
    log: RevisionLog,
    reads: LogChanges,
    selected: RevisionSelection,
    *,
    everything: bool = False,
    values: SecretValues | None = None,
) -> dict[str, Any]:
    """Return the RevisionIncident of a selection. StatusError 400.

    ``everything``: with cluster-scoped objects; of a namespace, with its Namespace.
    ``truncated``: there are more changes; those from revision ``first`` on are in the answer.
    """
    if selected.needs_objects:
        raise status.bad_request("an incident takes no labels, changed fields and reasons: list the revisions instead")
    newest = await reads.newest(None)
    query = replace(
        selected.query,
        until=min(selected.query.until, newest),
        newest_first=True,
        not_resources=tuple(sorted({*selected.query.not_resources, *NOISY_RESOURCES})),
    )
    if everything and not query.namespace:
        query = replace(query, namespaced=None)
    values = values or SecretValues()
    facts, truncated = ([], False) if selected.is_empty else await _facts(log, reads, query, values)
    if everything and query.namespace and not selected.is_empty:
        facts = _merged(facts, await _of_namespace(log, reads, query, values), truncated=truncated)
    first = facts[-1].revision if facts else query.after + 1
    before = await _before(log, replace(query, after=max(first - 1 - LOOKBACK, 0), until=first - 1))
    return {
        "apiVersion": API_VERSION,
        "kind": "RevisionIncident",
        "metadata": {"resourceVersion": str(newest)},
        "comparedSince": str(before.since),
        "truncated": truncated,
        "first": str(first),
        **await Pauses().take(incident_document(facts[::-1], before)),
    }


async def _facts(
    log: RevisionLog, reads: LogChanges, query: ChangeQuery, values: SecretValues
) -> tuple[list[Fact], bool]:
    """Return the newest changes, newest first, and whether there are more."""
    facts: list[Fact] = []
    while True:
        chunk = await log.changes(query, limit=CHUNK)
        for place, (record, before) in enumerate(chunk):
            if len(facts) == MOST:
                return facts, True
            readable, size = await reads.may_read(record), pair_size((record, before))
            await reads.turn.begin(size)
            facts.append(await reads.turn.run(size, partial(_fact, record, before, values, readable=readable)))
            if place % AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if chunk.is_last(CHUNK):
            return facts, False
        query = replace(query, until=chunk[-1][0].revision - 1)


async def _of_namespace(log: RevisionLog, reads: LogChanges, query: ChangeQuery, values: SecretValues) -> list[Fact]:
    """Return the changes of the Namespace itself, newest first, if the query may have them."""
    if query.name or (query.resources and NAMESPACES not in query.resources):
        return []
    itself = replace(query, namespaced=False, namespace="", name=query.namespace, resources=(NAMESPACES,))
    return (await _facts(log, reads, itself, values))[0]


def _merged(facts: list[Fact], more: list[Fact], *, truncated: bool) -> list[Fact]:
    """Return all facts, newest first. ``truncated``: those before the last one of ``facts`` are left out."""
    first = facts[-1].revision if truncated else 0
    kept = [fact for fact in more if fact.revision >= first]
    return sorted([*facts, *kept], key=lambda fact: -fact.revision)


def _fact(record: Record, before: Record | None, values: SecretValues, *, readable: bool) -> Fact:
    change = masked_change(change_of(record, before), values.key)
    document = revision_object(change, content="", readable=readable)
    if readable and (grant := grant_of(change)):
        document["grants"] = grant
    return fact_of(change, document, readable=readable)


async def _before(log: RevisionLog, query: ChangeQuery) -> Before:
    if query.after >= query.until:
        return Before(query.after + 1)
    found = await log.groups(GroupQuery(changes=query, by=("user_name", "resource")))
    kinds = frozenset((group.values[0], group.values[1]) for group in found)
    return Before(query.after + 1, frozenset(user for user, _ in kinds), kinds, query.namespace)

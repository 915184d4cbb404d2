"""Recorded reads as objects (history.kubechronicle.dev/v1): who got, listed or watched which objects, and when.

    kubectl get reads -n shop --field-selector object.resource=secrets,object.name=db

Reads in a namespace are ``reads``. Those of cluster-scoped objects, and lists and watches of all namespaces, are
``clusterreads``. Both hold no contents. ``readrecordings`` are the periods in which a server recorded reads: outside of
them, a missing read says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kubechronicle.api.history.revisions import API_VERSION, group_and_plural, written_time
from kubechronicle.api.values.objects import Object

READS: Final = "reads"
CLUSTER_READS: Final = "clusterreads"
RECORDINGS: Final = "readrecordings"
RESOURCES: Final = frozenset((READS, CLUSTER_READS, RECORDINGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One recorded read. ``name``, ``namespace``: "" for a list or watch of all."""

    id: int
    time: datetime
    revision: int
    resource: str
    subresource: str
    namespace: str
    name: str
    verb: str
    form: str
    who: Mapping[str, Any]
    request: Mapping[str, str]


def read_object(read: Read) -> Object:
    """Return the Read or ClusterRead."""
    group, plural = group_and_plural(read.resource)
    metadata: Object = {
        "name": str(read.id),
        "creationTimestamp": _seconds(read.time),
    }
    if read.namespace:
        metadata["namespace"] = read.namespace
    reference = {
        "apiGroup": group,
        "resource": plural,
        "subresource": read.subresource,
        "namespace": read.namespace,
        "name": read.name,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Read" if read.namespace else "ClusterRead",
        "metadata": metadata,
        "time": written_time(read.time),
        "verb": read.verb,
        "form": read.form,
        "revision": str(read.revision),
        "object": {name: value for name, value in reference.items() if value},
        "who": {name: value for name, value in read.who.items() if value},
        "request": {name: value for name, value in read.request.items() if value},
    }


def read_cell(read: Mapping[str, Any]) -> str:
    """Return the object of a read in one word: ``secrets/db``, ``secrets`` for all, ``pods/web/log``."""
    reference = read["object"]
    plural, group = reference["resource"], reference.get("apiGroup", "")
    kind = f"{plural}.{group}" if group else plural
    return "/".join(filter(None, (kind, reference.get("name"), reference.get("subresource"))))


def recording_object(
    *, name: str, server: str, since: datetime, until: datetime, lost: int, clean: bool, policy: Mapping[str, Any]
) -> Object:
    """Return the ReadRecording of a period."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ReadRecording",
        "metadata": {"name": name, "creationTimestamp": _seconds(since)},
        "server": server,
        "since": written_time(since),
        "until": written_time(until),
        "lost": lost,
        "clean": clean,
        "policy": policy,
    }


def _seconds(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- what was searched ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gap:
    """A period without a recording, or with losses: ``why``."""

    since: datetime
    until: datetime
    why: str


def gaps(recordings: Sequence[Object], *, since: datetime | None, until: datetime) -> tuple[datetime | None, list[Gap]]:
    """Return the beginning of the recordings, and the gaps in them within a period.

    ``since`` None: from their beginning. A period in which any server recorded counts as recorded: which servers were
    there besides, nobody has noted.
    """
    periods = sorted((_time(each["since"]), _time(each["until"]), each) for each in recordings)
    periods = [(first, last, each) for first, last, each in periods if last >= (since or first) and first <= until]
    if not periods:
        return None, []
    found: list[Gap] = []
    reached = periods[0][1]
    for first, last, each in periods:
        if first > reached and (first - reached).total_seconds() > TOLERATED:
            found.append(Gap(reached, first, "no reads were recorded"))
        reached = max(reached, last)
        if each.get("lost"):
            found.append(Gap(first, last, f"{each['lost']} reads were lost"))
    if (until - reached).total_seconds() > TOLERATED:
        found.append(Gap(reached, until, "no reads were recorded"))
    return periods[0][0], found


TOLERATED: Final = 120.0
"""Seconds between two recordings that are no gap: a recording says once a minute that it goes on."""


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))

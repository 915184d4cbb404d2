"""Comparison of the databases at the start of a server: were they restored to different moments?

Nothing in two logs says that they belong to one moment: an idle cluster writes Leases for hours, and nothing else. But
two signs are certain, and each is a line in the server's log:

    an object is in a namespace that the main log lacks          the main log is older
    one log has just been restored, and another one goes on      they are of different moments
    after that moment

The server starts all the same. A main log that is the newer one lacks Events and Leases at most, and an object in an
absent namespace is deleted with kubectl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.transfer.ends import End, absent_namespaces, end_of, namespaces_of
from kubechronicle.ops.server.databases.overrides import Override

NAMED: Final = 20  # namespaces named in a line
MAIN: Final = "the main database"


async def differences(main_url: str, overrides: Sequence[Override]) -> list[str]:
    """Return a line for each sign that the databases are of different moments. SetupError, LogError, LogCorrupt."""
    if not overrides:
        return []
    ends, found = {}, []
    async with open_session(main_url, application="kubechronicle databases") as main:
        ends[MAIN] = await end_of(main)
        for override in overrides:
            name = f"the database of {override.name}"
            async with open_session(override.url, application="kubechronicle databases") as session:
                ends[name] = await end_of(session)
                objects = await namespaces_of(session, override.resources)
            absent = await absent_namespaces(main, objects)
            if absent:
                found.append(_about_namespaces(name, override.name, {each: objects[each] for each in absent}))
    return [*about_ends(ends), *found]


def about_ends(ends: Mapping[str, End]) -> list[str]:
    """Return a line for each pair of which one log was just restored, and the other was not, but has later changes.

    A log that was restored too was bumped after the moment at which the first one ends.
    """
    return [
        f"{one} has just been restored, as of {_time(end.committed_at)}, and {other} has not: it has changes up to "
        f"{_time(later.committed_at)}; docs/databases.md says what may be missing, and how all have one moment"
        for one, end in ends.items()
        for other, later in ends.items()
        if end.is_fresh
        and later.committed_at > end.committed_at
        and (later.bumped_at is None or later.bumped_at <= end.committed_at)
    ]


def _about_namespaces(database: str, resources: str, objects: Mapping[str, int]) -> str:
    named = ", ".join(f"{name} ({count})" for name, count in list(objects.items())[:NAMED])
    more = f" and {len(objects) - NAMED} more" if len(objects) > NAMED else ""
    return (
        f"{database} has objects in namespaces that do not exist: {named}{more}. Was the main database restored to an "
        f"earlier moment? `kubectl delete {resources} --all -n NAMESPACE` deletes them; a namespace that is created "
        "again will have them"
    )


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

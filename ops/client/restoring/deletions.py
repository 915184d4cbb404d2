"""The change that began a deletion: the mark of an object with finalizers or a grace period, else its end."""

from __future__ import annotations

from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.revision_reader import RevisionQuery, bounds, number_of, read_revisions, scopes_of
from kubechronicle.ops.client.revision_texts import user_of
from kubechronicle.ops.client.subjects import Subject

MARK = "metadata.deletionTimestamp"


def last_deletion(client: Client, subject: Subject) -> Object | None:
    """Return the revision that began the last deletion of an object, None if history has none."""
    ends = RevisionQuery(scopes_of(subject), {"operation": "Delete"}, content="", limit=1)
    end = next(read_revisions(client, ends), None)
    if end is None:
        return None
    return mark(client, subject, str(end["object"].get("uid", "")), end["metadata"]["name"]) or end


def mark(client: Client, subject: Subject, uid: str, moment: str) -> Object | None:
    """Return the revision that marked an object for deletion, None if history has none. ``moment``: the last one."""
    # A second request may set the mark again, to an earlier time: the oldest revision counts.
    fields = bounds(client, "", moment) | {"changed": MARK, "object.uid": uid}
    query = RevisionQuery(scopes_of(subject), fields, content="", oldest_first=True, limit=1)
    return next(read_revisions(client, query), None)


def moment_before(revision: Object) -> str:
    """Return the moment before a change."""
    return str(number_of(revision) - 1)


def described(revision: Object) -> str:
    """Return the number of a revision and its user: ``revision 208 by bob``."""
    return f"revision {number_of(revision)} by {user_of(revision)}"

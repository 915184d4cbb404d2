"""Explanations of searches that found nothing: what was searched and since when, or the mistake in the question.

An answer such as "nobody" is wrong for an object that never existed, a field that no version had, or a time that is not
kept any more. These are errors, with the nearest name that exists. The server knows: RevisionExtent
(actors/history/extent.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.extents import covered, moment_text, together
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError
from kubechronicle.ops.client.output import format_duration
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, parameters_of, scopes_of
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import counted

TOLERATED: Final = timedelta(seconds=5)
"""Difference of a commit time to the server's clock that is no sign of a wrong clock."""


SELECTING: Final = ("who.", "request.", "operation")
"""Beginnings of the fields that select changes, besides their objects and times."""


class Search(NamedTuple):
    """A search that found nothing, or not enough.

    ``subject``: the object or kind; None: everything in ``namespace`` ("": in the cluster)
    ``since``: the beginning as the user wrote it, "" without one
    ``field``: the field that was searched for, "" for any
    """

    query: RevisionQuery
    subject: Subject | None = None
    namespace: str = ""
    since: str = ""
    field: str = ""

    @property
    def name(self) -> str:
        if self.subject is not None:
            return self.subject.description
        return f"namespace {self.namespace}" if self.namespace else "the cluster"


def explain(session: Session, search: Search) -> str:
    """Return a sentence about a search without result. OperatorError if the result would mislead."""
    source = f"; searched {session.client.source}" if session.client.source else ""
    try:
        return f"{_explained(session, search)}{source}"
    except ApiError:
        raise
    except OperatorError as error:
        raise OperatorError(f"{error}{source}") from None


def _explained(session: Session, search: Search) -> str:
    extent = read_extent(session, search.query)
    note_clocks(session, extent)
    check_period(search, extent)
    if search.field:
        check_field(search.field, extent, search.name)
    check_kept(search, extent)
    if extent["held"].get("changes") == 0:
        if search.subject is not None and search.subject.name:
            check_existed(session, search.subject, extent)
        check_namespace(session, search.subject.namespace if search.subject is not None else search.namespace)
    skipped = "".join(f"; not searched: {each}" for each in dict.fromkeys(search.query.warnings))
    return f"{covered(extent)}{_elsewhere(session, search)}{skipped}"


def unknowable(session: Session, search: Search, hidden: int) -> OperatorError:
    """Return the error of an answer that nobody can give: the changes are of objects that the user may not read."""
    number = counted(hidden, "change") if hidden else "its changes"
    return OperatorError(
        f"no answer is possible about {search.name}: you may not read {number} of it; {explain(session, search)}"
    )


def _elsewhere(session: Session, search: Search) -> str:
    """Return a remark about a search of one namespace: how many such changes lie outside of it."""
    namespace = search.subject.namespace if search.subject is not None else search.namespace
    fields = {name: value for name, value in search.query.fields.items() if name.startswith(SELECTING)}
    if not namespace or (search.subject is not None and search.subject.name) or not fields:
        return ""
    scope = Scope(f"{API}/revisions", tuple(search.query.scopes[0].fields))
    bounds = {name: value for name, value in search.query.fields.items() if name.startswith(("time.", "revision."))}
    query = RevisionQuery([scope], fields | bounds, content="")
    parameters = {"summary": "groups", "by": "namespace", **parameters_of(query, scope)}
    if search.subject is None:
        parameters["include"] = "clusterrevisions"
    only = f"; only namespace {namespace} was searched"
    try:
        groups = session.client.get(scope.path, parameters)["groups"]
    except ApiError as error:
        if error.code not in (400, 403):
            raise
        return f"{only}, as you may not list the changes of the others" if error.code == 403 else only
    outside = sum(int(group["changes"]) for group in groups if group["namespace"] != namespace)
    if not outside:
        return f"{only}, and the others have no such change"
    return f"{only}: {outside} such change{' lies' if outside == 1 else 's lie'} outside of it, and -A finds them"


def read_extent(session: Session, query: RevisionQuery) -> Object:
    """Return how far a search reaches, over all its lists that the user may read. ApiError."""
    found: list[Object] = []
    for scope in query.scopes:
        try:
            found.append(session.client.get(scope.path, {"summary": "extent", **parameters_of(query, scope)}))
        except ApiError as error:
            if error.code != 403 or not scope.optional:
                raise
    return together(found)


def note_beginning(session: Session, search: Search) -> None:
    """Print on stderr the beginning of the history, if a search goes back further and so has not found everything."""
    extent = read_extent(session, search.query)
    note_clocks(session, extent)
    if not extent["whole"]:
        begins = moment_text(extent["since"])
        session.screen.note(f"the history of {_kind_of(search)} begins at {begins}: earlier changes are not kept")


def note_clocks(session: Session, extent: Mapping[str, Any]) -> None:
    """Print on stderr that commit times lie in the future, so that times and ages may name other changes."""
    newest = extent["newest"]
    ahead = datetime.fromisoformat(newest["time"]) - session.client.now() if "time" in newest else timedelta()
    if ahead > TOLERATED:
        session.screen.note(
            f"a clock was wrong: the newest change (revision {newest['revision']}) has a time {format_duration(ahead)} "
            "in the future; name revisions instead of times"
        )


# -- mistakes ---------------------------------------------------------------------------------------------------------


def check_field(field: str, extent: Mapping[str, Any], name: str) -> None:
    """Refuse a field that no version had. OperatorError, with the nearest field."""
    seen = extent.get("fields") or {}
    if not seen.get("versions") or not seen["whole"]:
        return
    for unknown in seen["unknown"]:
        hint = f"; did you mean {unknown['nearest']}?" if unknown["nearest"] else ""
        versions = f"none of the {seen['versions']} versions" if seen["versions"] > 1 else "no version"
        raise OperatorError(f"{versions} of {name} has a field {field}{hint}")


def check_period(search: Search, extent: Mapping[str, Any]) -> None:
    """Refuse a period whose end lies before its beginning, or before all history. OperatorError."""
    asked = extent.get("bounds")
    if asked is None:
        return
    after, until = int(asked["after"]), int(asked["until"])
    if after > until and any(name.endswith(".to") for name in search.query.fields):
        raise OperatorError(
            f"the period begins at revision {after}, after its end at revision {until}: name the earlier moment first"
        )
    if until < int(extent["since"]["revision"]):
        raise OperatorError(
            f"the period ends before the history of {_kind_of(search)} begins, at {moment_text(extent['since'])}"
        )


def check_kept(search: Search, extent: Mapping[str, Any]) -> None:
    """Refuse an answer about a time that is not kept any more. OperatorError."""
    if search.since and not extent["whole"]:
        raise OperatorError(
            f"the history of {_kind_of(search)} begins at {moment_text(extent['since'])}: "
            f"the time since {search.since} is not kept as a whole, and later there is no such change"
        )


def _kind_of(search: Search) -> str:
    return search.subject.kind.full_name if search.subject is not None else search.name


def check_existed(session: Session, subject: Subject, extent: Mapping[str, Any] | None = None) -> None:
    """Refuse an object that has no change in the history. OperatorError, with the nearest name."""
    if extent is None:
        extent = read_extent(session, RevisionQuery(scopes_of(subject)))
    if extent["held"].get("changes") != 0:
        return
    begins = moment_text(extent["since"])
    if _exists(session, subject):
        raise OperatorError(
            f"the history of {subject.kind.full_name} begins at {begins}: "
            f"{subject.description} has not changed since then, and earlier changes are not kept"
        )
    check_namespace(session, subject.namespace)
    hint = _suggestion(session, subject)
    raise OperatorError(f"there is no {subject.description}, nor was there one since {begins}{hint}")


def _exists(session: Session, subject: Subject) -> bool:
    try:
        return session.client.get_if(subject.path()) is not None
    except ApiError as error:
        if error.code != 403:
            raise
        return False


def _suggestion(session: Session, subject: Subject) -> str:
    scope = scopes_of(Subject(subject.kind, subject.namespace))[0]
    from kubechronicle.api.history.suggestions import nearest_name  # for searches without result alone

    nearest = nearest_name(subject.name, names_in(session, scope))
    return f"; did you mean {subject.kind.object_name(nearest)}?" if nearest else ""


def names_in(session: Session, scope: Scope) -> list[str]:
    """Return the names of the objects with changes in a list of revisions, those with the most changes first."""
    query = RevisionQuery([scope], content="")
    found = session.client.get(scope.path, {"summary": "groups", "by": "name", **parameters_of(query, scope)})
    return [group["name"] for group in found["groups"]]


def check_namespace(session: Session, namespace: str) -> None:
    """Refuse a namespace that never existed. OperatorError, with the nearest name."""
    kind = session.kinds().of_resource("", "namespaces") if namespace else None
    if kind is None:
        return
    subject = Subject(kind, "", namespace)
    try:
        extent = read_extent(session, RevisionQuery(scopes_of(subject)))
    except ApiError as error:
        if error.code == 403:
            return
        raise
    if extent["held"].get("changes") == 0 and not _exists(session, subject):
        begins = moment_text(extent["since"])
        hint = _suggestion(session, subject)
        raise OperatorError(f"there is no namespace {namespace}, nor was there one since {begins}{hint}")

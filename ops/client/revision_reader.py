"""Read the revisions of an object, a kind, a namespace or the cluster, page by page in one order."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from kubechronicle.api.history.moments import parse_moment, written
from kubechronicle.api.history.positions import covers, is_joined, place_of
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

API: Final = f"/apis/{HISTORY}/v1"
# Revisions per request: with their objects, and without.
FULL_PAGE, SHORT_PAGE = 100, 2000
# Seconds before a watch that ended is restarted. The server ends every watch after some time.
WATCH_PAUSE: Final = 0.25
# Tolerated difference between the clocks of client and server.
FUTURE: Final = timedelta(minutes=1)
NO_HISTORY: Final = "this server does not serve revisions; is it kubechronicle?"


class Scope(NamedTuple):
    """One list of revisions.

    ``fields``: the field selector
    ``optional``: skip the list if the user may not read it
    """

    path: str
    fields: tuple[tuple[str, str], ...] = ()
    optional: bool = False


class RevisionQuery:
    """A query over one or two lists of revisions.

    ``fields``: further field selectors
    ``labels``: a label selector, "" for none
    ``content``: ``full`` with the objects, ``diff`` with the differences, "" with neither
    ``limit``: the largest number of revisions, 0 for all
    ``warnings``: filled with the reasons why optional scopes were skipped
    """

    def __init__(
        self,
        scopes: Sequence[Scope],
        fields: Mapping[str, str] | None = None,
        *,
        content: str = "full",
        oldest_first: bool = False,
        limit: int = 0,
        warnings: list[str] | None = None,
        labels: str = "",
    ) -> None:
        self.scopes, self.fields, self.content = scopes, fields or {}, content
        self.oldest_first, self.limit, self.labels = oldest_first, limit, labels
        self.warnings = [] if warnings is None else warnings

    def replaced(self, **changes: Any) -> RevisionQuery:
        """Return a query with other values, and the same list of warnings unless another one is given."""
        return RevisionQuery(**{**vars(self), **changes})


def scopes_of(subject: Subject) -> list[Scope]:
    """Return the lists with the changes of one object or kind."""
    fields = [("object.resource", subject.kind.full_name)]
    if subject.name:
        fields.append(("object.name", subject.name))
    return [Scope(_path(subject.kind.namespaced, subject.namespace), tuple(fields))]


def scopes_in(namespace: str) -> list[Scope]:
    """Return the lists with all changes in a namespace and of the namespace itself; "" for the whole cluster."""
    if not namespace:
        return [Scope(_path(True, "")), Scope(_path(False, ""))]
    itself = (("object.resource", "namespaces"), ("object.name", namespace))
    return [Scope(_path(True, namespace)), Scope(_path(False, ""), itself, optional=True)]


def _path(namespaced: bool, namespace: str) -> str:
    if not namespaced:
        return f"{API}/clusterrevisions"
    return f"{API}/namespaces/{quote(namespace, safe='')}/revisions" if namespace else f"{API}/revisions"


def read_revisions(client: Client, query: RevisionQuery) -> Iterator[Object]:
    """Yield the revisions of all scopes in one order. ApiError, OperatorError."""
    lists = (_read_scope(client, query, scope) for scope in query.scopes)
    for count, revision in enumerate(heapq.merge(*lists, key=in_time, reverse=not query.oldest_first), 1):
        yield revision
        if count == query.limit:
            return


def _read_scope(client: Client, query: RevisionQuery, scope: Scope) -> Iterator[Object]:
    size = FULL_PAGE if query.content else SHORT_PAGE
    parameters = parameters_of(query, scope) | {"order": "oldest" if query.oldest_first else "newest"}
    try:
        yield from client.items(scope.path, parameters, size=min(size, query.limit or size))
    except ApiError as error:
        if error.code == 404:
            raise OperatorError(NO_HISTORY) from None
        if error.code != 403 or not scope.optional:
            raise
        query.warnings.append(error.message)


def parameters_of(query: RevisionQuery, scope: Scope) -> dict[str, str]:
    """Return the parameters of a list of revisions: its selectors, and the content."""
    terms = [*scope.fields, *query.fields.items()]
    selector = ",".join(f"{name}={escape_value(value)}" for name, value in terms)
    found = {"fieldSelector": selector, "labelSelector": query.labels, "content": query.content}
    return {name: value for name, value in found.items() if value}


def escape_value(value: str) -> str:
    """Escape a value of a field selector (k8s.io/apimachinery/pkg/fields: EscapeValue)."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def number_of(revision: Object) -> int:
    return int(revision["metadata"]["name"])


def in_time(revision: Object) -> tuple[datetime, int]:
    """Return the place of a revision in the order of times. Databases have revisions of their own."""
    return datetime.fromisoformat(revision["time"]), number_of(revision)


def after(position: int) -> dict[str, str]:
    """Return the field selector for the changes after a position."""
    # Servers with one log may be older than the second field.
    return {"revision.after": str(position)} if is_joined(position) else {"revision.from": str(position + 1)}


def bounds(client: Client, since: str, until: str) -> dict[str, str]:
    """Return field selectors for the changes after ``since``, up to and including ``until``. OperatorError.

    "" is no bound.
    """
    _check_order(client, since, until)
    selectors: dict[str, str] = {}
    for text, name in ((since, "from"), (until, "to")):
        if not text:
            continue
        moment = written(client.now()) if text == "now" and name == "from" else client.resolve_moment(text)
        if moment.isdigit():
            selectors[f"revision.{name}"] = str(int(moment) + 1) if name == "from" else moment
        elif moment:
            selectors[f"time.{name}"] = moment
    return selectors


def _check_order(client: Client, since: str, until: str) -> None:
    """Refuse times in the wrong order, and a beginning in the future: nothing could be found. OperatorError."""
    first, last = (client.resolve_moment(text) if text else "" for text in (since, until))
    if since == "now":
        first = written(client.now())
    if first.isdigit() and last.isdigit():
        swapped = place_of(int(first)) == place_of(int(last)) and int(first) > int(last)
    else:
        begin, end = (None if not each or each.isdigit() else parse_moment(each) for each in (first, last))
        swapped = isinstance(begin, datetime) and isinstance(end, datetime) and begin > end
        if isinstance(begin, datetime) and begin > client.now() + FUTURE:
            raise OperatorError(f"{since} lies in the future: it is {written(client.now())}")
    if swapped:
        raise OperatorError(f"{since} is later than {until}: name the earlier moment first")


def follow(client: Client, query: RevisionQuery, position: int) -> Iterator[Object]:
    """Yield the revisions after a position as they are committed, in one order, without end.

    Watches tell that there are new ones. Those of several lists arrive in any order, so the lists are read then, up to
    one position.
    """
    if len(query.scopes) == 1:
        yield from _follow_scope(client, query, query.scopes[0], position)
        return
    import queue  # commands that do not follow start sooner without it

    arrivals: queue.Queue[int | Exception] = queue.Queue()

    def watch(scope: Scope) -> None:
        try:
            for revision in _follow_scope(client, query.replaced(content=""), scope, position):
                arrivals.put(number_of(revision))
        except Exception as error:
            arrivals.put(error)

    for scope in query.scopes:
        threading.Thread(target=watch, args=(scope,), daemon=True).start()
    while True:
        arrival = arrivals.get()
        if isinstance(arrival, Exception):
            raise arrival
        if covers(position, arrival):
            continue  # it was read together with another one
        newest = newest_position(client, query)
        limits = {**after(position), "revision.to": str(newest)}
        fresh = query.replaced(fields={**query.fields, **limits}, oldest_first=True, limit=0)
        yield from read_revisions(client, fresh)
        position = newest


def _follow_scope(client: Client, query: RevisionQuery, scope: Scope, position: int) -> Iterator[Object]:
    while True:
        parameters = parameters_of(query, scope) | {"resourceVersion": str(position), "allowWatchBookmarks": "true"}
        try:
            for event in client.watch(scope.path, parameters):
                revision: dict[str, Any] = event["object"]
                position = max(position, int(revision["metadata"].get("resourceVersion") or 0))
                if event["type"] != "BOOKMARK":
                    yield revision
        except ApiError as error:
            if error.code != 403 or not scope.optional:
                raise
            query.warnings.append(error.message)
            return
        time.sleep(WATCH_PAUSE)


def newest_position(client: Client, query: RevisionQuery) -> int:
    """Return the position of the newest change: of several databases, with the revisions of those that may have any."""
    found = []
    for scope in query.scopes:
        try:
            page = client.get(scope.path, {"limit": "1", **parameters_of(query.replaced(content=""), scope)})
        except ApiError as error:
            if error.code != 403 or not scope.optional:
                raise
        else:
            found.append(int((page.get("metadata") or {}).get("resourceVersion") or 0))
    return max(found, default=0)

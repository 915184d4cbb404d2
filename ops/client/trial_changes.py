"""The part of the log that a trial of policies reads: the resources, the bounds, and the changes in order."""

from __future__ import annotations

import queue
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import DecodeError

from kubechronicle.api.admission.logged_changes import PAGES, LoggedChange, group_of
from kubechronicle.api.admission.logged_writes import CREATE, DELETE, UPDATE, VIEWS
from kubechronicle.api.admission.matching import NAMESPACES, WriteKind
from kubechronicle.api.custom.served import all_types
from kubechronicle.api.history.cells import DELETION_FIELDS, DELETIONS, NOISY_RESOURCES
from kubechronicle.api.registry.registry import Registry, known_registry
from kubechronicle.ops.client.client import NOT_JSON, ApiError, Client
from kubechronicle.ops.client.revision_reader import API, NO_HISTORY
from kubechronicle.ops.errors import OperatorError

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PAGE: Final = 1000
"""Changes of a page: two or three megabytes of objects. Pages of 500 and of 1,900 cost more CPU per change."""
SMALL_PAGE: Final = 4000
"""The same for changes of which a few fields are wanted: about a megabyte."""
PAGES_AHEAD: Final = 2
"""Pages that are read before they are needed, for each list."""
MOST_LISTS: Final = 12
"""Resources that are read by lists of their own. Policies for more of them read the whole log."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Changes with ``after`` < revision <= ``until``. ``begins``: the start of a history that is shorter than asked."""

    after: int
    until: int
    begins: str = ""


def find_bounds(client: Client, since: str, until: str) -> Bounds:
    """Return the revisions of a period. OperatorError."""
    last = _revision_at(client, until) if until else _revision_at(client, "now")
    assert isinstance(last, int), "a moment before the history raises"
    if not since:
        since = "1"
    try:
        first = _revision_at(client, since)
        if first > last:
            raise OperatorError(f"{since} lies after {until or 'now'}: name the earlier moment first")
        return Bounds(first, last)
    except ApiError as error:
        oldest = re.search(r"oldest moment is (\S+) \(revision (\d+)\)", error.message)
        if error.code != 410 or oldest is None:
            raise
        kept = int(oldest[2])
        return Bounds(0 if kept <= 1 else kept, last, oldest[1])


def _revision_at(client: Client, text: str) -> int:
    moment = client.resolve_moment(text)
    if moment.isdigit():
        return int(moment)
    page = client.at(moment).get("/api/v1/namespaces", {"limit": "1"})
    return int(page["metadata"]["resourceVersion"])


def registry_with_custom_types(client: Client) -> Registry:
    """Return the built-in types, and those of the definitions that are served now. ApiError."""
    found = [
        rt
        for definition in client.items(DEFINITIONS)
        if (definition.get("status") or {}).get("acceptedNames", {}).get("plural")
        for rt in all_types(definition)
    ]
    return known_registry().with_types(found) if found else known_registry()


@dataclass(frozen=True, slots=True)
class Source:
    """One list of changes.

    ``resource``: the stored resource, "" for all.
    ``operation``: Create, or "" for all.
    ``deletions``: changes by requests to delete are wanted.
    ``fields``: the fields of objects that are wanted; empty: all.
    ``version``: the API version of the objects that have these fields; others come as a whole.
    """

    resource: str
    namespaced: bool
    operation: str = ""
    namespace: str = ""
    deletions: bool = True
    fields: tuple[str, ...] = ()
    version: str = ""

    @property
    def is_whole(self) -> bool:
        """True if it has all changes of its resources, with all that they have."""
        return not (self.namespace or self.operation or self.fields) and self.deletions

    def path(self) -> str:
        if not self.namespaced:
            return f"{API}/clusterrevisions"
        return f"{API}/namespaces/{self.namespace}/revisions" if self.namespace else f"{API}/revisions"


Concerns = Callable[[WriteKind], bool]
"""Tell whether some policy or webhook matches a kind of write."""


Fields = Callable[[Sequence[WriteKind]], tuple[str, ...]]
"""Return the fields of objects that policies read in writes of these kinds; empty: all."""


def sources_of(concerns: Concerns, fields: Fields, registry: Registry, namespace: str) -> list[Source]:
    """Return the lists of the changes that policies may match. ``namespace``: only the objects in it."""
    found = []
    for rt in registry.stored():
        kinds = [
            kind
            for operation in (CREATE, UPDATE, DELETE)
            for version in registry.known_as(rt.resource)
            for subresource in ("", *(VIEWS & set(version.subresources)))
            if concerns(kind := WriteKind(version, subresource, operation, rt.namespaced or rt.resource == NAMESPACES))
        ]
        operations = {kind.operation for kind in kinds}
        if kinds and (rt.namespaced or not namespace):
            source = Source(
                rt.resource,
                rt.namespaced,
                "Create" if operations == {CREATE} else "",
                namespace,
                deletions=DELETE in operations,
                fields=fields(kinds),
                version=rt.storage_api_version,
            )
            found.append(source)
    return found


def merged(sources: Sequence[Source], context: Sequence[Source]) -> list[Source]:
    """Return the lists to read for the changes to judge, and for those of the state that policies read."""
    if len(sources) > MOST_LISTS:
        inside = [Source("", True, namespace=next(iter(sources)).namespace)]
        sources = [*inside, *([Source("", False)] if any(not each.namespaced for each in sources) else [])]
    lists = list(sources)
    for each in context:
        covering = [one for one in lists if one.resource in ("", each.resource) and one.namespaced == each.namespaced]
        if not any(one.is_whole for one in covering):
            # A list of all changes of the resource takes the place of one of a part.
            lists = [one for one in lists if one.resource != each.resource]
            lists.append(each)
    return lists


Run = tuple[str, Sequence[LoggedChange]]
"""Changes that follow each other, of one resource; "": of several, each with a resource of its own (resource_of)."""


def changes(
    client: Client, sources: Sequence[Source], bounds: Bounds, *, old_read: bool, user_read: bool
) -> Iterator[Run]:
    """Yield the changes of all lists in the order of the log. ApiError, OperatorError.

    ``old_read``: the changes have the objects before them. ``user_read``: more of the user than the name is wanted.
    """
    content = {"content": "states" if old_read else "after"} | ({} if user_read else {"details": "none"})
    stop = threading.Event()
    # Only Events and Leases may be in another database.
    place_of = in_time if any(each.resource in ("", *NOISY_RESOURCES) for each in sources) else in_log
    try:
        yield from _merged(
            _List(each.resource, _ahead(client, each, _query(each, bounds) | content, stop), place_of)
            for each in sources
        )
    finally:
        stop.set()


Place = tuple[Any, ...]
"""The place of a change in the order of all: its time and revision or, if all are in one log, the revision alone."""


class _List:
    """One list: the rest of its page, and its next pages. ``next``: the place of its next change.

    ``place_of``: returns the place of a change.
    """

    def __init__(
        self, resource: str, pages: Iterator[Sequence[LoggedChange]], place_of: Callable[[LoggedChange], Place]
    ) -> None:
        self.resource = resource
        self._pages = pages
        self.place_of = place_of
        self._page: Sequence[LoggedChange] = ()
        self._at = 0
        self.next: Place = NOWHERE

    def begin(self) -> bool:
        """Go to the next change, if need be that of another page. Return False at the end."""
        while self._at == len(self._page):
            page = next(self._pages, None)
            if page is None:
                return False
            self._page, self._at = page, 0
        self.next = self.place_of(self._page[self._at])
        return True

    def take(self, after: Place, until: Place | None) -> Sequence[LoggedChange]:
        """Return the next changes of the page after a place and up to another one. None: to the end."""
        begin, page = self._at, self._page
        if until is None or self.place_of(page[-1]) <= until:
            self._at = len(page)
        else:
            self._at = bisect_right(page, until, begin, key=self.place_of)
        if self.next <= after:  # lists may overlap
            begin = bisect_right(page, after, begin, self._at, key=self.place_of)
        return page[begin : self._at]


NOWHERE: Final[Place] = ()  # before all places


def in_log(change: LoggedChange) -> Place:
    """Return the place of a change among those of one log."""
    return (change.revision,)


def in_time(change: LoggedChange) -> Place:
    """Return the place of a change among those of several databases, which have revisions of their own."""
    return datetime.fromisoformat(change.time), change.revision


def _merged(lists: Iterable[_List]) -> Iterator[Run]:
    """Yield changes by their places. Mostly, many changes of one list follow each other."""
    rest = [each for each in lists if each.begin()]
    last = NOWHERE
    while rest:
        first = min(rest, key=lambda each: each.next)
        until = min((each.next for each in rest if each is not first), default=None)
        if run := first.take(last, until):
            last = first.place_of(run[-1])
            yield first.resource, run
        if not first.begin():
            rest.remove(first)


def _ahead(
    client: Client, source: Source, query: Mapping[str, str], stop: threading.Event
) -> Iterator[Sequence[LoggedChange]]:
    """Yield the pages of one list. The next ones are read in a thread meanwhile."""
    pages: queue.Queue[Sequence[LoggedChange] | Exception | None] = queue.Queue(PAGES_AHEAD)

    def put(value: Sequence[LoggedChange] | Exception | None) -> bool:
        while not stop.is_set():
            try:
                pages.put(value, timeout=0.2)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            size = SMALL_PAGE if source.fields else PAGE
            for page in client.decoded_pages(_decode_page, source.path(), query, size=size):
                if not put(page):
                    return
            put(None)
        except Exception as error:
            put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        page = pages.get()
        if page is None:
            return
        if isinstance(page, Exception):
            if isinstance(page, ApiError) and page.code == 404:
                raise OperatorError(NO_HISTORY) from None
            raise page
        yield page


def _decode_page(body: bytes) -> tuple[Sequence[LoggedChange], str]:
    """Return the changes of a page, their objects not decoded, and the token of the next page. OperatorError."""
    try:
        page = PAGES.decode(body)
    except DecodeError:
        raise OperatorError(NOT_JSON) from None
    return page.items, page.metadata.continue_


def _query(source: Source, bounds: Bounds) -> dict[str, str]:
    terms = [f"revision.from={bounds.after + 1}", f"revision.to={bounds.until}"]
    if source.resource:
        terms.append(f"object.resource={source.resource}")
    if source.operation:
        terms.append(f"operation={source.operation}")
    if not source.deletions:
        terms += [f"request.verb!={verb}" for verb in DELETIONS]
    query = {"order": "oldest", "fieldSelector": ",".join(terms)}
    if source.fields:
        query |= {"fields": ",".join(dict.fromkeys((*source.fields, *DELETION_FIELDS))), "fieldsOf": source.version}
    return query


def resource_of(change: LoggedChange) -> str:
    """Return the stored resource of a change with objects; without them, the plural alone."""
    group = group_of(change)
    return f"{change.object.resource}.{group}" if group else change.object.resource

"""Reading revisions: those of an object, a kind, a namespace or the cluster, page by page in one order."""

from __future__ import annotations

import heapq
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.api.history.moments import written
from kubechronicle.api.registry.resources import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.session import Subject
from kubechronicle.ops.errors import OperatorError

API: Final = f"/apis/{HISTORY}/v1"
# Revisions asked for at once: with their objects, and without.
FULL_PAGE, SHORT_PAGE = 100, 2000
# Seconds until a watch that has ended, as they all do, is begun again.
PAUSE: Final = 0.25
NO_HISTORY: Final = "this server keeps no history: it does not know revisions. Is it kubechronicle?"


@dataclass(frozen=True, slots=True)
class Scope:
    """A list of revisions, and what is selected of it. ``optional``: those who may not read it do without."""

    path: str
    fields: tuple[tuple[str, str], ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """``fields``: further field selectors. ``content``: "", diff or full."""

    scopes: Sequence[Scope]
    fields: Mapping[str, str] = field(default_factory=dict)
    content: str = "full"
    oldest_first: bool = False
    limit: int = 0
    complaints: list[str] = field(default_factory=list)


def scopes_of(subject: Subject) -> list[Scope]:
    """The changes of one object or kind."""
    selected = [("object.resource", subject.kind.full)]
    if subject.name:
        selected.append(("object.name", subject.name))
    return [Scope(_path(subject.kind.namespaced, subject.namespace), tuple(selected))]


def scopes_in(namespace: str) -> list[Scope]:
    """Everything in a namespace, and the namespace itself; "": everything."""
    if not namespace:
        return [Scope(_path(True, "")), Scope(_path(False, ""))]
    itself = (("object.resource", "namespaces"), ("object.name", namespace))
    return [Scope(_path(True, namespace)), Scope(_path(False, ""), itself, optional=True)]


def _path(namespaced: bool, namespace: str) -> str:
    if not namespaced:
        return f"{API}/clusterrevisions"
    return f"{API}/namespaces/{quote(namespace, safe='')}/revisions" if namespace else f"{API}/revisions"


def changes(client: Client, asked: Asked) -> Iterator[Object]:
    """At most ``limit`` (0: all), in the order of revisions. ApiError, OperatorError."""
    sign = 1 if asked.oldest_first else -1
    found = heapq.merge(*(_of(client, asked, scope) for scope in asked.scopes), key=lambda each: sign * number(each))
    for count, each in enumerate(found, 1):
        yield each
        if count == asked.limit:
            return


def _of(client: Client, asked: Asked, scope: Scope) -> Iterator[Object]:
    size = FULL_PAGE if asked.content else SHORT_PAGE
    query = _query(asked, scope) | {"order": "oldest" if asked.oldest_first else "newest"}
    try:
        yield from client.items(scope.path, query, size=min(size, asked.limit or size))
    except ApiError as error:
        if error.code == 404:
            raise OperatorError(NO_HISTORY) from None
        if error.code != 403 or not scope.optional:
            raise
        asked.complaints.append(error.message)


def _query(asked: Asked, scope: Scope) -> dict[str, str]:
    terms = [*scope.fields, *asked.fields.items()]
    query = {"fieldSelector": ",".join(f"{name}={escaped(value)}" for name, value in terms)} if terms else {}
    return query | ({"content": asked.content} if asked.content else {})


def escaped(value: str) -> str:
    """As a field selector has it (k8s.io/apimachinery/pkg/fields: EscapeValue)."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def number(revision: Object) -> int:
    return int(revision["metadata"]["name"])


def bounds(client: Client, since: str, until: str) -> dict[str, str]:
    """Field selectors for what came after one moment, up to another; "" for no bound. OperatorError."""
    found: dict[str, str] = {}
    for text, name in ((since, "from"), (until, "to")):
        moment = written(client.now()) if text == "now" and name == "from" else client.settled(text)
        if moment.isdigit():
            found[f"revision.{name}"] = str(int(moment) + 1) if name == "from" else moment
        elif moment:
            found[f"time.{name}"] = moment
    return found


def follow(client: Client, asked: Asked, after: int) -> Iterator[Object]:
    """What comes after a revision, as it comes; without end. Of one scope in order, of several as they arrive."""
    if len(asked.scopes) == 1:
        yield from _following(client, asked, asked.scopes[0], after)
        return
    arrived: queue.Queue[Object | Exception] = queue.Queue()

    def read(scope: Scope) -> None:
        try:
            for each in _following(client, asked, scope, after):
                arrived.put(each)
        except Exception as error:
            arrived.put(error)

    for scope in asked.scopes:
        threading.Thread(target=read, args=(scope,), daemon=True).start()
    while True:
        found = arrived.get()
        if isinstance(found, Exception):
            raise found
        yield found


def _following(client: Client, asked: Asked, scope: Scope, after: int) -> Iterator[Object]:
    while True:
        query = _query(asked, scope) | {"resourceVersion": str(after), "allowWatchBookmarks": "true"}
        for event in client.watch(scope.path, query):
            revision: dict[str, Any] = event["object"]
            after = max(after, int(revision["metadata"].get("resourceVersion") or 0))
            if event["type"] != "BOOKMARK":
                yield revision
        time.sleep(PAUSE)


def newest(client: Client, scope: Scope) -> int:
    """The server's newest revision."""
    found = client.get(scope.path, {"limit": "1", **_query(Asked([scope], content=""), scope)})
    return int((found.get("metadata") or {}).get("resourceVersion") or 0)

"""Recorded accesses: who was refused what, who had a session with which container, who got a token of which account.

They are revisions of AccessRecords (api/history/accesses.py) by the server itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.accesses import DENIED, RECORDING, RESOURCE, SESSION, TOKEN, TYPE, about
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.printable import printable
from kubechronicle.ops.client.client import Client
from kubechronicle.ops.client.output import Screen, ago, format_duration, format_time
from kubechronicle.ops.client.revision_reader import API, RevisionQuery, Scope, read_revisions
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

SCOPE: Final = Scope(f"{API}/clusterrevisions", (("object.resource", RESOURCE),))
SERVER: Final = "system:apiserver"
NOT_RECORDED: Final = (
    "accesses are not recorded here: no answer is possible (kubechronicle serve --record FILE records them)"
)


class AccessQuery(NamedTuple):
    """``types``: of records. ``namespace``: "" for all. ``subject``: the object or kind; None: any."""

    types: Sequence[str]
    namespace: str = ""
    verb: str = ""
    subject: Subject | None = None
    user: str = ""

    def matches(self, spec: Mapping[str, Any]) -> bool:
        """Tell whether a record is asked for, in whatever namespace."""
        subject, user = self.subject, self.user
        if spec.get("type") not in self.types or (self.verb and spec.get("verb") != self.verb):
            return False
        if subject is not None and spec.get("resource") != subject.kind.full_name:
            return False
        if subject is not None and subject.name and spec.get("name") != subject.name:
            return False
        if user.endswith("*"):
            return str(spec.get("user", "")).startswith(user[:-1])
        return not user or spec.get("user") == user

    def is_here(self, spec: Mapping[str, Any]) -> bool:
        return not self.namespace or spec.get("namespace", "") == self.namespace


class Accesses:
    """``found``: the records, newest first. ``outside``: number of others, in other namespaces.

    ``since``: the first time at which a server recorded; "" if none did. ``lost``: accesses that were not recorded.
    """

    __slots__ = ("found", "lost", "outside", "since")

    def __init__(self, found: list[Object], outside: int = 0, since: str = "", lost: int = 0) -> None:
        self.found, self.outside, self.since, self.lost = found, outside, since, lost


def read_accesses(client: Client, query: AccessQuery, bounds: Mapping[str, str]) -> Accesses:
    """Return the recorded accesses of a query. ``bounds``: field selectors for times. ApiError."""
    answer = Accesses([])
    labels = f"{TYPE} in ({','.join(query.types)})"
    asked = RevisionQuery([SCOPE], {**bounds, "who.username": SERVER}, labels=labels)
    for spec in _newest(read_revisions(client, asked)):
        if query.matches(spec):
            if query.is_here(spec):
                answer.found.append(spec)
            else:
                answer.outside += 1
    recordings = asked.replaced(fields={"who.username": SERVER}, labels=f"{TYPE}={RECORDING}", oldest_first=True)
    for spec in _specs(read_revisions(client, recordings)):
        answer.since = answer.since or str(spec.get("first", ""))
        answer.lost = max(answer.lost, int(spec.get("lost") or 0))
    return answer


def _specs(revisions: Iterable[Object]) -> Iterable[Object]:
    for revision in revisions:
        if spec := (revision.get("after") or {}).get("spec"):
            yield spec | {"revision": revision["metadata"]["name"], "time": revision["time"]}


def _newest(revisions: Iterable[Object]) -> Iterable[Object]:
    """Yield the last state of each record: the end of a session, the whole number of refusals."""
    seen: set[tuple[str, str]] = set()
    for spec in _specs(revisions):
        key = (str(spec.get("type")), str(spec.get("auditID")))
        if key not in seen:
            seen.add(key)
            yield spec


def check_recorded(answer: Accesses) -> None:
    """Refuse an answer about accesses that nobody recorded. OperatorError."""
    if not answer.since:
        raise OperatorError(NOT_RECORDED)


def coverage(answer: Accesses, query: AccessQuery) -> str:
    """Return what was searched, in words."""
    words = [f"accesses are recorded since {format_time(answer.since)}"]
    if answer.lost:
        words.append(f"but {answer.lost} were lost, as there were too many at once")
    if query.namespace:
        outside = f"{answer.outside} lie outside of it, and -A finds them" if answer.outside else "no other has any"
        words.append(f"only namespace {query.namespace} was searched: {outside}")
    return "; ".join(words)


# -- output -----------------------------------------------------------------------------------------------------------


def sentence(spec: Mapping[str, Any], now: datetime) -> str:
    """Return a record as a sentence.

    ann was refused to delete secrets/key -n shop, 3 times since 2026-11-21 16:46:50Z (5m ago): … forbidden …
    """
    user = printable(str(spec.get("user", "")))
    if spec.get("impersonator"):
        user = f"{printable(spec['impersonator'])} as {user}"
    access, type_ = printable(about(spec)), spec.get("type")
    if type_ == SESSION:
        return f"{user} {_session(spec, now)}"
    time = str(spec.get("first", ""))
    when = f"{format_time(time)} ({ago(time, now)})"
    if type_ == TOKEN:
        name = printable(str(spec.get("name", "")))
        for_whom = f", for {printable(spec['boundTo'])}" if spec.get("boundTo") else ""
        return f"{user} got a token of serviceaccount/{name} -n {spec.get('namespace', '')}{for_whom} at {when}"
    count = int(spec.get("count") or 1)
    times = f"{count} times since" if count > 1 else "at"
    return f"{user} was refused to {access or 'do further requests'}, {times} {when}"


def _session(spec: Mapping[str, Any], now: datetime) -> str:
    began, ended = str(spec.get("began", "")), str(spec.get("ended", ""))
    name, where = printable(str(spec.get("name", ""))), printable(str(spec.get("namespace", "")))
    container = f" (container {printable(spec['container'])})" if spec.get("container") else ""
    begin = f"{spec.get('subresource')} session with pod/{name} -n {where}{container}, begun at {format_time(began)}"
    if not ended:
        return f"has an {begin} ({ago(began, now)}); no end of it is recorded"
    lasted = format_duration(datetime.fromisoformat(ended) - datetime.fromisoformat(began))
    return f"had an {begin} ({ago(began, now)}), which lasted {lasted}"


def print_accesses(screen: Screen, found: Iterable[Mapping[str, Any]], now: datetime) -> None:
    for spec in found:
        screen.line(Painted(sentence(spec, now), "strong"))
        for name, text in _details(spec):
            screen.line("  ", Painted(f"{name:<9}", "dim"), f" {printable(text)}")


def _details(spec: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    texts = (
        ("command", spec.get("command")),
        ("because", spec.get("message") if spec.get("type") == DENIED else None),
        ("audiences", ", ".join(spec.get("audiences") or ())),
        ("expires", spec.get("expires")),
        ("token id", spec.get("tokenID")),
        ("agent", str(spec.get("userAgent") or "").partition(" ")[0]),
        ("source", spec.get("sourceAddress")),
        ("revision", spec.get("revision")),
        ("audit id", spec.get("auditID")),
    )
    return [(name, str(text)) for name, text in texts if text]

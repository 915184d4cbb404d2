"""Reads from the server's records: lists of reads in one order, and what their recordings cover."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import NONE, AuditPolicy, GroupResources, PolicyRule
from kubechronicle.api.history.reads import Gap, gaps
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.revision_reader import API, escape_value
from kubechronicle.ops.client.subjects import Subject
from kubechronicle.ops.errors import OperatorError

PAGE: Final = 1000
REVISIONS: Final = (f"revisions.{HISTORY}", f"clusterrevisions.{HISTORY}")
NOT_SERVED: Final = "this server does not serve recorded reads; is it kubechronicle, and new enough?"


@dataclass(slots=True)
class ReadsQuery:
    """A query of reads.

    ``subject``: the object or kind that was read; None: all objects in ``namespace`` ("": in the cluster).
    ``fields``: further field selectors.
    ``skipped``: filled with the reasons why lists were skipped.
    """

    subject: Subject | None = None
    namespace: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def read_reads(client: Client, query: ReadsQuery) -> Iterator[Object]:
    """Yield reads, newest first: of the object, and those of all objects, which showed it, too. ApiError."""
    lists = (_list(client, query, path, fields, optional=optional) for path, fields, optional in _lists(query))
    return heapq.merge(*lists, key=lambda read: str(read["time"]), reverse=True)


def _lists(query: ReadsQuery) -> Iterator[tuple[str, dict[str, str], bool]]:
    """Yield the lists to read: path, field selectors, and whether the user may lack the right to it."""
    subject = query.subject
    if subject is None:
        yield _path(query.namespace), {}, False
        if not query.namespace:
            yield f"{API}/clusterreads", {}, False
        return
    of_object = {"object.resource": subject.kind.full_name}
    if subject.name:
        of_object["object.name"] = subject.name
    if not subject.kind.namespaced:
        yield f"{API}/clusterreads", of_object, False
        yield f"{API}/clusterreads", {"object.resource": REVISIONS[1]}, True
        return
    yield _path(subject.namespace), of_object, False
    yield _path(subject.namespace), {"object.resource": REVISIONS[0]}, True
    # A list or watch of all namespaces has shown the object, too.
    for resource in (subject.kind.full_name, REVISIONS[0]):
        yield f"{API}/clusterreads", {"object.resource": resource}, True


def _path(namespace: str) -> str:
    return f"{API}/namespaces/{quote(namespace, safe='')}/reads" if namespace else f"{API}/reads"


def _list(
    client: Client, query: ReadsQuery, path: str, fields: Mapping[str, str], *, optional: bool
) -> Iterator[Object]:
    terms = {**fields, **query.fields}
    selector = ",".join(f"{name}={escape_value(value)}" for name, value in terms.items())
    try:
        yield from client.items(path, {"fieldSelector": selector} if selector else {}, size=PAGE)
    except ApiError as error:
        if error.code == 404:
            raise OperatorError(NOT_SERVED) from None
        if error.code != 403 or not optional:
            raise
        if error.message not in query.skipped:
            query.skipped.append(error.message)


# -- searched times ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordingCoverage:
    """The recorded part of a query.

    ``since``: the first recorded moment; None: nothing was recorded.
    ``gaps``: periods within it without recordings, or with losses.
    """

    since: datetime | None
    gaps: Sequence[Gap]


def coverage(client: Client, subject: Subject | None, *, since: datetime | None, until: datetime) -> RecordingCoverage:
    """Return which part of a period was recorded for the subject. ApiError."""
    recordings = [each for each in client.items(f"{API}/readrecordings") if _covers(each, subject)]
    first, found = gaps(recordings, since=since, until=until)
    return RecordingCoverage(first, found)


def _covers(recording: Mapping[str, Any], subject: Subject | None) -> bool:
    """Tell whether a recording's policy names the subject for every user."""
    if subject is None:
        return True
    matcher = Matcher(policy_of(recording["policy"]))
    kind = subject.kind
    info = RequestInfo(
        path="", verb="get", is_resource=True, group=kind.group, resource=kind.plural,
        namespace=subject.namespace if kind.namespaced else "", name=subject.name,
    )  # fmt: skip
    return matcher.decide("", (), info).level != NONE


def policy_of(shown: Mapping[str, Any]) -> AuditPolicy:
    """Return the policy of a ReadRecording."""
    rules = tuple(
        PolicyRule(
            level=rule.get("level", NONE),
            users=tuple(rule.get("users", ())),
            user_groups=tuple(rule.get("userGroups", ())),
            verbs=tuple(rule.get("verbs", ())),
            namespaces=tuple(rule.get("namespaces", ())),
            resources=tuple(
                GroupResources(
                    group=each.get("group", ""),
                    resources=tuple(each.get("resources", ())),
                    resource_names=tuple(each.get("resourceNames", ())),
                )
                for each in rule.get("resources", ())
            ),
            non_resource_urls=tuple(rule.get("nonResourceURLs", ())),
        )
        for rule in shown.get("rules", ())
    )
    return AuditPolicy(rules=rules)

"""`audit`: list who changed and who read objects, newest first; or since when nobody did."""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.api.audit.matching import Matcher
from kubechronicle.api.audit.policy import NONE, AuditPolicy, GroupResources, PolicyRule
from kubechronicle.api.history.moments import parse_moment
from kubechronicle.api.history.reads import Gap, gaps, read_cell
from kubechronicle.api.history.tags import PREFIX as TAG
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client import kubeconfig, output
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.output import ago, format_time
from kubechronicle.ops.client.revision_reader import (
    API,
    RevisionQuery,
    bounds,
    escape_value,
    read_revisions,
    scopes_in,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import (
    field_changes,
    mask_changes,
    print_revision,
    revision_document,
    user_of,
)
from kubechronicle.ops.client.searches import Search, explain
from kubechronicle.ops.client.session import Session
from kubechronicle.ops.client.subjects import Subject, add_all_namespaces_flag, add_subject_flags
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.terminal import Painted

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


EXAMPLES: Final = """\
  kubectl chronicle audit secret/db                         who changed this Secret, and who read it
  kubectl chronicle audit secret/db --reads --since 30d     who read it in the last thirty days
  kubectl chronicle audit -n shop --user jane --since 2h    what jane changed and read in the namespace
  kubectl chronicle audit -A --verb delete --since 1d       what was deleted in the cluster
  kubectl chronicle audit --resource secrets -A --reads     all recorded reads of Secrets
"""
LIMIT: Final = 100
READ_VERBS: Final = frozenset(("get", "list", "watch"))
FORMS: Final[Mapping[str, str]] = {
    "object": "",
    "metadata": "metadata only",
    "table": "as a table",
    "dry-run": "dry run: nothing was changed",
    "no-op": "no change: the object was as requested already",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_subject_flags(parser, required=False)
    add_all_namespaces_flag(parser)
    parser.add_argument("--resource", metavar="TYPE", default="", help="only objects of this kind: secrets, deploy")
    parser.add_argument("--user", metavar="NAME", default="", help="only requests of this user")
    parser.add_argument("--verb", metavar="VERB", default="", help="only get, list, watch, create, update, patch, …")
    parser.add_argument("--since", metavar="MOMENT", default="", help="only requests after it: 2h, 30d, a time")
    parser.add_argument("--until", metavar="MOMENT", default="", help="only requests up to it")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=LIMIT, help=f"print at most N, 0 for all (default {LIMIT})"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--reads", action="store_true", help="only reads, and writes that changed nothing")
    which.add_argument("--changes", action="store_true", help="only changes")
    parser.add_argument("--show-secrets", action="store_true", help="print values of Secrets instead of stars")
    output.add_flags(parser)
    kubeconfig.add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Return exit code 0, also without requests. OperatorError for an object that never existed."""
    session = Session.open(arguments)
    if arguments.limit < 0:
        raise OperatorError("--limit must not be negative")
    subject = _subject(session)
    search = _AuditSearch(session, subject)
    entries: Iterator[Object] = search.entries()
    if arguments.limit:
        entries = islice(entries, arguments.limit)
    screen = session.screen
    if screen.format != "text":
        shown = (_document(each, arguments) for each in entries)
        screen.items(f"{HISTORY}/v1", "List", shown)
        search.print_remarks()
        return 0
    count = 0
    for count, entry in enumerate(entries, 1):
        if count > 1:
            screen.line()
        _print(session, entry)
        screen.out.flush()
    search.print_remarks()
    search.conclude(count)
    return 0


def _subject(session: Session) -> Subject | None:
    arguments = session.arguments
    words = list(arguments.words)
    if arguments.resource:
        if words:
            raise OperatorError("--resource and TYPE/NAME exclude each other")
        words = [arguments.resource]
    return session.subject(words, session.kinds(), name_required=False) if words else None


class _AuditSearch:
    """The search of one run: changes in the log, and recorded reads."""

    def __init__(self, session: Session, subject: Subject | None) -> None:
        self._session = session
        self._subject = subject
        arguments, client = session.arguments, session.client
        self._namespace = "" if arguments.all_namespaces else session.namespace
        self._since, self._until = _moment(session, arguments.since), _moment(session, arguments.until)
        verb = arguments.verb.lower()
        self.wants_changes = not arguments.reads and verb not in READ_VERBS
        self.wants_reads = not arguments.changes
        fields = {"who.username": arguments.user} if arguments.user else {}
        if verb:
            fields["request.verb"] = verb
        scopes = scopes_of(subject) if subject is not None else scopes_in(self._namespace)
        self._revisions = RevisionQuery(scopes, {**fields, **bounds(client, arguments.since, arguments.until)})
        times = {"time.from": self._since, "time.to": self._until}
        written = {name: f"{time.isoformat()}".replace("+00:00", "Z") for name, time in times.items() if time}
        self._reads = ReadsQuery(subject, self._namespace, {**fields, **written})

    def entries(self) -> Iterator[Object]:
        """Yield changes and reads, newest first. ApiError, OperatorError."""
        client, lists = self._session.client, list[Iterator[Object]]()
        if self.wants_changes:
            lists.append(read_revisions(client, self._revisions))
        if self.wants_reads:
            lists.append(read_reads(client, self._reads))
        return heapq.merge(*lists, key=lambda each: str(each["time"]), reverse=True)

    def print_remarks(self) -> None:
        """Print on stderr which lists were not searched."""
        for why in (*self._revisions.warnings, *self._reads.skipped):
            self._session.screen.note(f"not searched: {why}")

    def conclude(self, count: int) -> None:
        """Print on stderr what was searched, and since when."""
        screen, arguments = self._session.screen, self._session.arguments
        if arguments.limit and count == arguments.limit:
            screen.note(f"these are the newest {count}; --limit 0 prints all")
        if not count:
            by = f" by {arguments.user}" if arguments.user else ""
            searched = ""
            if self.wants_changes or (self._subject is not None and self._subject.name):
                namespace = "" if self._subject is not None else self._namespace
                search = Search(self._revisions, self._subject, namespace, arguments.since)
                searched = f": {explain(self._session, search)}"
            kind = "reads" if not self.wants_changes else "requests"
            screen.note(f"no {kind}{by} were found{self._period()}{searched}")
        if self.wants_reads:
            self._print_coverage()

    def _period(self) -> str:
        since = f" since {format_time(self._since.isoformat())}" if self._since else ""
        return since + (f" until {format_time(self._until.isoformat())}" if self._until else "")

    def _print_coverage(self) -> None:
        screen, now = self._session.screen, self._session.client.now()
        subject = self._subject.description if self._subject is not None else "objects"
        found = coverage(self._session.client, self._subject, since=self._since, until=self._until or now)
        if found.since is None:
            screen.note(
                f"reads of {subject} were not recorded{self._period()}: no answer about reads is possible "
                "(kubechronicle serve --audit-reads-policy-file)"
            )
            return
        screen.note(f"reads of {subject} are recorded since {format_time(found.since.isoformat())}")
        for gap in found.gaps:
            between = f"{format_time(gap.since.isoformat())} and {format_time(gap.until.isoformat())}"
            screen.note(f"but between {between} {gap.why}")


def _moment(session: Session, text: str) -> datetime | None:
    if text in ("", "now"):
        return None
    if text.startswith(TAG):
        return datetime.fromisoformat(session.client.tag(text)["spec"]["time"]).astimezone(UTC)
    try:
        moment = parse_moment(text, now=session.client.now())
    except ValueError as error:
        raise OperatorError(f"{error}, or now") from None
    if isinstance(moment, int):
        raise OperatorError(f"{text}: reads have no revision; give a time or an age such as 2h")
    found = session.client.now() - moment if isinstance(moment, timedelta) else moment
    return found.astimezone(UTC)


def _is_read(entry: Mapping[str, Any]) -> bool:
    return "form" in entry


def _document(entry: Mapping[str, Any], arguments: argparse.Namespace) -> Object:
    if _is_read(entry):
        return dict(entry)
    return revision_document(entry, show_secrets=arguments.show_secrets)


def _print(session: Session, entry: Mapping[str, Any]) -> None:
    screen, now = session.screen, session.client.now()
    if not _is_read(entry):
        changes = field_changes(entry)
        if not session.arguments.show_secrets:
            changes = mask_changes(changes, entry["object"].get("kind", ""))
        print_revision(screen, entry, changes, now)
        return
    reference, who, time = entry["object"], entry.get("who") or {}, entry["time"]
    namespace = reference.get("namespace")
    screen.line(
        Painted(f"read {entry['metadata']['name']}", "revision"),
        f"  {format_time(time)} ({ago(time, now)})  ",
        Painted(f"{entry['verb']} {read_cell(entry)}", "strong"),
        Painted(f" -n {namespace}" if namespace else "", "dim"),
    )
    agent = (who.get("userAgent") or "").partition(" ")[0]
    origin = ", ".join(filter(None, (agent, f"from {who['sourceAddress']}" if who.get("sourceAddress") else "")))
    screen.line("  by ", Painted(user_of(entry), "who"), Painted(f", {origin}" if origin else "", "dim"))
    if remark := _remark(entry):
        screen.line("    ", Painted(remark, "dim"))


def _remark(entry: Mapping[str, Any]) -> str:
    """Return what the answer had, if it was not just the object."""
    reference, parts = entry["object"], []
    if not reference.get("name") and entry["verb"] in READ_VERBS:
        parts.append("all in the namespace" if reference.get("namespace") else "all in the cluster")
    if reference.get("apiGroup") == HISTORY:
        parts.append("of the history of objects")
    elif str((entry.get("request") or {}).get("uri", "")).startswith("/history/at/"):
        parts.append("as in the past")
    return ", ".join([*parts, *filter(None, (FORMS.get(entry["form"], entry["form"]),))])

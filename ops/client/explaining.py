"""Explanations of an object's state: the changes that may have caused it, with their causes; as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from kubechronicle.api.explaining.states import Symptom, commit_of, dependencies, symptoms
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.client import ApiError, Client
from kubechronicle.ops.client.kinds import Kinds
from kubechronicle.ops.client.revision_reader import (
    RevisionQuery,
    number_of,
    read_revisions,
    scopes_of,
)
from kubechronicle.ops.client.revision_texts import Chain, chain_of
from kubechronicle.ops.client.subjects import Subject


def explanation_document(found: Explanation) -> Object:
    """Return an explanation, its suspects with their chains of causes."""
    document: Object = {
        "object": str(found.subject),
        "namespace": found.subject.namespace,
        "symptoms": [{"object": name, "text": each.text, "since": each.since} for name, each in found.symptoms],
        "events": [
            {part: event.get(part) for part in ("reason", "message", "count", "lastTimestamp")}
            for event in found.events
        ],
        "suspects": [
            {"object": str(each.related.subject), "relation": each.related.relation, "before": each.before}
            | _chain_document(each.chain)
            | ({"commit": {"id": each.commit[0], "from": each.commit[1]}} if each.commit[0] else {})
            for each in found.suspects
        ],
        "notSearched": found.unread,
    }
    return document | ({"deletion": _chain_document(found.deletion)} if found.deletion is not None else {})


def _chain_document(chain: Chain) -> Object:
    return {"links": chain.links} | ({"stopped": chain.stopped} if chain.stopped else {})


# -- explainer ---------------------------------------------------------------------------------------------------------
#
# Find the changes that may explain the state of an object: of itself, its owners, and the objects that it depends on.
#
#     Pod web-1 crashes since 18:02
#       used by it: ConfigMap settings    changed 18:01 by jane       the nearest before that
#       its owner: ReplicaSet web-2       created 17:40 because ci changed the image of Deployment web
#
# The objects are those of now, or the last state of a deleted one. Each change comes with its causes (causes.py).
# Changes that only report a status, or heartbeats, explain nothing.


MOST_OBJECTS: Final = 60
"""Objects that are looked at."""
MOST_PODS: Final = 20
"""Pods of a Service or workload whose states are looked at."""
SEARCHED_PODS: Final = 3
"""Pods of these whose changes are searched, those with symptoms first: a controller makes and changes them alike."""
READ_CHANGES: Final = 30
"""Changes of one object that are searched for one that is no report. Its creation is looked up beside them."""
READ_OF_PODS: Final = 10
"""The same of a Pod: hardly anything but its creation and its binding is no report."""
SLACK: Final = timedelta(seconds=2)
"""Times in a status are whole seconds, by the clock of a node."""


class Related(NamedTuple):
    """An object and how it is related to the one in question. ``distance``: 0 for that one."""

    subject: Subject
    relation: str
    state: Object | None
    distance: int


class Suspect(NamedTuple):
    """A change that may be the cause. ``before``: it was made before the first symptom."""

    related: Related
    chain: Chain
    before: bool
    commit: tuple[str, str]

    @property
    def time(self) -> datetime:
        return datetime.fromisoformat(self.chain.links[0]["time"])


@dataclass(slots=True)
class Explanation:
    """``unread``: objects that could not be read, with the reason. ``since``: the time of the first symptom."""

    subject: Subject
    symptoms: list[tuple[str, Symptom]] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    suspects: list[Suspect] = field(default_factory=list)
    related: list[Related] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    since: str = ""
    deletion: Chain | None = None


class Explainer:
    """Explains the state of one object. ``limit``: of suspects."""

    def __init__(self, client: Client, kinds: Kinds, subject: Subject, *, limit: int) -> None:
        self._client, self._kinds, self._limit = client, kinds, limit
        self._found = Explanation(subject)
        self._seen: set[tuple[str, str, str]] = set()

    def explain(self) -> Explanation:
        """Return the explanation. ApiError."""
        found = self._found
        self._add(found.subject, "itself", 0)
        root = next(iter(found.related), None)
        if root is None or root.state is None:
            found.deletion = self._deletion(found.subject)
        self._follow()
        for related in found.related:
            if related.state is not None and (related.distance == 0 or related.relation in MADE):
                found.symptoms += [(str(related.subject), each) for each in symptoms(related.state)]
        if root is not None and root.state is not None and root.state.get("kind") == "Service":
            found.symptoms.insert(0, (str(root.subject), self._endpoints(root.state)))
        times = sorted(each.since for _, each in found.symptoms if each.since)
        found.since = times[0] if times else ""
        found.events = self._events()
        found.suspects = self._suspects()
        return found

    # -- the objects --------------------------------------------------------------------------------------------------

    def _add(self, subject: Subject, relation: str, distance: int, state: Object | None = None) -> None:
        """Add an object. ``state``: if it is known."""
        key = (subject.kind.full_name, subject.namespace, subject.name)
        if key in self._seen or len(self._seen) >= MOST_OBJECTS:
            return
        self._seen.add(key)
        try:
            state = self._client.get_if(subject.path()) if state is None else state
        except ApiError as error:
            if error.code != 403:
                raise
            self._found.unread[str(subject)] = error.message
        self._found.related.append(Related(subject, relation, state, distance))

    def _follow(self) -> None:
        """Add the objects on which those found depend, owners first; nearest objects first."""
        for related in self._found.related:  # the list grows
            if related.state is None or related.distance >= 4:
                continue
            distance, namespace = related.distance + 1, related.subject.namespace
            for subject in self._owners(related):
                self._add(subject, f"owner of {related.subject}", distance)
            for each in dependencies(related.state):
                group = each.resource.partition(".")
                kind = self._kinds.of_resource(group[2], group[0])
                if kind is not None and not _is_usual(each.resource, each.name):
                    place = namespace if each.namespaced else ""
                    self._add(Subject(kind, place, each.name), _relation(each.relation, related), distance)
            for subject, state in self._pods(related):
                self._add(subject, POD if subject.kind.plural == "pods" else WORKLOAD, distance, state)

    def _owners(self, related: Related) -> Iterator[Subject]:
        assert related.state is not None
        for reference in related.state["metadata"].get("ownerReferences") or ():
            kind = self._kinds.of_object(str(reference.get("apiVersion", "")), str(reference.get("kind", "")))
            if kind is not None:
                place = related.subject.namespace if kind.namespaced else ""
                yield Subject(kind, place, str(reference.get("name", "")))

    def _pods(self, related: Related) -> Iterator[tuple[Subject, Object]]:
        """Yield the Pods of a Service or workload, those with symptoms first, and the workloads of a Service.

        Each comes with its state.
        """
        assert related.state is not None
        if related.distance > 0:
            return
        spec = related.state.get("spec")
        selector = spec.get("selector") if isinstance(spec, Mapping) else None
        labels = selector.get("matchLabels", selector) if isinstance(selector, Mapping) else None
        pods = self._kinds.of_resource("", "pods")
        if not isinstance(labels, Mapping) or not labels or pods is None:
            return
        text = ",".join(f"{name}={value}" for name, value in labels.items() if isinstance(value, str))
        found = self._client.get(pods.path(related.subject.namespace), {"labelSelector": text, "limit": "500"})["items"]
        found = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in found]
        found.sort(key=lambda pod: not symptoms(pod))
        for pod in found[:MOST_PODS]:
            yield Subject(pods, related.subject.namespace, pod["metadata"]["name"]), pod
        if related.state.get("kind") == "Service":
            yield from self._workloads(related.subject.namespace, labels)

    def _workloads(self, namespace: str, labels: Mapping[str, str]) -> Iterator[tuple[Subject, Object]]:
        """Yield the workloads that make Pods with these labels, each with its state."""
        for plural in ("deployments", "statefulsets", "daemonsets"):
            kind = self._kinds.of_resource("apps", plural)
            if kind is None:
                continue
            for found in self._client.get(kind.path(namespace), {"limit": "500"})["items"]:
                template = ((found.get("spec") or {}).get("template") or {}).get("metadata") or {}
                have = template.get("labels") or {}
                if any(have.get(name) == value for name, value in labels.items()):
                    state = {"apiVersion": kind.api_version, "kind": kind.kind, **found}
                    yield Subject(kind, namespace, found["metadata"]["name"]), state

    def _endpoints(self, service: Object) -> Symptom:
        """Return how many endpoints of a Service are ready."""
        slices = self._kinds.of_resource("discovery.k8s.io", "endpointslices")
        ready = 0
        if slices is not None:
            namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
            wanted = {"labelSelector": f"kubernetes.io/service-name={name}"}
            for each in self._client.get(slices.path(namespace), wanted)["items"]:
                ready += sum((one.get("conditions") or {}).get("ready") is not False for one in each["endpoints"] or ())
        pods = sum(each.relation == POD for each in self._found.related)
        selector = ", ".join(f"{name}={value}" for name, value in (service["spec"].get("selector") or {}).items())
        return Symptom(f"{ready} ready endpoints; {pods} Pods have the labels {selector or '(no selector)'}")

    # -- the changes --------------------------------------------------------------------------------------------------

    def _deletion(self, subject: Subject) -> Chain | None:
        query = RevisionQuery(scopes_of(subject), {"operation": "Delete"}, content="", limit=1)
        found = next(read_revisions(self._client, query), None)
        return chain_of(self._client, found) if found is not None else None

    def _events(self) -> list[Object]:
        """Return the warnings about the object and its Pods, the newest last."""
        kind, found = self._kinds.of_resource("", "events"), list[Object]()
        namespaces = {each.subject.namespace or "default" for each in self._found.related if each.distance == 0}
        uids = {
            each.state["metadata"].get("uid")
            for each in self._found.related
            if each.state is not None and (each.distance == 0 or each.relation in MADE)
        }
        for namespace in namespaces if kind is not None else ():
            assert kind is not None
            try:
                events = self._client.get(kind.path(namespace), {"fieldSelector": "type=Warning", "limit": "500"})[
                    "items"
                ]
            except ApiError as error:
                if error.code != 403:
                    raise
                self._found.unread["events"] = error.message
                continue
            found += [each for each in events if (each.get("involvedObject") or {}).get("uid") in uids]
        return sorted(found, key=lambda each: str(each.get("lastTimestamp") or each.get("eventTime") or ""))

    def _suspects(self) -> list[Suspect]:
        """Return the changes that may explain the symptoms: the nearest before the first symptom first."""
        since = datetime.fromisoformat(self._found.since) + SLACK if self._found.since else None
        changes = [(related, change) for related in self._searched() for change in self._changes(related, since)]

        def rank(each: tuple[Related, Object]) -> tuple[bool, float, int]:
            time = datetime.fromisoformat(each[1]["time"])
            after = since is not None and time > since
            return after, -time.timestamp(), each[0].distance

        suspects = list[Suspect]()
        shown = {number_of(link) for link in (self._found.deletion.links if self._found.deletion else ())}
        for related, change in sorted(changes, key=rank):
            if len(suspects) == self._limit:
                break
            if number_of(change) in shown:
                continue
            chain = chain_of(self._client, change)
            shown |= {number_of(link) for link in chain.links}
            after = since is not None and datetime.fromisoformat(change["time"]) > since
            suspects.append(Suspect(related, chain, not after, self._commit(chain)))
        return suspects

    def _searched(self) -> list[Related]:
        """Return the objects whose changes are searched: all but most of the Pods."""
        pods = [each for each in self._found.related if each.relation == POD]
        left = {id(each) for each in pods[SEARCHED_PODS:]}
        if left:
            self._found.unread[f"changes of {len(left)} more Pods"] = f"those of the first {SEARCHED_PODS} are searched"
        return [each for each in self._found.related if id(each) not in left]

    def _changes(self, related: Related, since: datetime | None) -> Iterator[Object]:
        """Yield the last change of an object that is no report, and the last one before the first symptom."""
        last: Object | None = None
        try:
            for change in self._read_changes(related):
                if not _explains(change):
                    continue
                if last is None:
                    last = change
                    yield change
                if since is None or datetime.fromisoformat(change["time"]) <= since:
                    if change is not last:
                        yield change
                    return
        except ApiError as error:
            if error.code != 403:
                raise
            self._found.unread[f"changes of {related.subject}"] = error.message

    def _read_changes(self, related: Related) -> Iterator[Object]:
        """Yield the newest changes of an object and, if there are more of them, its creation."""
        scopes, read = scopes_of(related.subject), list[Object]()
        most = READ_OF_PODS if related.subject.kind.plural == "pods" else READ_CHANGES
        query = RevisionQuery(scopes, {"noise": "hidden"}, content="", limit=most)
        for change in read_revisions(self._client, query):
            read.append(change)
            yield change
        if len(read) < most or any(each["operation"] == "Create" for each in read):
            return
        oldest = number_of(read[-1])
        name = f"changes of {related.subject} before revision {oldest}"
        self._found.unread[name] = f"the newest {most} report its status, so its creation comes next"
        created = {"operation": "Create", "revision.to": str(oldest)}
        yield from read_revisions(self._client, RevisionQuery(scopes, created, content="", limit=1))

    def _commit(self, chain: Chain) -> tuple[str, str]:
        """Return the commit of the first cause, as its object tells."""
        origin = chain.links[-1]
        namespace = origin["object"].get("namespace", "")
        place = f"namespaces/{namespace}/revisions" if namespace else "clusterrevisions"
        whole = self._client.get_if(f"/apis/history.kubechronicle.dev/v1/{place}/{origin['metadata']['name']}") or {}
        return commit_of(whole.get("after") or whole.get("before"))


POD: Final = "one of its Pods"
WORKLOAD: Final = "makes its Pods"
MADE: Final = (POD, WORKLOAD)


def _relation(text: str, related: Related) -> str:
    return text if related.distance == 0 else f"{text} ({related.subject})"


def _is_usual(resource: str, name: str) -> bool:
    """Return True for objects that every Pod has and that nobody changes."""
    return (resource, name) in (("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default"))


def _explains(change: Object) -> bool:
    changed = change.get("changed") or ()
    if change["operation"] != "Update" or change.get("redacted"):
        return True
    return not all(name == "status" or name.startswith("status.") for name in changed)

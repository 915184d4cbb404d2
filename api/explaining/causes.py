"""Causes: the change that another change is a consequence of. The one owner of this question for every command.

    kind       the cause                                               known by
    mark       the mark for deletion, of a change that ends a deletion  the object's own changes
    recorded   the revision in the row of the log                       the writer: a loop of this server, a restore
    inferred   the last change of what a controller reacts to           owner, object, namespace or node

Programs outside of this server, such as kube-controller-manager, record no cause. For their changes it is inferred when
somebody asks, and marked so: it may be wrong, if several changes came close to each other.

``cause_of`` asks for the changes that it needs, and is given them, so that one rule serves a pass over many changes
(``causes_of``) and a search in the log (actors/history/causes.py):

    asks   Asked("object", …)                    the last change of the object before this one
    gets   Seen(revision=41, …), or None
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kubechronicle.api.history.cells import DELETIONS, action_of, is_heartbeat
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import Steps

if TYPE_CHECKING:  # it takes long to load, and commands need the words of causes alone
    from kubechronicle.api.history.revisions import RevisionChange

CONTROLLERS: Final = ("system:kube-", "system:node:", "system:apiserver", "system:serviceaccount:kube-system:")
"""Prefixes of the users that react to changes of others. A CI system's account is no controller."""
EVICTING: Final = ("node-controller", "taint-eviction-controller", "pod-garbage-collector")
"""Ends of the users that delete Pods because of their nodes."""
SCALING: Final = ":horizontal-pod-autoscaler"
"""End of the user that scales objects as a HorizontalPodAutoscaler says."""
AUTOSCALERS: Final = "horizontalpodautoscalers.autoscaling"
DELETING: Final = frozenset((*DELETIONS, "evict"))
NAMESPACES: Final = "namespaces"

Kind = Literal["mark", "recorded", "inferred"]


class Owner(NamedTuple):
    """An owner, as a reference of an object names it."""

    uid: str
    api_version: str
    kind: str
    name: str


class Fact(NamedTuple):
    """One change, as causes need it.

    ``document``: its revision, masked and redacted for the reader.
    ``owners``: of an object that the reader may read.
    ``previous``: the revision of the object's change before, 0 for its first one.
    ``recorded``: the cause in the row of the log, 0 for none.
    ``node``: of a Pod.
    ``target``: of an autoscaler, kind and name of the object that it scales: ``deployment/web``.
    """

    revision: int
    resource: str
    namespace: str
    name: str
    uid: str
    user: str
    document: Object
    owners: tuple[Owner, ...] = ()
    previous: int = 0
    recorded: int = 0
    node: str = ""
    target: str = ""

    @property
    def scaled(self) -> str:
        """The kind and name of the object, as an autoscaler names its target."""
        kind = str((self.document.get("object") or {}).get("kind") or self.resource.partition(".")[0].removesuffix("s"))
        return f"{kind.lower()}/{self.name}"

    @property
    def is_controller(self) -> bool:
        return self.user.startswith(CONTROLLERS)

    @property
    def is_deletion(self) -> bool:
        return self.document["operation"] == "Delete" or action_of(self.document) in DELETING

    @property
    def ends_deletion(self) -> bool:
        """True for the end of an object that was marked for deletion before."""
        return self.document["operation"] == "Delete" and bool(self.document.get("deletionTimestamp"))

    @property
    def changed(self) -> Sequence[str]:
        return self.document.get("changed") or ()

    @property
    def is_noise(self) -> bool:
        """True for an update by a controller that changed nothing but heartbeats."""
        readable = not (self.document.get("redacted") or self.document.get("erased"))
        return readable and self.document["operation"] == "Update" and is_heartbeat(self.changed)

    @property
    def is_report(self) -> bool:
        """True for a change of nothing but the status: controllers of dependents do not react to it."""
        return (
            self.document["operation"] == "Update"
            and bool(self.changed)
            and all(field == "status" or field.startswith("status.") for field in self.changed)
        )


def fact_of(change: RevisionChange, document: Object, *, readable: bool) -> Fact:
    """Return the fact of a change. ``document``: its revision (revisions.py)."""
    state = (change.after or change.last or change.before or {}) if readable else {}
    references = state.get("metadata", {}).get("ownerReferences") or ()
    return Fact(
        change.revision,
        change.resource,
        change.namespace,
        change.name,
        change.uid,
        str(change.who.get("username") or ""),
        document,
        tuple(
            Owner(*(str(each.get(part, "")) for part in ("uid", "apiVersion", "kind", "name"))) for each in references
        ),
        change.previous_revision,
        change.cause,
        str((state.get("spec") or {}).get("nodeName") or "") if change.resource == "pods" else "",
        target_of(state) if change.resource == AUTOSCALERS else "",
    )


def target_of(autoscaler: Object) -> str:
    """Return the kind and name of the object that an autoscaler scales: ``deployment/web``."""
    reference = (autoscaler.get("spec") or {}).get("scaleTargetRef") or {}
    return f"{str(reference.get('kind', '')).lower()}/{reference.get('name', '')}"


class ChangeCause(NamedTuple):
    """``of``: the kind of the object whose change is the cause: "object" (the same one), "owner", "namespace", "node",
    "autoscaler"; "" for a recorded one."""

    revision: int
    kind: Kind
    of: str = ""


class Asked(NamedTuple):
    """A question about the changes before ``fact``: the last one of ``about`` that controllers react to.

    ``about``: the object, one of its owners, its namespace (its deletion), its node, its autoscaler (a person's change
    of that), or "mark": the change that marked the object for deletion.
    """

    about: Literal["object", "owner", "namespace", "node", "autoscaler", "mark"]
    fact: Fact
    owner: Owner | None = None


class Seen(NamedTuple):
    """The answer: a change."""

    revision: int
    is_deletion: bool
    is_controller: bool


Asking = Generator[Asked, Seen | None, ChangeCause | None]


def cause_of(fact: Fact) -> Asking:
    """Return the cause of a change; None: it has none."""
    if fact.ends_deletion and (mark := (yield Asked("mark", fact))):
        return ChangeCause(mark.revision, "mark", "object")
    if fact.recorded:
        return ChangeCause(fact.recorded, "recorded")
    if not fact.is_controller:
        return None
    own = yield Asked("object", fact)
    if fact.user.endswith(SCALING) and (seen := (yield Asked("autoscaler", fact))) is not None:
        later = own is not None and not own.is_controller and own.revision > seen.revision
        if own is not None and later:
            return ChangeCause(own.revision, "inferred", "object")
        return ChangeCause(seen.revision, "inferred", "autoscaler")
    if fact.is_deletion and own is not None and own.is_deletion:
        return ChangeCause(own.revision, "inferred", "object")
    above = []
    for owner in fact.owners:
        if (seen := (yield Asked("owner", fact, owner))) is not None:
            above.append(seen)
    if fact.is_deletion:
        deletions = [(seen.revision, "owner") for seen in above if seen.is_deletion]
        if fact.namespace and (seen := (yield Asked("namespace", fact))) is not None:
            deletions.append((seen.revision, "namespace"))
        if deletions:
            revision, of = max(deletions)
            return ChangeCause(revision, "inferred", of)
        if fact.node and fact.user.endswith(EVICTING) and (seen := (yield Asked("node", fact))) is not None:
            return ChangeCause(seen.revision, "inferred", "node")
    if above and (own is None or own.is_controller or fact.is_deletion):
        return ChangeCause(max(seen.revision for seen in above), "inferred", "owner")
    return ChangeCause(own.revision, "inferred", "object") if own is not None else None


def causes_of(facts: Iterable[Fact]) -> Steps[dict[int, ChangeCause]]:
    """Return the causes of changes, by revision. ``facts``: in the order of revisions. Each has a step."""
    known, found = _Known(), dict[int, ChangeCause]()
    for fact in facts:
        if (cause := answered(cause_of(fact), known.answer)) is not None:
            found[fact.revision] = cause
        known.add(fact)
        yield
    return found


def answered(asking: Asking, answer: Callable[[Asked], Seen | None]) -> ChangeCause | None:
    """Answer the questions of ``cause_of``, and return what it returns."""
    try:
        asked = next(asking)
        while True:
            asked = asking.send(answer(asked))
    except StopIteration as stop:
        result: ChangeCause | None = stop.value
        return result


class _Known:
    """The changes that a pass has seen so far."""

    def __init__(self) -> None:
        self._latest: dict[str, Seen] = {}  # by uid: the last change that controllers react to
        self._marks: dict[str, Seen] = {}  # by uid: the first request to delete it
        self._namespaces: dict[str, Seen] = {}  # by name: its deletion
        self._nodes: dict[str, Seen] = {}
        self._autoscalers: dict[str, Seen] = {}  # by namespace and target

    def add(self, fact: Fact) -> None:
        seen = Seen(fact.revision, fact.is_deletion, fact.is_controller)
        if fact.resource == NAMESPACES and fact.is_deletion:
            self._namespaces.setdefault(fact.name, seen)
        elif fact.resource == NAMESPACES and fact.document["operation"] == "Create":
            self._namespaces.pop(fact.name, None)  # the name is used again
        if fact.is_deletion and fact.document["operation"] == "Update":
            self._marks.setdefault(fact.uid, seen)
        if fact.target and not fact.is_controller:
            self._autoscalers[f"{fact.namespace}/{fact.target}"] = seen
        if not fact.is_report or fact.uid not in self._latest:
            self._latest[fact.uid] = seen
            if fact.resource == "nodes":
                self._nodes[fact.name] = seen

    def answer(self, asked: Asked) -> Seen | None:
        fact = asked.fact
        if asked.about == "autoscaler":
            return self._autoscalers.get(f"{fact.namespace}/{fact.scaled}")
        by: Mapping[str, tuple[Mapping[str, Seen], str]] = {
            "object": (self._latest, fact.uid),
            "owner": (self._latest, asked.owner.uid if asked.owner is not None else ""),
            "namespace": (self._namespaces, fact.namespace),
            "node": (self._nodes, fact.node),
            "mark": (self._marks, fact.uid),
        }
        known, key = by[asked.about]
        return known.get(key)


def because(cause: ChangeCause | None) -> dict[str, Any]:
    """Return the members of a revision's document about its cause."""
    if cause is None:
        return {}
    return {"because": str(cause.revision), "known": cause.kind}


_REACTIONS: Final[Mapping[str, str]] = {
    "object": "it reacts to this change of the object",
    "owner": "it reacts to this change of an owner",
    "namespace": "the namespace was deleted",
    "node": "it reacts to this change of the Pod's node",
    "autoscaler": "it scales as this autoscaler says",
}


def explained(cause: ChangeCause) -> str:
    """Return the sentence that tells how a cause is known."""
    if cause.kind == "mark":
        return "the object was marked for deletion"
    return "recorded" if cause.kind == "recorded" else f"inferred: {_REACTIONS[cause.of]}"

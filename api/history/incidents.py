"""Incidents: the changes before a moment, the unusual ones first, and each consequence below its cause.

jane scales a Deployment                    20  a person; 3 consequences
  deployment-controller scales the ReplicaSet
    replicaset-controller deletes a Pod
bob deletes a ConfigMap                    110  a person, deletion, bob's first change

A cause is an earlier change of the same object, of one of its owners, or of its namespace, if a controller wrote the
later one. The cause of a deletion is a deletion, if there was one. Pure: the changes, and the users that were seen
before, are plain arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kubechronicle.api.history.cells import action_of
from kubechronicle.api.history.noise import is_heartbeat
from kubechronicle.api.history.revisions import Change
from kubechronicle.api.values.objects import Object

CONTROLLERS: Final = ("system:kube-", "system:node:", "system:apiserver", "system:serviceaccount:kube-system:")
"""Prefixes of the users that react to changes of others. A CI system's account is no controller."""

MOST_CONSEQUENCES: Final = 20
"""Consequences that raise a score."""


class Fact(NamedTuple):
    """One change of an incident.

    ``document``: its revision, masked and redacted for the reader.
    ``owners``: the uids of the object's owners, of objects that the reader may read.
    ``previous``: the revision of the object's change before, 0 for its first one.
    """

    revision: int
    resource: str
    namespace: str
    name: str
    uid: str
    user: str
    document: Object
    owners: tuple[str, ...]
    previous: int

    @property
    def is_controller(self) -> bool:
        return self.user.startswith(CONTROLLERS)

    @property
    def is_deletion(self) -> bool:
        return self.document["operation"] == "Delete" or action_of(self.document) in DELETING

    @property
    def changed(self) -> Sequence[str]:
        return self.document.get("changed") or ()

    @property
    def is_noise(self) -> bool:
        """True for an update by a controller that changed nothing but heartbeats."""
        readable = not (self.document.get("redacted") or self.document.get("erased"))
        return readable and self.document["operation"] == "Update" and is_heartbeat(self.changed)


DELETING: Final = frozenset(("delete", "deletecollection", "evict"))


def fact_of(change: Change, document: Object, *, readable: bool) -> Fact:
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
        tuple(str(each.get("uid", "")) for each in references),
        change.previous_revision,
    )


@dataclass(frozen=True, slots=True)
class Before:
    """The changes before the incident, for comparison.

    ``since``: the first revision that was compared.
    ``users``: those that made changes. ``kinds``: (user, resource) of these changes.
    """

    since: int
    users: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] = frozenset()


# -- scores -----------------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A reason to look at a change. ``applies``: (fact, the changes before, how often each field changed)."""

    reason: str
    score: int
    applies: Callable[[Fact, Before, Mapping[tuple[str, str], int]], bool]


def _of(*resources: str) -> Callable[[Fact, Before, Mapping[tuple[str, str], int]], bool]:
    return lambda fact, before, fields: fact.resource in resources


def _field(*ends: str) -> Callable[[Fact, Before, Mapping[tuple[str, str], int]], bool]:
    return lambda fact, before, fields: any(field.endswith(ends) for field in fact.changed)


RULES: Final = (
    Rule("a person or a program of yours", 20, lambda fact, before, fields: not fact.is_controller),
    Rule("deletion", 50, lambda fact, before, fields: fact.is_deletion and not fact.is_controller),
    Rule(
        "first change by this user",
        40,
        lambda fact, before, fields: not fact.is_controller and fact.user not in before.users,
    ),
    Rule(
        "first change of this kind by this user",
        25,
        lambda fact, before, fields: (
            not fact.is_controller and fact.user in before.users and (fact.user, fact.resource) not in before.kinds
        ),
    ),
    Rule(
        "rights",
        40,
        _of(
            "roles.rbac.authorization.k8s.io",
            "rolebindings.rbac.authorization.k8s.io",
            "clusterroles.rbac.authorization.k8s.io",
            "clusterrolebindings.rbac.authorization.k8s.io",
        ),
    ),
    Rule(
        "admission",
        40,
        _of(
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        ),
    ),
    Rule("quota or limits", 40, _of("limitranges")),
    Rule("quota", 40, lambda fact, before, fields: fact.resource == "resourcequotas" and not fact.is_controller),
    Rule("network policy", 30, _of("networkpolicies.networking.k8s.io", "ingresses.networking.k8s.io")),
    Rule("definition of a kind", 30, _of("customresourcedefinitions.apiextensions.k8s.io")),
    Rule("image", 40, _field(".image")),
    Rule("replicas", 15, lambda fact, before, fields: "spec.replicas" in fact.changed and not fact.is_controller),
    Rule("scheduling on a node", 30, _field("spec.unschedulable", "spec.taints")),
    Rule(
        "rare field",
        15,
        lambda fact, before, fields: any(fields[fact.resource, field] == 1 for field in fact.changed),
    ),
    Rule(
        "unchanged for long",
        10,
        lambda fact, before, fields: 0 < fact.previous < before.since and not fact.is_controller,
    ),
)


def ranked(facts: Sequence[Fact], before: Before, causes: Mapping[int, int]) -> list[tuple[int, list[str], Fact]]:
    """Return the changes with score and reasons, those with the highest score first, then the newest."""
    fields = Counter((fact.resource, field) for fact in facts for field in fact.changed)
    consequences = Counter(causes.values())
    found = []
    for fact in facts:
        applying = [rule for rule in RULES if rule.applies(fact, before, fields)]
        score = sum(rule.score for rule in applying) + min(consequences[fact.revision], MOST_CONSEQUENCES)
        found.append((score, [rule.reason for rule in applying if rule is not RULES[0]], fact))
    return sorted(found, key=lambda each: (-each[0], -each[2].revision))


# -- causes -----------------------------------------------------------------------------------------------------------


def causes_of(facts: Iterable[Fact]) -> dict[int, int]:
    """Return the revision of the cause of each change that has one. ``facts``: in the order of revisions."""
    latest: dict[str, Fact] = {}  # by uid: the last change that controllers react to
    namespaces: dict[str, int] = {}  # by name: the deletion of the namespace
    found: dict[int, int] = {}
    for fact in facts:
        if fact.is_controller and (cause := _cause(fact, latest, namespaces)):
            found[fact.revision] = cause
        if fact.resource == "namespaces" and fact.is_deletion:
            namespaces.setdefault(fact.name, fact.revision)
        elif fact.resource == "namespaces" and fact.document["operation"] == "Create":
            namespaces.pop(fact.name, None)  # the name is used again
        if not _is_report(fact) or fact.uid not in latest:
            latest[fact.uid] = fact
    return found


def _cause(fact: Fact, latest: Mapping[str, Fact], namespaces: Mapping[str, int]) -> int:
    """Return the nearest cause: the last change of the object, of an owner, or the deletion of the namespace."""
    own, above = latest.get(fact.uid), [latest[uid] for uid in fact.owners if uid in latest]
    if fact.is_deletion:
        if own is not None and own.is_deletion:
            return own.revision
        deletions = [owner.revision for owner in above if owner.is_deletion]
        if nearest := max([*deletions, namespaces.get(fact.namespace, 0)]):
            return nearest
    owners = [owner.revision for owner in above]
    if owners and (own is None or own.is_controller or fact.is_deletion):
        return max(owners)
    return own.revision if own is not None else 0


def _is_report(fact: Fact) -> bool:
    """True for a change of nothing but the status: controllers of dependents do not react to it."""
    changed = fact.changed
    return (
        fact.document["operation"] == "Update"
        and bool(changed)
        and all(field == "status" or field.startswith("status.") for field in changed)
    )


def incident_document(facts: Sequence[Fact], before: Before) -> dict[str, Any]:
    """Return the changes of an incident, without noise, as the API shows them. ``facts``: in the order of revisions."""
    shown = [fact for fact in facts if not fact.is_noise]
    causes = causes_of(shown)
    return {
        "changes": [
            {**fact.document, "score": score, "reasons": reasons}
            | ({"because": str(causes[fact.revision])} if fact.revision in causes else {})
            for score, reasons, fact in ranked(shown, before, causes)
        ],
        "heartbeats": len(facts) - len(shown),
    }

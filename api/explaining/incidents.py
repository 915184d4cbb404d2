"""Incidents: the changes before a moment, the unusual ones first, and each consequence below its cause.

jane scales a Deployment                    20  a person; 3 consequences
  deployment-controller scales the ReplicaSet
    replicaset-controller deletes a Pod
bob deletes a ConfigMap                    110  a person, deletion, bob's first change

causes.py has the rules of causes. Pure: the changes, and the users that were seen before, are plain arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kubechronicle.api.explaining.causes import ChangeCause, Fact, because, causes_of
from kubechronicle.api.history.revisions import RevisionChange
from kubechronicle.api.values.steps import Steps

BINDINGS: Final = ("rolebindings.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io")
FIRST: Final = "first change by this user"
FIRST_OF_KIND: Final = "first change of this kind by this user"
NEW: Final = {FIRST: "new user", FIRST_OF_KIND: "new kind for this user"}
"""The words for the further changes of such a user."""
MOST_CONSEQUENCES: Final = 20
"""Consequences that raise a score."""


@dataclass(frozen=True, slots=True)
class Before:
    """The changes before the incident, for comparison.

    ``since``: the first revision that was compared.
    ``namespace``: the one that was compared, "" for all.
    ``users``: those that made changes. ``kinds``: (user, resource) of these changes.
    """

    since: int
    users: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] = frozenset()
    namespace: str = ""


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
        FIRST,
        40,
        lambda fact, before, fields: not fact.is_controller and fact.user not in before.users,
    ),
    Rule(
        FIRST_OF_KIND,
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


def ranked(
    facts: Sequence[Fact], before: Before, causes: Mapping[int, ChangeCause]
) -> Steps[list[tuple[int, list[str], Fact]]]:
    """Return the changes with score and reasons, those with the highest score first, then the newest."""
    fields = Counter[tuple[str, str]]()
    for fact in facts:
        fields.update((fact.resource, field) for field in fact.changed)
        yield
    consequences = Counter(cause.revision for cause in causes.values())
    found, seen = [], set[tuple[str, ...]]()
    for fact in sorted(facts, key=lambda fact: fact.revision):
        applying = [rule for rule in RULES if rule.applies(fact, before, fields)]
        score = sum(rule.score for rule in applying) + min(consequences[fact.revision], MOST_CONSEQUENCES)
        reasons = [_reason(rule, fact, before, seen) for rule in applying if rule is not RULES[0]]
        seen |= {(fact.user,), (fact.user, fact.resource)}
        found.append((score, reasons, fact))
        yield
    return sorted(found, key=lambda each: (-each[0], -each[2].revision))


def _reason(rule: Rule, fact: Fact, before: Before, seen: set[tuple[str, ...]]) -> str:
    """Return the reason of a rule. Elsewhere the user may have made changes before.

    ``seen``: the users, and the users with resources, of the earlier changes of the incident.
    """
    if rule.reason not in NEW:
        return rule.reason
    user = (fact.user,) if rule.reason == FIRST else (fact.user, fact.resource)
    here = " in this namespace" if before.namespace else ""
    return f"{NEW[rule.reason] if user in seen else rule.reason}{here}"


def grant_of(change: RevisionChange) -> str:
    """Return the role and the subjects of a new or changed binding; "" for other changes."""
    state = change.after if change.resource in BINDINGS else None
    if state is None:
        return ""
    role = state.get("roleRef") or {}
    subjects = [f"{each.get('kind')} {each.get('name')}" for each in state.get("subjects") or ()]
    return f"{role.get('kind')} {role.get('name')} to {', '.join(subjects) or 'nobody'}"


def incident_document(facts: Sequence[Fact], before: Before) -> Steps[dict[str, Any]]:
    """Return the changes of an incident, without noise, as the API shows them. ``facts``: in the order of revisions.

    Each step is about one change, as 2,000 of them take some 40 ms.
    """
    shown = []
    for fact in facts:
        if not fact.is_noise:
            shown.append(fact)
        yield
    causes = yield from causes_of(shown)
    changes = []
    for score, reasons, fact in (yield from ranked(shown, before, causes)):
        changes.append({**fact.document, "score": score, "reasons": reasons} | because(causes.get(fact.revision)))
        yield
    return {"changes": changes, "heartbeats": len(facts) - len(shown)}

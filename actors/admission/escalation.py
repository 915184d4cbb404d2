"""Privilege escalation checks: RBAC objects grant only rights that their writer has.

    a role       requires all of its rules, or the verb "escalate" on roles
    a binding    requires all rules of its role, or the verb "bind" on that role
    aggregation  of cluster roles requires all rights, because the aggregated rules are not known yet

All authorizers are consulted for the verbs, but only RBAC for the writer's rules, since only RBAC can list them.
system:masters needs no check. As in kube-apiserver, the check runs after mutating admission and before the kind's
rules, for creations and for changes of the rules or the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kubechronicle.actors.admission.chain import CREATE, AdmissionState, Attributes
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.access.rule_index import Rule
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who

GROUP: Final = "rbac.authorization.k8s.io"
GROUP_MASTERS: Final = "system:masters"
ROLES: Final = frozenset({f"roles.{GROUP}", f"clusterroles.{GROUP}"})
BINDINGS: Final = frozenset({f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"})
EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


class GrantedRights(Protocol):
    """The rules of users."""

    def not_covered(self, who: Who, namespace: str, wanted: Sequence[Rule]) -> Sequence[str]:
        """Return the rules that a user is not bound to in a namespace ("": cluster-wide), as rejections show them.
        NeedsExternalAnswer: many are compared in several steps."""
        ...

    def unresolved(self, who: Who, namespace: str) -> Sequence[str]:
        """Return the errors of resolving the user's rules."""
        ...


class EscalationCheck:
    """A StorageHook that checks roles and bindings."""

    resources = ROLES | BINDINGS

    def __init__(self, rights: GrantedRights) -> None:
        self._rights = rights

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Reject with 403 rules the writer does not have, with 404 a binding to a missing role."""
        obj = attributes.object
        if obj is None or GROUP_MASTERS in attributes.who.groups:
            return
        old = attributes.before if attributes.old is not None else None
        if old is not None and _is_collector_change(obj, old):
            return
        if attributes.rt.resource in ROLES:
            self._role(attributes, obj, old, state)
        else:
            self._binding(attributes, obj, state)

    def _role(self, attributes: Attributes, obj: Object, old: Object | None, state: AdmissionState) -> None:
        name = "" if attributes.operation == CREATE else attributes.name
        if state.permits(attributes.who, "escalate", GROUP, attributes.rt.plural, name, attributes.namespace):
            return
        aggregates = obj.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and self._missing(attributes, EVERYTHING):
            raise self._forbidden(attributes, "must have cluster-admin privileges to use the aggregationRule")
        self._confirm(attributes, obj.get("rules") or ())

    def _binding(self, attributes: Attributes, obj: Object, state: AdmissionState) -> None:
        reference = obj.get("roleRef") or {}
        name, is_role = reference.get("name", ""), reference.get("kind") == "Role"
        plural = "roles" if is_role else "clusterroles"
        if state.permits(attributes.who, "bind", GROUP, plural, name, attributes.namespace):
            return
        role = state.peek(f"{plural}.{GROUP}", attributes.namespace if is_role else "", name)
        if role is None:
            raise status.not_found(attributes.rt, name)
        self._confirm(attributes, role.object().get("rules") or ())

    def _missing(self, attributes: Attributes, wanted: Sequence[Rule]) -> Sequence[str]:
        return self._rights.not_covered(attributes.who, attributes.namespace, wanted)

    def _confirm(self, attributes: Attributes, wanted: Sequence[Rule]) -> None:
        missing = self._missing(attributes, wanted)
        if not missing:
            return
        unresolved = self._rights.unresolved(attributes.who, attributes.namespace)
        who = attributes.who
        groups = "[" + " ".join(map(go_quote, who.groups)) + "]"
        requester = f"user {go_quote(who.user)} (groups={groups})"
        heading = f"{requester} is attempting to grant RBAC permissions not currently held:"
        text = "\n".join([heading, *missing])
        if unresolved:
            text += f"; resolution errors: [{', '.join(unresolved)}]"
        raise self._forbidden(attributes, text)

    def _forbidden(self, attributes: Attributes, why: str) -> status.StatusError:
        name = attributes.name
        if attributes.operation == CREATE and attributes.object is not None:
            name = attributes.object["metadata"].get("name", "")
        return status.forbidden(attributes.rt, name, why)


_COLLECTOR_FIELDS: Final = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


def _is_collector_change(new: Object, old: Object) -> bool:
    """Return True for a change of only the fields that the garbage collector changes in objects of any kind."""

    def rest(obj: Object) -> Object:
        kept = {name: value for name, value in obj["metadata"].items() if name not in _COLLECTOR_FIELDS}
        return {**obj, "metadata": kept}

    return rest(new) == rest(old)

"""The RBAC authorizer: roles and bindings, indexed so that a decision is a few dictionary look-ups.

Roles and bindings are read from the views. Before each decision the index catches up with the views (usually four
comparisons), so that a change has effect from the next request on:

    bindings of a subject    ("User", "bob") -> {(namespace, binding): role}     "" for cluster role bindings
    grants of a user         (user, groups, namespace) -> Grants                 made at first use, dropped at each
                                                                                 change of a role or binding
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kubechronicle.api.access import rbac
from kubechronicle.api.access.rbac import Grants, Rule
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.values.caches import kept
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Who
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import Decision, Rules, Verdict
from kubechronicle.http.authorization.view_follower import FollowedViews, ViewFollower

GROUP = "rbac.authorization.k8s.io"
# Cached (user, groups, namespace), and about the bytes of the cache. It is cleared beyond either. Reviews name any user
# in any namespace, so long names must not fill the memory.
GRANTS_KEPT = 10_000
MAX_KEPT = 256 << 20
_BYTES_A_RULE = 200
EXPLANATIONS_KEPT = 10_000
"""Cached explanations. They are cleared beyond that."""
LONGEST_KEPT = 1024
"""Characters of the groups and path of a cached explanation."""

RoleName = tuple[str, str]
"""(namespace, name); no namespace: a cluster role."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One subject of one binding, with the text that explains a decision."""

    namespace: str
    binding: str
    position: int
    role: RoleName
    subject: str

    def reason(self) -> str:
        kind, name = (
            ("RoleBinding", f"{self.binding}/{self.namespace}")
            if self.namespace
            else ("ClusterRoleBinding", self.binding)
        )
        role = "Role" if self.role[0] else "ClusterRole"
        return f'RBAC: allowed by {kind} "{name}" of {role} "{self.role[1]}" to {self.subject}'


class RbacAuthorizer:
    def __init__(self, views: FollowedViews) -> None:
        self._roles: dict[RoleName, list[Rule]] = {}
        # (namespace, binding) -> (subject, position) of each
        self._bindings: dict[tuple[str, str], list[tuple[tuple[str, str], int]]] = {}
        # subject -> namespace ("": cluster-wide) -> (binding's name, position) -> binding
        self._bound: defaultdict[tuple[str, str], dict[str, dict[tuple[str, int], Bound]]] = defaultdict(dict)
        self._grants: dict[tuple[str, tuple[str, ...], str], Grants] = kept("grants")
        self._refusals: dict[tuple[str, tuple[str, ...], str], str] = kept("refusals")
        self._explained: dict[tuple[str | tuple[str, ...], ...], Verdict] = kept("verdicts")
        self._kept = 0
        self._followers = [
            ViewFollower(views[f"clusterroles.{GROUP}"], self._role),
            ViewFollower(views[f"roles.{GROUP}"], self._role),
            ViewFollower(views[f"clusterrolebindings.{GROUP}"], self._binding),
            ViewFollower(views[f"rolebindings.{GROUP}"], self._binding),
        ]

    def decide(self, user: User, info: RequestInfo) -> Verdict:
        """Return ALLOW, or NO_OPINION with the missing roles of the user's bindings."""
        if self._permitted(user, info):
            return Verdict(Decision.ALLOW)
        return Verdict(Decision.NO_OPINION, self._missing(user, info.namespace))

    def explain(self, user: User, info: RequestInfo) -> Verdict:
        """Return the same verdict as ``decide``, with the text of the binding that allows it.

        Audit events have it, too, so what repeats is kept.
        """
        self._catch_up()
        asked = (info.group, info.resource, info.subresource, info.name) if info.is_resource else (info.path,)
        key = (user.name, user.groups, info.namespace, info.verb, *asked)
        verdict = self._explained.get(key)
        if verdict is None:
            verdict = self._explanation(user, info)
            if len(self._explained) >= EXPLANATIONS_KEPT:
                self._explained.clear()
            if sum(map(len, user.groups)) + len(info.path) <= LONGEST_KEPT:
                self._explained[key] = verdict
        return verdict

    def _explanation(self, user: User, info: RequestInfo) -> Verdict:
        for bound in self._bound_to(user, info.namespace):
            if any(permits(rule, info) for rule in self._roles.get(bound.role, ())):
                return Verdict(Decision.ALLOW, bound.reason())
        return Verdict(Decision.NO_OPINION, self._missing(user, info.namespace))

    def rules(self, user: User, namespace: str) -> Rules:
        """Return the user's rules in a namespace ("": cluster-wide only), and missing roles as errors."""
        self._catch_up()
        rules: list[Rule] = []
        missing: list[str] = []
        for bound in self._bound_to(user, namespace):
            role = self._roles.get(bound.role)
            if role is None:
                missing.append(_not_found(bound.role))
            else:
                rules += role
        return Rules(rules, missing)

    def at(self, views: FollowedViews) -> RbacAuthorizer:
        return RbacAuthorizer(views)

    # For the escalation check (actors/admission/escalation.py).

    def rights(self, who: Who, namespace: str) -> tuple[Sequence[Rule], Sequence[str]]:
        """Return the rules of a user in a namespace ("": cluster-wide), and errors for missing roles."""
        held = self.rules(_user(who), namespace)
        return held.rules, held.errors

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _permitted(self, user: User, info: RequestInfo) -> bool:
        self._catch_up()
        # Cluster-wide grants come first: they are shared by all namespaces.
        wide = self._grants_of(user, "")
        if not info.is_resource:
            return wide.permit_path(info.verb, info.path)
        request = (info.verb, info.group, info.resource, info.subresource, info.name)
        if wide.permit_resource(*request):
            return True
        return bool(info.namespace) and self._grants_of(user, info.namespace).permit_resource(*request)

    def _grants_of(self, user: User, namespace: str) -> Grants:
        """Return the grants of bindings in the namespace itself; "": cluster role bindings."""
        key = (user.name, user.groups, namespace)
        grants = self._grants.get(key)
        if grants is None:
            grants = Grants()
            for bound in self._bound_in(user, namespace):
                grants.add(self._roles.get(bound.role, ()))
            self._make_room(key, grants.size * _BYTES_A_RULE)
            self._grants[key] = grants
        return grants

    def _bound_in(self, user: User, namespace: str) -> Iterator[Bound]:
        for subject in (("User", user.name), *(("Group", group) for group in user.groups)):
            places = self._bound.get(subject)
            if places is not None:
                yield from places.get(namespace, {}).values()

    def _bound_to(self, user: User, namespace: str) -> list[Bound]:
        """Return the user's bindings in Kubernetes' order: cluster-wide ones first, each kind by name.

        Each binding occurs once, for the first of its subjects that matches.
        """
        bindings: dict[tuple[str, str], Bound] = {}
        for space in ("", namespace) if namespace else ("",):
            for bound in sorted(self._bound_in(user, space), key=lambda bound: (bound.binding, bound.position)):
                bindings.setdefault((space, bound.binding), bound)
        return list(bindings.values())

    def _missing(self, user: User, namespace: str) -> str:
        """Return the reason of NO_OPINION: the missing roles of the user's bindings, "" for none."""
        key = (user.name, user.groups, namespace)
        reason = self._refusals.get(key)
        if reason is None:
            reason = self._missing_roles(user, namespace)
            self._make_room(key, len(reason))
            self._refusals[key] = reason
        return reason

    def _missing_roles(self, user: User, namespace: str) -> str:
        missing = dict.fromkeys(
            _not_found(bound.role) for bound in self._bound_to(user, namespace) if bound.role not in self._roles
        )
        if not missing:
            return ""
        listed = list(missing)
        return "RBAC: " + (listed[0] if len(listed) == 1 else "[" + ", ".join(listed) + "]")

    # -- the index ----------------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        for follower in self._followers:
            if follower.catch_up():
                self._forget()

    def _make_room(self, key: tuple[str, tuple[str, ...], str], size: int) -> None:
        """Account for a new cache entry of ``size`` bytes, and clear the cache if it is full."""
        name, groups, namespace = key
        self._kept += size + len(name) + len(namespace) + sum(map(len, groups))
        if self._kept > MAX_KEPT or max(len(self._grants), len(self._refusals)) >= GRANTS_KEPT:
            self._forget()

    def _forget(self) -> None:
        self._grants.clear()
        self._refusals.clear()
        self._explained.clear()
        self._kept = 0

    def _role(self, namespace: str, name: str, entry: Entry | None) -> None:
        if entry is None:
            self._roles.pop((namespace, name), None)
        else:
            self._roles[(namespace, name)] = [rbac.indexed(rule) for rule in entry.object().get("rules") or ()]

    def _binding(self, namespace: str, name: str, entry: Entry | None) -> None:
        for key, position in self._bindings.pop((namespace, name), ()):
            places = self._bound[key]
            del places[namespace][(name, position)]
            if not places[namespace]:
                del places[namespace]
            if not places:
                del self._bound[key]
        if entry is None:
            return
        binding = entry.object()
        reference = binding["roleRef"]
        role = (namespace if reference.get("kind") == "Role" else "", reference.get("name", ""))
        held = self._bindings[(namespace, name)] = []
        for position, subject in enumerate(binding.get("subjects") or ()):
            key = rbac.subject_key(subject, namespace)
            bound = Bound(namespace, name, position, role, _shown(subject, namespace))
            self._bound[key].setdefault(namespace, {})[(name, position)] = bound
            held.append((key, position))


def _user(who: Who) -> User:
    return User(name=who.user, uid=who.uid, groups=who.groups, extra=who.extra)


def permits(rule: Rule, info: RequestInfo) -> bool:
    """Return whether one rule permits the request."""
    if not info.is_resource:
        return rbac.permits_path(rule, info.verb, info.path)
    return rbac.permits_resource(rule, info.verb, info.group, info.resource, info.subresource, info.name)


def _shown(subject: dict[str, Any], namespace: str) -> str:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'{kind} "{name}"'


def _not_found(role: RoleName) -> str:
    return f'{"role" if role[0] else "clusterrole"}.{GROUP} "{role[1]}" not found'

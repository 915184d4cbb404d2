"""Grants over time: the subjects that RBAC lets make one request, as roles and bindings change one by one.

Each role is only known by whether it permits the request, each binding by its role and subjects. So a change costs a
few look-ups, and it may be undone by putting back the state before it:

    put clusterrolebinding ops -> role edit, subjects (User uma)     nothing: edit does not permit the request yet
    put clusterrole edit, which permits it                           {("User", "uma")} now holds the right
    put clusterrole edit, as it was before                           {("User", "uma")} does not hold it any more

Pure: objects are plain arguments. Not here: the order of changes, and who made them (actors/history).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.access.rbac import subject_key
from kubechronicle.api.access.rule_index import Rule

GROUP: Final = "rbac.authorization.k8s.io"
ROLES: Final = (f"clusterroles.{GROUP}", f"roles.{GROUP}")
BINDINGS: Final = (f"clusterrolebindings.{GROUP}", f"rolebindings.{GROUP}")

Place = tuple[str, str]
"""(namespace, name); no namespace: a cluster role or a cluster role binding."""

Subject = tuple[str, str]
"""("User", name) or ("Group", name)."""


class GrantBound(NamedTuple):
    role: Place
    subjects: frozenset[Subject]


class GrantsOverTime:
    """``permits``: tells if a rule permits the request. ``concerns``: returns the subject to count for a subject of a
    binding, None to ignore it."""

    def __init__(self, permits: Callable[[Rule], bool], concerns: Callable[[Subject], Subject | None]) -> None:
        self._permits = permits
        self._concerns = concerns
        self._permitting: set[Place] = set()
        self._bindings: dict[Place, GrantBound] = {}
        self._bindings_of: dict[Place, set[Place]] = {}
        self._held: dict[Subject, int] = {}

    def copy(self) -> GrantsOverTime:
        """Return the same grants, which later changes of these do not change."""
        same = GrantsOverTime(self._permits, self._concerns)
        same._permitting = set(self._permitting)
        same._bindings = dict(self._bindings)
        same._bindings_of = {role: set(places) for role, places in self._bindings_of.items()}
        same._held = dict(self._held)
        return same

    def holders(self) -> Sequence[Subject]:
        """Return the subjects that hold the right, in order."""
        return sorted(self._held)

    def holds(self, subject: Subject) -> bool:
        return subject in self._held

    def through(self, subject: Subject) -> Sequence[tuple[Place, Place]]:
        """Return the (binding, role) pairs that give a subject the right, cluster-wide ones first."""
        return [
            (place, bound.role)
            for place, bound in sorted(self._bindings.items())
            if subject in bound.subjects and bound.role in self._permitting
        ]

    def put(self, resource: str, place: Place, obj: Mapping[str, Any] | None) -> set[Subject]:
        """Take the state of a role or binding, None: absent. Return the subjects that began or ceased to hold the
        right."""
        if resource in ROLES:
            return self._put_role(place, obj)
        return self._put_binding(place, obj)

    def _put_role(self, role: Place, obj: Mapping[str, Any] | None) -> set[Subject]:
        permits = obj is not None and any(map(self._permits, obj.get("rules") or ()))
        if permits is (role in self._permitting):
            return set()
        if permits:
            self._permitting.add(role)
        else:
            self._permitting.discard(role)
        change = 1 if permits else -1
        changed: set[Subject] = set()
        for place in self._bindings_of.get(role, ()):
            changed ^= self._count(self._bindings[place], change)
        return changed

    def _put_binding(self, place: Place, obj: Mapping[str, Any] | None) -> set[Subject]:
        changed: set[Subject] = set()
        before = self._bindings.pop(place, None)
        if before is not None:
            self._bindings_of[before.role].discard(place)
            if before.role in self._permitting:
                changed ^= self._count(before, -1)
        if obj is None:
            return changed
        now = self._bindings[place] = self._bound(obj, place[0])
        self._bindings_of.setdefault(now.role, set()).add(place)
        if now.role in self._permitting:
            changed ^= self._count(now, 1)
        return changed

    def _bound(self, binding: Mapping[str, Any], namespace: str) -> GrantBound:
        reference = binding.get("roleRef") or {}
        role = (namespace if reference.get("kind") == "Role" else "", reference.get("name", ""))
        named = (self._concerns(subject_key(subject, namespace)) for subject in binding.get("subjects") or ())
        return GrantBound(role, frozenset(subject for subject in named if subject is not None))

    def _count(self, bound: GrantBound, change: int) -> set[Subject]:
        """Count the subjects of a binding whose role permits the request; return those that changed sides."""
        changed = set()
        for subject in bound.subjects:
            before = self._held.get(subject, 0)
            self._held[subject] = now = before + change
            if not now:
                del self._held[subject]
            if bool(before) is not bool(now):
                changed.add(subject)
        return changed

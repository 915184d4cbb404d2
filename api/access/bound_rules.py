"""BoundRules: all roles and bindings, and the rules that they give to a user in a namespace.

    roles of a subject      ("User", "bob") -> namespace of the binding, "" for cluster role bindings
                                            -> role -> {binding: position of the subject in it}
    rules of all roles      one RuleIndex for the roles of each namespace, and one for cluster roles

Both are found by look-ups, so a decision does not depend on the number of roles, bindings and rules of other users, and
hardly on that of the user's own. A change costs as much as the role or binding that has changed. The rules of a role
are indexed later than it is put: when a user who is bound to it asks, or by ``index_one``, which others call in steps.

Pure: roles and bindings are plain arguments. Not here: views, and users with their credentials (http/authorization).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from kubechronicle.api.access import rbac
from kubechronicle.api.access.rule_index import ALL, RoleName, Rule, RuleIndex

GROUP: Final = "rbac.authorization.k8s.io"

Subject = tuple[str, str]
"""("User", name) or ("Group", name)."""

Roles = dict[RoleName, dict[str, int]]
"""Role -> {binding: position of the first subject}: the roles of one subject in one namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request, as rules see it. ``path``: that of a request without a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    path: str | None = None


class Role(NamedTuple):
    """``read``: returns the rules. ``size``: bytes of the role's JSON."""

    read: Callable[[], Sequence[Rule]]
    size: int


class Listed(NamedTuple):
    """The rules of a role, and the bytes of its JSON."""

    rules: Sequence[Rule]
    size: int


class Binding(NamedTuple):
    role: RoleName
    subjects: Sequence[Mapping[str, Any]]


class BoundRules:
    """See the head of this file."""

    def __init__(self) -> None:
        self._roles: dict[RoleName, Role | Listed] = {}  # a Role until its rules are needed
        self._unindexed: dict[RoleName, None] = {}
        self._indexes: dict[str, RuleIndex] = {}
        self._bindings: dict[tuple[str, str], Binding] = {}
        self._bound: dict[Subject, dict[str, Roles]] = {}

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_role(self, role: RoleName, put: Role | None) -> None:
        """Create or replace a role; None: delete it."""
        if put is not None:
            self._roles[role] = put
            self._unindexed[role] = None
            return
        self._roles.pop(role, None)
        self._unindexed.pop(role, None)
        index = self._indexes.get(role[0])
        if index is not None:
            index.put(role, ())
            if index.is_empty:
                del self._indexes[role[0]]

    def put_binding(self, namespace: str, name: str, binding: Mapping[str, Any] | None) -> None:
        """Create or replace a binding of a namespace ("": a cluster role binding); None: delete it."""
        before = self._bindings.pop((namespace, name), None)
        if before is not None:
            self._unbind(namespace, name, before)
        if binding is None:
            return
        reference = binding["roleRef"]
        role = (namespace if reference.get("kind") == "Role" else "", reference.get("name", ""))
        now = self._bindings[(namespace, name)] = Binding(role, binding.get("subjects") or ())
        for position, subject in enumerate(now.subjects):
            places = self._bound.setdefault(rbac.subject_key(subject, namespace), {})
            places.setdefault(namespace, {}).setdefault(role, {}).setdefault(name, position)

    def _unbind(self, namespace: str, name: str, binding: Binding) -> None:
        for subject in binding.subjects:
            key = rbac.subject_key(subject, namespace)
            places = self._bound.get(key, {})
            roles = places.get(namespace, {})
            names = roles.get(binding.role, {})
            if names.pop(name, None) is None or names:
                continue
            del roles[binding.role]
            if not roles:
                del places[namespace]
            if not places:
                del self._bound[key]

    # -- indexing -----------------------------------------------------------------------------------------------------

    def index_one(self) -> bool:
        """Index the rules of one role. Return False if those of all roles are indexed."""
        for role in self._unindexed:
            self._index(role)
            return True
        return False

    def _index(self, role: RoleName) -> None:
        self._unindexed.pop(role, None)
        listed = self._listed(role)
        if listed is not None:
            self._indexes.setdefault(role[0], RuleIndex()).put(role, listed.rules)

    def _listed(self, role: RoleName) -> Listed | None:
        """Return the rules of a role; None if there is no such role."""
        held = self._roles.get(role)
        if isinstance(held, Role):
            held = self._roles[role] = Listed(held.read(), held.size)
        return held

    def _indexes_of(self, roles: Iterable[Roles], namespace: str) -> list[RuleIndex]:
        """Return the indexes of cluster roles and of the namespace, in which the rules of these roles are."""
        if self._unindexed:
            for held in roles:
                for role in held.keys() & self._unindexed.keys():
                    self._index(role)
        spaces = ("", namespace) if namespace else ("",)
        return [self._indexes[space] for space in spaces if space in self._indexes]

    # -- questions ----------------------------------------------------------------------------------------------------

    def permits(self, subjects: Sequence[Subject], namespace: str, question: Question) -> bool:
        """Tell whether a request is permitted to a user. ``subjects``: the user and the user's groups."""
        return bool(self._permitting(subjects, namespace, question, question.name))

    def permits_all(self, subjects: Sequence[Subject], namespace: str, question: Question) -> bool:
        """Tell whether a request is permitted to a user whatever the object's name is."""
        return bool(self._permitting(subjects, namespace, question, None))

    def named(self, namespace: str, name: str) -> bool:
        """Tell whether any rule for requests in the namespace is of objects with this name."""
        if self._unindexed:
            return True
        return any(space in self._indexes and self._indexes[space].names(name) for space in ("", namespace))

    def _permitting(
        self, subjects: Sequence[Subject], namespace: str, question: Question, name: str | None
    ) -> set[RoleName]:
        """Return the roles of a user that permit a request. Paths are permitted by cluster role bindings alone."""
        found: set[RoleName] = set()
        if question.path is not None:
            roles = list(self._roles_at(subjects, ""))
            for index in self._indexes_of(roles, ""):
                found |= index.permit_path(roles, question.verb, question.path)
            return found
        roles = list(self._roles_in(subjects, namespace))
        part = question.subresource
        wanted = (f"{question.resource}/{part}", ALL, f"*/{part}") if part else (question.resource, ALL)
        for index in self._indexes_of(roles, namespace):
            found |= index.permit(roles, question.verb, question.group, wanted, name)
        return found

    def reason(self, subjects: Sequence[Subject], namespace: str, question: Question) -> str | None:
        """Return the text of the first binding that permits a request to a user; None if none does."""
        permitting = self._permitting(subjects, namespace, question, question.name)
        for space in ("", namespace) if namespace and question.path is None else ("",):
            through = [
                (name, position, role)
                for roles in self._roles_at(subjects, space)
                for role in (permitting if len(permitting) < len(roles) else roles)
                if role in permitting and role in roles
                for name, position in roles[role].items()
            ]
            if through:
                name, position, role = min(through)
                return _reason(space, name, role, self._bindings[(space, name)].subjects[position])
        return None

    def missing(self, subjects: Sequence[Subject], namespace: str) -> Sequence[str]:
        """Return the errors for missing roles of a user's bindings, in the order of the bindings."""
        lost = (
            (bool(space), name, role)
            for space in (("", namespace) if namespace else ("",))
            for roles in self._roles_at(subjects, space)
            for role, names in roles.items()
            if role not in self._roles
            for name in names
        )
        return [_not_found(role) for _, _, role in sorted(set(lost))]

    def rules(self, subjects: Sequence[Subject], namespace: str) -> Iterator[Listed | str]:
        """Yield the rules of each of a user's bindings, or the error for its missing role.

        Cluster role bindings come first, each kind by name. Each binding occurs once.
        """
        for space in ("", namespace) if namespace else ("",):
            bindings = {
                name: role
                for roles in self._roles_at(subjects, space)
                for role, names in roles.items()
                for name in names
            }
            for _, role in sorted(bindings.items()):
                listed = self._listed(role)
                yield _not_found(role) if listed is None else listed

    def not_covered(self, subjects: Sequence[Subject], namespace: str, wanted: Iterable[Rule]) -> list[Rule]:
        """Return the smallest rules of ``wanted`` that no single rule of a user covers (rbac.not_covered_by)."""
        roles = list(self._roles_in(subjects, namespace))
        return rbac.not_covered_by(self._indexes_of(roles, namespace), roles, wanted)

    def _roles_in(self, subjects: Sequence[Subject], namespace: str) -> Iterator[Roles]:
        """Yield the roles of a user by cluster role bindings, and by those of a namespace."""
        spaces = ("", namespace) if namespace else ("",)
        return chain.from_iterable(self._roles_at(subjects, space) for space in spaces)

    def _roles_at(self, subjects: Sequence[Subject], space: str) -> Iterator[Roles]:
        for subject in subjects:
            places = self._bound.get(subject)
            if places is not None and space in places:
                yield places[space]


def subjects_of(name: str, groups: Iterable[str]) -> list[Subject]:
    """Return the subjects that stand for a user."""
    return [("User", name), *(("Group", group) for group in groups)]


def _reason(namespace: str, binding: str, role: RoleName, subject: Mapping[str, Any]) -> str:
    kind, shown = ("RoleBinding", f"{binding}/{namespace}") if namespace else ("ClusterRoleBinding", binding)
    of = "Role" if role[0] else "ClusterRole"
    who, name = subject.get("kind", ""), subject.get("name", "")
    if who == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'RBAC: allowed by {kind} "{shown}" of {of} "{role[1]}" to {who} "{name}"'


def _not_found(role: RoleName) -> str:
    return f'{"role" if role[0] else "clusterrole"}.{GROUP} "{role[1]}" not found'

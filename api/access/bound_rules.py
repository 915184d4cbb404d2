"""BoundRules: all roles and bindings, and the rules that they give to a user in a namespace.

    roles of a subject      ("User", "bob") -> namespace of the binding, "" for cluster role bindings
                                            -> role -> {binding: position of the subject in it}
    rules of all roles      one RuleIndex for the roles of each namespace, and one for cluster roles

Both are found by look-ups, so a decision does not depend on the number of roles, bindings and rules of other users, and
hardly on that of the user's own. A change costs as much as the role or binding that has changed. Roles and long
bindings are indexed later than they are put: by ``index``, in steps, or at the first question that needs them.

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

Place = tuple[str, str]
"""(namespace, name) of a role or binding; no namespace: a cluster role or a cluster role binding."""

FEW_SUBJECTS: Final = 256
"""Subjects of a binding that are indexed in one step."""
SMALL: Final = 32 * 1024
"""Bytes of a binding that is indexed at once."""

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


class Stored(NamedTuple):
    """A role or binding as it is stored. ``read``: decodes it. ``size``: bytes of its JSON."""

    read: Callable[[], Mapping[str, Any]]
    size: int


class Listed(NamedTuple):
    """The rules of a role, and the bytes of its JSON."""

    rules: Sequence[Rule]
    size: int


class Binding(NamedTuple):
    role: RoleName
    subjects: list[Mapping[str, Any]]


class BoundRules:
    """See the head of this file."""

    def __init__(self) -> None:
        self._roles: dict[RoleName, int] = {}  # bytes of each
        self._indexes: dict[str, RuleIndex] = {}
        self._bindings: dict[Place, Binding] = {}
        self._bound: dict[Subject, dict[str, Roles]] = {}
        # Those that are not indexed yet; None: deleted ones that are indexed still
        self._late_roles: dict[RoleName, Stored | None] = {}
        self._late_bindings: dict[Place, Stored | None] = {}

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_role(self, role: RoleName, stored: Stored | None) -> None:
        """Create or replace a role; None: delete it."""
        if stored is not None:
            self._roles[role] = stored.size
        else:
            self._roles.pop(role, None)
        self._late_roles[role] = stored

    def put_binding(self, namespace: str, name: str, stored: Stored | None) -> None:
        """Create or replace a binding of a namespace ("": a cluster role binding); None: delete it."""
        place = (namespace, name)
        before = self._bindings.get(place)
        self._late_bindings[place] = stored
        if (before is None or len(before.subjects) <= FEW_SUBJECTS) and (stored is None or stored.size <= SMALL):
            self._index(self._late_bindings, place)

    # -- indexing -----------------------------------------------------------------------------------------------------

    def late(self, subjects: Sequence[Subject], namespace: str) -> int:
        """Return the bytes of roles and bindings that a question about a user would have to index first."""
        if not self._late_roles and not self._late_bindings:
            return 0
        late: list[Stored | None] = [put for place, put in self._late_bindings.items() if place[0] in ("", namespace)]
        late += [self._late_roles[role] for role in self._late_roles_in(self._roles_in(subjects, namespace))]
        return sum(SMALL if put is None else put.size for put in late)

    def first_late(self) -> tuple[bool, Place, Stored | None] | None:
        """Return the next binding (True) or role (False) to index; None if all are indexed."""
        for is_binding, late in ((True, self._late_bindings), (False, self._late_roles)):
            for place, stored in late.items():
                return is_binding, place, stored
        return None

    def index(
        self, place: Place, stored: Stored | None, content: Mapping[str, Any] | None, *, is_binding: bool
    ) -> Iterator[None]:
        """Index a binding or role in short steps, unless it has changed since ``first_late`` returned it."""
        late = self._late_bindings if is_binding else self._late_roles
        if place not in late or late[place] is not stored:
            return
        for _ in self._bind(place, content) if is_binding else self._index_role(place, content):
            yield
            if place not in late or late[place] is not stored:
                return
        del late[place]

    def _index(self, late: dict[Place, Stored | None], place: Place) -> None:
        stored = late[place]
        content = None if stored is None else stored.read()
        for _ in self.index(place, stored, content, is_binding=late is self._late_bindings):
            pass

    def _index_role(self, role: RoleName, content: Mapping[str, Any] | None) -> Iterator[None]:
        rules = () if content is None else content.get("rules") or ()
        if not rules and role[0] not in self._indexes:
            return
        index = self._indexes.setdefault(role[0], RuleIndex())
        yield from index.change(role, rules)
        if index.is_empty:
            del self._indexes[role[0]]

    def _bind(self, place: Place, binding: Mapping[str, Any] | None) -> Iterator[None]:
        namespace, name = place
        before = self._bindings.get(place)
        while before is not None and before.subjects:
            self._unbind(place, before.role, rbac.subject_key(before.subjects.pop(), namespace))
            if not len(before.subjects) % FEW_SUBJECTS:
                yield
        if binding is None:
            self._bindings.pop(place, None)
            return
        reference = binding["roleRef"]
        role = (namespace if reference.get("kind") == "Role" else "", reference.get("name", ""))
        held: list[Mapping[str, Any]] = []
        self._bindings[place] = Binding(role, held)
        for position, subject in enumerate(binding.get("subjects") or ()):
            places = self._bound.setdefault(rbac.subject_key(subject, namespace), {})
            places.setdefault(namespace, {}).setdefault(role, {}).setdefault(name, position)
            held.append(subject)
            if not len(held) % FEW_SUBJECTS:
                yield

    def _unbind(self, place: Place, role: RoleName, subject: Subject) -> None:
        namespace, name = place
        places = self._bound.get(subject, {})
        roles = places.get(namespace, {})
        names = roles.get(role, {})
        if names.pop(name, None) is None or names:
            return
        del roles[role]
        if not roles:
            del places[namespace]
        if not places:
            del self._bound[subject]

    def _late_roles_in(self, roles: Iterable[Roles]) -> set[RoleName]:
        return {role for held in roles for role in held.keys() & self._late_roles.keys()} if self._late_roles else set()

    def _indexed(self, subjects: Sequence[Subject], namespace: str) -> Sequence[Roles]:
        """Index all that a question about a user needs. Return the user's roles."""
        for place in [place for place in self._late_bindings if place[0] in ("", namespace)]:
            self._index(self._late_bindings, place)
        roles = list(self._roles_in(subjects, namespace))
        for role in self._late_roles_in(roles):
            self._index(self._late_roles, role)
        return roles

    # -- questions ----------------------------------------------------------------------------------------------------

    def permits(self, subjects: Sequence[Subject], namespace: str, question: Question) -> bool:
        """Tell whether a request is permitted to a user. ``subjects``: the user and the user's groups."""
        return bool(self._permitting(subjects, namespace, question, question.name))

    def permits_all(self, subjects: Sequence[Subject], namespace: str, question: Question) -> bool:
        """Tell whether a request is permitted to a user whatever the object's name is."""
        return bool(self._permitting(subjects, namespace, question, None))

    def named(self, namespace: str, name: str) -> bool:
        """Tell whether any rule for requests in the namespace is of objects with this name. Only for users about whom
        another question was asked since the last change."""
        return any(space in self._indexes and self._indexes[space].names(name) for space in ("", namespace))

    def _permitting(
        self, subjects: Sequence[Subject], namespace: str, question: Question, name: str | None
    ) -> set[RoleName]:
        """Return the roles of a user that permit a request. Paths are permitted by cluster role bindings alone."""
        namespace = namespace if question.path is None else ""
        roles = self._indexed(subjects, namespace)
        found: set[RoleName] = set()
        part = question.subresource
        resources = (f"{question.resource}/{part}", ALL, f"*/{part}") if part else (question.resource, ALL)
        for index in self._indexes_of(namespace):
            if question.path is not None:
                found |= index.permit_path(roles, question.verb, question.path)
            else:
                found |= index.permit(roles, question.verb, question.group, resources, name)
        return found

    def _indexes_of(self, namespace: str) -> list[RuleIndex]:
        """Return the indexes of cluster roles and of the namespace."""
        spaces = ("", namespace) if namespace else ("",)
        return [self._indexes[space] for space in spaces if space in self._indexes]

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
        self._indexed(subjects, namespace)
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
        self._indexed(subjects, namespace)
        for space in ("", namespace) if namespace else ("",):
            bindings = {
                name: role
                for roles in self._roles_at(subjects, space)
                for role, names in roles.items()
                for name in names
            }
            for _, role in sorted(bindings.items()):
                size = self._roles.get(role)
                if size is None:
                    yield _not_found(role)
                else:
                    index = self._indexes.get(role[0])
                    yield Listed(index.rules_of(role) if index is not None else (), size)

    def compare(
        self, subjects: Sequence[Subject], namespace: str, wanted: Iterable[Rule], missing: list[Rule]
    ) -> Iterator[None]:
        """Add the smallest rules of ``wanted`` that no single rule of a user covers to ``missing`` (rbac.compare)."""
        roles = self._indexed(subjects, namespace)
        return rbac.compare(self._indexes_of(namespace), roles, wanted, missing)

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

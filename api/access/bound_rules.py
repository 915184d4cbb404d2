"""BoundRules: all roles and bindings, and the rules that they give to a user in a namespace.

    roles of a subject      ("User", "bob") -> namespace of the binding, "" for cluster role bindings
                                            -> role -> {binding: position of the subject in it}
    rules of all roles      one RuleIndex for the roles of each namespace, and one for cluster roles

Both are found by look-ups, so a decision does not depend on the number of roles, bindings and rules of other users, and
hardly on that of the user's own. A user's groups are looked up once, for the Grants. Work that is linear in the user's
groups or bindings is done in steps; a binding that changes between two of them may count or not. A change costs as much
as the role or binding that has changed. Roles and long bindings are indexed later than they are put: by ``index``, in
steps, or at the first question that needs them.

Pure: roles and bindings are plain arguments. Not here: views, and users with their credentials (http/authorization).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import Any, Final, NamedTuple

from kubechronicle.api.access import rbac
from kubechronicle.api.access.rule_index import ALL, RoleName, Rule, RuleIndex
from kubechronicle.api.values.steps import Steps

GROUP: Final = "rbac.authorization.k8s.io"

Subject = tuple[str, str]
"""("User", name) or ("Group", name)."""

Place = tuple[str, str]
"""(namespace, name) of a role or binding; no namespace: a cluster role or a cluster role binding."""

FEW_SUBJECTS: Final = 256
"""Subjects of a binding that are indexed in one step."""
MANY: Final = 256
"""Groups or bindings of a user that are looked at in one step."""
SORTED: Final = 4096
"""Bindings of a user that are sorted in one step."""
SMALL: Final = 32 * 1024
"""Bytes of a binding that is indexed at once."""

Roles = dict[RoleName, dict[str, int]]
"""Role -> {binding: position of the first subject}: the roles of one subject in one namespace."""


class Grants(NamedTuple):
    """The roles of one user in a namespace.

    ``held``: those of each subject that stands for the user, by bindings of a namespace, or of "" for cluster role
    bindings. ``roles``: by the names of them all. ``everywhere``: by the names of those by cluster role bindings.
    """

    namespace: str
    held: Sequence[tuple[str, Roles]]
    roles: Sequence[Mapping[RoleName, Any]]
    everywhere: Sequence[Mapping[RoleName, Any]]

    @property
    def are_many(self) -> bool:
        """True if all bindings are more than one step."""
        return len(self.held) > MANY or sum(sum(map(len, roles.values())) for _, roles in self.held) > MANY


@dataclass(frozen=True, slots=True, kw_only=True)
class RightQuestion:
    """A request, as rules see it. ``path``: that of a request without a resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    path: str | None = None


class StoredBinding(NamedTuple):
    """A role or binding as it is stored. ``read``: decodes it. ``size``: bytes of its JSON."""

    read: Callable[[], Mapping[str, Any]]
    size: int


class ListedRules(NamedTuple):
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
        self._late_roles: dict[RoleName, StoredBinding | None] = {}
        self._late_bindings: dict[Place, StoredBinding | None] = {}

    # -- changes ------------------------------------------------------------------------------------------------------

    def put_role(self, role: RoleName, stored: StoredBinding | None) -> None:
        """Create or replace a role; None: delete it."""
        if stored is not None:
            self._roles[role] = stored.size
        else:
            self._roles.pop(role, None)
        self._late_roles[role] = stored

    def put_binding(self, namespace: str, name: str, stored: StoredBinding | None) -> None:
        """Create or replace a binding of a namespace ("": a cluster role binding); None: delete it."""
        place = (namespace, name)
        before = self._bindings.get(place)
        self._late_bindings[place] = stored
        if (before is None or len(before.subjects) <= FEW_SUBJECTS) and (stored is None or stored.size <= SMALL):
            self._index(self._late_bindings, place)

    # -- indexing -----------------------------------------------------------------------------------------------------

    def late_bindings(self, namespace: str) -> int:
        """Return the bytes of bindings that the grants in a namespace would have to index first."""
        late = self._late_bindings
        return sum(_bytes(put) for place, put in late.items() if place[0] in ("", namespace)) if late else 0

    def late_roles(self, grants: Grants) -> int:
        """Return the bytes of roles that a question about these grants would have to index first."""
        return sum(_bytes(self._late_roles[role]) for role in self._late_roles_of(grants))

    def first_late(self) -> tuple[bool, Place, StoredBinding | None] | None:
        """Return the next binding (True) or role (False) to index; None if all are indexed."""
        for is_binding, late in ((True, self._late_bindings), (False, self._late_roles)):
            for place, stored in late.items():
                return is_binding, place, stored
        return None

    def index(
        self, place: Place, stored: StoredBinding | None, content: Mapping[str, Any] | None, *, is_binding: bool
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

    def _index(self, late: dict[Place, StoredBinding | None], place: Place) -> None:
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

    def _late_roles_of(self, grants: Grants) -> set[RoleName]:
        late = self._late_roles.keys()
        return {role for roles in grants.roles for role in roles.keys() & late} if late else set()

    def _index_roles(self, grants: Grants) -> None:
        """Index all that a question about these grants needs."""
        for role in self._late_roles_of(grants):
            self._index(self._late_roles, role)

    # -- grants -------------------------------------------------------------------------------------------------------

    def grants(self, name: str, groups: Sequence[str], namespace: str) -> Steps[Grants]:
        """Return the grants to a user in a namespace ("": cluster-wide)."""
        held = self._few(name, groups[:MANY], namespace)
        for start in range(MANY, len(groups), MANY):
            yield
            held += self._held([("Group", group) for group in groups[start : start + MANY]], namespace)
        if len(held) <= MANY:
            return _grants_of(held, namespace)
        names = yield from _names([roles for space, roles in held if not space])
        there = yield from _names([roles for space, roles in held if space])
        return Grants(namespace, held, [names, there], [names])

    def grants_at_once(self, name: str, groups: Sequence[str], namespace: str) -> Grants:
        """Return the grants to a user of few groups."""
        return _grants_of(self._few(name, groups, namespace), namespace)

    def _few(self, name: str, groups: Sequence[str], namespace: str) -> list[tuple[str, Roles]]:
        if self._late_bindings:
            for place in [place for place in self._late_bindings if place[0] in ("", namespace)]:
                self._index(self._late_bindings, place)
        return self._held([("User", name), *(("Group", group) for group in groups)], namespace)

    def _held(self, subjects: Iterable[Subject], namespace: str) -> list[tuple[str, Roles]]:
        found, bound = [], self._bound
        for subject in subjects:
            places = bound.get(subject)
            if places is not None:
                if "" in places:
                    found.append(("", places[""]))
                if namespace and namespace in places:
                    found.append((namespace, places[namespace]))
        return found

    # -- questions ----------------------------------------------------------------------------------------------------

    def permits(self, grants: Grants, question: RightQuestion) -> bool:
        """Tell whether a request is permitted."""
        return bool(self._permitting(grants, question, question.name))

    def permits_all(self, grants: Grants, question: RightQuestion) -> bool:
        """Tell whether a request is permitted whatever the object's name is."""
        return bool(self._permitting(grants, question, None))

    def named(self, namespace: str, name: str) -> bool:
        """Tell whether any rule for requests in the namespace is of objects with this name. Only for users about whom
        another question was asked since the last change."""
        return any(space in self._indexes and self._indexes[space].names(name) for space in ("", namespace))

    def _permitting(self, grants: Grants, question: RightQuestion, name: str | None) -> set[RoleName]:
        """Return the roles that permit a request. Paths are permitted by cluster role bindings alone."""
        if self._late_roles:
            self._index_roles(grants)
        found: set[RoleName] = set()
        if question.path is not None:
            for index in self._indexes_of(""):
                found |= index.permit_path(grants.everywhere, question.verb, question.path)
            return found
        part = question.subresource
        resources = (f"{question.resource}/{part}", ALL, f"*/{part}") if part else (question.resource, ALL)
        for index in self._indexes_of(grants.namespace):
            found |= index.permit(grants.roles, question.verb, question.group, resources, name)
        return found

    def _indexes_of(self, namespace: str) -> list[RuleIndex]:
        """Return the indexes of cluster roles and of the namespace."""
        spaces = ("", namespace) if namespace else ("",)
        return [self._indexes[space] for space in spaces if space in self._indexes]

    def reason(self, grants: Grants, question: RightQuestion) -> Steps[str | None]:
        """Return the text of the first binding that permits a request; None if none does."""
        permitting = self._permitting(grants, question, question.name)
        spaces = ("", grants.namespace) if grants.namespace and question.path is None else ("",)
        for space in spaces if permitting else ():
            first: tuple[str, int, RoleName] | None = None
            held: dict[str, int] = {}
            seen = 0
            for roles in _held_in(grants, space):
                for role in list(permitting if len(permitting) < len(roles) else roles):
                    if role in permitting and (names := roles.get(role)):
                        here = (*min(names.items()), role)
                        if first is None or here < first:
                            first, held = here, names
                        seen += len(names)
                seen += 1
                if seen > MANY:
                    yield
                    seen = 0
            if first is not None:
                name, position, role = first
                if held.get(name) != position:  # it has changed between two steps
                    return (yield from self.reason(grants, question))
                return _reason(space, name, role, self._bindings[(space, name)].subjects[position])
        return None

    def missing(self, grants: Grants) -> Steps[Sequence[str]]:
        """Return the errors for missing roles, in the order of their first bindings."""
        self._index_roles(grants)
        lost: dict[RoleName, tuple[bool, str]] = {}
        seen = 0
        for space, roles in grants.held:
            for role in [role for role in roles if role not in self._roles]:
                if names := roles.get(role):
                    first = (bool(space), min(names))
                    lost[role] = min(first, lost.get(role, first))
                    seen += len(names)
            seen += len(roles)
            if seen > MANY:
                yield
                seen = 0
        return [_not_found(role) for _, role in sorted((first, role) for role, first in lost.items())]

    def rules(self, grants: Grants) -> Iterator[ListedRules | str | None]:
        """Yield the rules of each of a user's bindings, or the error for its missing role; None: a step.

        Cluster role bindings come first, each kind by name. Each binding occurs once.
        """
        self._index_roles(grants)
        for space in ("", grants.namespace) if grants.namespace else ("",):
            runs: list[list[tuple[str, RoleName]]] = [[]]
            for roles in _held_in(grants, space):
                for role in list(roles):
                    runs[-1] += [(name, role) for name in roles.get(role, ())]
                    if len(runs[-1]) > SORTED:
                        runs[-1].sort()
                        runs.append([])
                        yield None
            runs[-1].sort()
            before = ""
            for name, role in merge(*runs) if len(runs) > 1 else runs[0]:
                if name == before:
                    continue
                before, size = name, self._roles.get(role)
                if size is None:
                    yield _not_found(role)
                else:
                    index = self._indexes.get(role[0])
                    yield ListedRules(index.rules_of(role) if index is not None else (), size)

    def compare(self, grants: Grants, wanted: Iterable[Rule], missing: list[Rule]) -> Iterator[None]:
        """Add the smallest rules of ``wanted`` that no single rule covers to ``missing`` (rbac.compare)."""
        self._index_roles(grants)
        return rbac.compare(self._indexes_of(grants.namespace), grants.roles, wanted, missing)


def _names(many: Sequence[Roles]) -> Steps[Mapping[RoleName, None]]:
    """Return the names of the roles of many subjects."""
    names: dict[RoleName, None] = {}
    for start in range(0, len(many), MANY):
        for roles in many[start : start + MANY]:
            names.update(dict.fromkeys(roles))
        yield
    return names


def _grants_of(held: list[tuple[str, Roles]], namespace: str) -> Grants:
    return Grants(namespace, held, [roles for _, roles in held], [roles for space, roles in held if not space])


def _held_in(grants: Grants, space: str) -> Iterator[Roles]:
    return (roles for where, roles in grants.held if where == space)


def _bytes(put: StoredBinding | None) -> int:
    return SMALL if put is None else put.size


def _reason(namespace: str, binding: str, role: RoleName, subject: Mapping[str, Any]) -> str:
    kind, shown = ("RoleBinding", f"{binding}/{namespace}") if namespace else ("ClusterRoleBinding", binding)
    of = "Role" if role[0] else "ClusterRole"
    who, name = subject.get("kind", ""), subject.get("name", "")
    if who == "ServiceAccount":
        name = f"{name}/{subject.get('namespace') or namespace}"
    return f'RBAC: allowed by {kind} "{shown}" of {of} "{role[1]}" to {who} "{name}"'


def _not_found(role: RoleName) -> str:
    return f'{"role" if role[0] else "clusterrole"}.{GROUP} "{role[1]}" not found'

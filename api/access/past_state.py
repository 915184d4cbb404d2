"""The state of the cluster at each write of a replay: namespaces, parameters of policies, and rights.

It begins with the objects at the start of the replay, and every later change is applied in the order of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from kubechronicle.api.access import bound_rules
from kubechronicle.api.access.bound_rules import BoundRules, StoredBinding
from kubechronicle.api.admission.logged_changes import LoggedChange, decoded
from kubechronicle.api.cel.library.authorization import AuthorizerDecision, AuthorizerQuestion, Decide
from kubechronicle.api.values.objects import Object
from kubechronicle.api.values.steps import finish

RBAC: Final = "rbac.authorization.k8s.io"
RIGHTS: Final = tuple(f"{kind}.{RBAC}" for kind in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"))
"""The resources that rights depend on."""
MASTERS: Final = "system:masters"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"


class States:
    """The objects of some resources at one revision (api.admission.replays.PastState)."""

    def __init__(self, resources: Iterable[str], fixed: Iterable[tuple[str, Object]] = ()) -> None:
        """``fixed``: objects, each with its resource, that take the place of those in the cluster."""
        self._tables: dict[str, dict[str, dict[str, Object]]] = {each: defaultdict(dict) for each in resources}
        self._fixed: set[tuple[str, str, str]] = set()
        self._bound = BoundRules()
        for resource, obj in fixed:
            self._tables.setdefault(resource, defaultdict(dict))
            namespace, name = _key_of(obj)
            self.put(resource, namespace, name, obj)
            self._fixed.add((resource, namespace, name))

    def add(self, resource: str, obj: Object) -> None:
        """Add an object as it was at the start."""
        self.put(resource, *_key_of(obj), obj)

    def apply(self, resource: str, change: LoggedChange) -> None:
        """Apply a change. One that the reader may not read counts as none."""
        if resource in self._tables and not change.redacted:
            after = decoded(change.after, change.metadata.name)
            self.put(resource, change.object.namespace, change.object.name, after)

    def put(self, resource: str, namespace: str, name: str, obj: Object | None) -> None:
        """Set the object of a name; None: there is none any more."""
        if (resource, namespace, name) in self._fixed:
            return
        if obj is None:
            self._tables[resource][namespace].pop(name, None)
        else:
            self._tables[resource][namespace][name] = obj
        if resource in RIGHTS:
            stored = None if obj is None else StoredBinding(lambda: obj, 0)
            if resource in RIGHTS[2:]:
                self._bound.put_binding(namespace, name, stored)
            else:
                self._bound.put_role((namespace, name), stored)

    def peek(self, resource: str, namespace: str, name: str) -> Object | None:
        found = self._tables.get(resource, {}).get(namespace)
        return None if found is None else found.get(name)

    def entries(self, resource: str, namespace: str) -> Iterator[Object]:
        tables = self._tables.get(resource, {})
        chosen = [tables.get(namespace) or {}] if namespace else tables.values()
        return (obj for table in list(chosen) for _, obj in sorted(table.items()))

    # -- rights -------------------------------------------------------------------------------------------------------

    def decide(self, user: Mapping[str, Any]) -> Decide:
        """Return the answers of RBAC about a user. Members of system:masters may do everything."""
        name, groups = user.get("username", ""), tuple(user.get("groups") or ())

        def decide(question: AuthorizerQuestion) -> AuthorizerDecision:
            if question.service_account is None:
                return AuthorizerDecision(self._allowed(name, groups, question))
            namespace, account = question.service_account
            joined = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}", "system:authenticated")
            return AuthorizerDecision(self._allowed(f"system:serviceaccount:{namespace}:{account}", joined, question))

        return decide

    def _allowed(self, user: str, groups: tuple[str, ...], question: AuthorizerQuestion) -> bool:
        if MASTERS in groups:
            return True
        asked = bound_rules.RightQuestion(
            verb=question.verb,
            group=question.group,
            resource=question.resource,
            subresource=question.subresource,
            name=question.name,
            path=question.path,
        )
        return self._bound.permits(finish(self._bound.grants(user, groups, question.namespace)), asked)


def _key_of(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

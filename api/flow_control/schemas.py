"""FlowSchemas, compiled, and the first one that matches a request (flowcontrol.apiserver.k8s.io/v1, KEP-1040).

    classify("alice", ("system:authenticated",), info)      ->  the FlowSchema with the lowest precedence that matches

A schema has rules; a rule has subjects and the requests that it means. All lists are sets, so that many subjects cost a
request no more than one. A request that no
schema matches belongs to ``catch-all``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.meta.request_info import RequestInfo

ANY: Final = "*"
_ACCOUNT: Final = "system:serviceaccount:"

Matches = Callable[[str], bool]
UserTest = Callable[[str, Sequence[str]], bool]
RequestTest = Callable[[RequestInfo], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSchema:
    """A compiled FlowSchema.

    ``level``: the name of its priority level.
    ``by_user``, ``by_namespace``: the part of a request that tells flows apart; neither: all are one flow.
    ``matches``: tells whether it matches a user (name, groups) and a request.
    """

    name: str
    uid: str
    level: str
    precedence: int
    by_user: bool
    by_namespace: bool
    matches: Callable[[str, Sequence[str], RequestInfo], bool]

    def distinguisher(self, user: str, info: RequestInfo) -> str:
        """Return the text that tells this request's flow from others of the schema."""
        if self.by_user:
            return user
        return info.namespace if self.by_namespace else ""


def compiled(obj: Mapping[str, Any]) -> FlowSchema:
    """Compile a stored FlowSchema (v1)."""
    spec = obj.get("spec") or {}
    method = (spec.get("distinguisherMethod") or {}).get("type", "")
    rules = [_rule(rule) for rule in spec.get("rules") or ()]

    def matches(user: str, groups: Sequence[str], info: RequestInfo) -> bool:
        return any(subjects(user, groups) and requests(info) for subjects, requests in rules)

    return FlowSchema(
        name=obj["metadata"]["name"],
        uid=obj["metadata"].get("uid", ""),
        level=(spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        precedence=spec.get("matchingPrecedence", 0),
        by_user=method == "ByUser",
        by_namespace=method == "ByNamespace",
        matches=matches,
    )


def in_order(schemas: Iterable[FlowSchema], levels: Iterable[str]) -> list[FlowSchema]:
    """Return the schemas whose level exists, in the order in which they are tried. The mandatory ones that are missing
    are added: ``exempt`` first, ``catch-all`` last."""
    known = set(levels)
    ordered = sorted((s for s in schemas if s.level in known), key=lambda schema: (schema.precedence, schema.name))
    names = {schema.name for schema in ordered}
    specs = bootstrap.schema_specs()
    exempt, last = (
        compiled({"metadata": {"name": name}, "spec": specs[name]}) for name in (bootstrap.EXEMPT, bootstrap.CATCH_ALL)
    )
    if exempt.name not in names:
        ordered.insert(0, exempt)
    if last.name not in names:
        ordered.append(last)
    return ordered


def classify(schemas: Sequence[FlowSchema], user: str, groups: Sequence[str], info: RequestInfo) -> FlowSchema:
    """Return the first schema that matches, else ``catch-all``."""
    last = schemas[-1]
    for schema in schemas:
        if schema.matches(user, groups, info):
            return schema
        if schema.name == bootstrap.CATCH_ALL:
            last = schema
    return last


# Rules


def _rule(rule: Mapping[str, Any]) -> tuple[UserTest, RequestTest]:
    resources = [_resource_rule(one) for one in rule.get("resourceRules") or ()]
    paths = [_path_rule(one) for one in rule.get("nonResourceRules") or ()]

    def requests(info: RequestInfo) -> bool:
        return any(test(info) for test in (resources if info.is_resource else paths))

    return _subjects(rule.get("subjects") or ()), requests


def _subjects(subjects: Sequence[Mapping[str, Any]]) -> UserTest:
    """Return the test for a list of subjects, by look-ups."""
    users, groups, namespaces = set[str](), set[str](), set[str]()
    for subject in subjects:
        match subject.get("kind"):
            case "User":
                users.add((subject.get("user") or {}).get("name", ""))
            case "Group":
                groups.add((subject.get("group") or {}).get("name", ""))
            case "ServiceAccount":
                account = subject.get("serviceAccount") or {}
                namespace, name = account.get("namespace", ""), account.get("name", "")
                if name == ANY:
                    namespaces.add(namespace)
                else:
                    users.add(f"{_ACCOUNT}{namespace}:{name}")
    if ANY in users or ANY in groups:
        return lambda user, groups: True

    def matches(user: str, of: Sequence[str]) -> bool:
        if user in users or not groups.isdisjoint(of):
            return True
        if not namespaces or not user.startswith(_ACCOUNT):
            return False
        namespace, colon, _ = user.removeprefix(_ACCOUNT).partition(":")
        return bool(colon) and namespace in namespaces

    return matches


def _one_of(names: Sequence[str]) -> Matches:
    """Return the test for a list. A wildcard counts only alone in its list, as validation demands."""
    if list(names) == [ANY]:
        return lambda name: True
    return frozenset(names).__contains__


def _resource_rule(rule: Mapping[str, Any]) -> RequestTest:
    verbs, groups = _one_of(rule.get("verbs") or ()), _one_of(rule.get("apiGroups") or ())
    resources, namespaces = _one_of(rule.get("resources") or ()), _one_of(rule.get("namespaces") or ())
    cluster = bool(rule.get("clusterScope"))

    def matches(info: RequestInfo) -> bool:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        if not (verbs(info.verb) and resources(resource) and groups(info.group)):
            return False
        return namespaces(info.namespace) if info.namespace else cluster

    return matches


def _path_rule(rule: Mapping[str, Any]) -> RequestTest:
    verbs, urls = _one_of(rule.get("verbs") or ()), list(rule.get("nonResourceURLs") or ())
    # "/healthz" means the paths below it, too.
    prefixes = tuple(f"{url.removesuffix(ANY).removesuffix('/')}/" for url in urls)
    exact = frozenset(urls)

    def matches(info: RequestInfo) -> bool:
        return verbs(info.verb) and (ANY in exact or info.path in exact or info.path.startswith(prefixes))

    return matches

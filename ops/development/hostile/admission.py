"""Attacks on admission: writes that depend on many limits, quotas, policies, parameters or webhooks, and objects that
admission or defaults make large. The kinds of objects are rare ones, so that other attacks are not affected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.ops.development.hostile.site import ALICE, EDITOR, TENANT, Site

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_CPU: Final = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


def _namespace(site: Site, name: str) -> str:
    """Create a namespace, with the service account of its Pods. Return its path."""
    path = f"/api/v1/namespaces/{name}"
    site.make("/api/v1/namespaces", {"metadata": {"name": name}})
    site.make(f"{path}/serviceaccounts", {"metadata": {"name": "default"}})
    return path


def _pod(count: int, resources: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{number}", "image": "i", "resources": resources} for number in range(count)]
    return {"metadata": {"generateName": "p-"}, "spec": {"containers": containers, **spec}}


def _rule(resource: str, group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}


# Limits and quotas


LIMITS: Final = 1000
DEFAULTS: Final = 1000
QUOTAS: Final = 1000
LARGE_QUOTAS, QUOTA_NAMES = 200, 600
LIMITED, DEFAULTED, CHARGED, LARGELY_CHARGED = "limited", "defaulted", "charged", "largely-charged"


def limits(site: Site) -> None:
    """Create LIMITS LimitRanges in a namespace."""
    site.once("limits", lambda: _limit(site))


def _limit(site: Site) -> None:
    path = _namespace(site, LIMITED)
    for number in range(LIMITS):
        limit = {"type": "Container", "max": {"cpu": str(1000 + number)}}
        site.make(f"{path}/limitranges", {"metadata": {"name": f"l{number}"}, "spec": {"limits": [limit]}})


def limited_pod(site: Site) -> str:
    """Create a Pod of 100 containers where many LimitRanges apply."""
    return site.ask("POST", f"/api/v1/namespaces/{LIMITED}/pods", _pod(100, _CPU), user=EDITOR).status


def default_amounts(site: Site) -> None:
    """Create a LimitRange of DEFAULTS defaults in a namespace."""
    site.once("default amounts", lambda: _default_amounts(site))


def _default_amounts(site: Site) -> None:
    amounts = {f"a/{number}": "1" for number in range(DEFAULTS)}
    limit = {"type": "Container", "default": amounts, "defaultRequest": amounts, "max": amounts}
    path = _namespace(site, DEFAULTED)
    site.make(f"{path}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})


def defaulted_pod(site: Site) -> str:
    """Create a Pod of 200 containers that gets 400,000 values."""
    return site.ask("POST", f"/api/v1/namespaces/{DEFAULTED}/pods", _pod(200, {}), user=EDITOR).status


def quotas(site: Site) -> None:
    """Create QUOTAS quotas of ConfigMaps in a namespace."""
    site.once("quotas", lambda: _charge(site, CHARGED, QUOTAS, {"count/configmaps": "1000"}))


def large_quotas(site: Site) -> None:
    """Create LARGE_QUOTAS quotas in a namespace, each of QUOTA_NAMES names that are not of ConfigMaps."""
    hard = {f"count/objects{number}.example.com": "1000" for number in range(QUOTA_NAMES)}
    site.once("large quotas", lambda: _charge(site, LARGELY_CHARGED, LARGE_QUOTAS, hard))


def _charge(site: Site, namespace: str, count: int, hard: Mapping[str, str]) -> None:
    path = f"{_namespace(site, namespace)}/resourcequotas"
    for number in range(count):
        made = site.make(path, {"metadata": {"name": f"q{number}"}, "spec": {"hard": hard}}).json()
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        site.ask("PUT", f"{path}/q{number}/status", {**made, "status": status})


def charged_map(site: Site, namespace: str = CHARGED) -> str:
    """Create a ConfigMap, for which each quota of the namespace is read."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    return site.ask("POST", path, {"metadata": {"generateName": "c-"}}, user=EDITOR).status


# Policies and webhooks


PARAMETERS: Final = 5000
MUTATING_PARAMETERS: Final = 3000
WEBHOOKS, OF_ONE = 4000, 20
"""Webhooks of each kind, and those of one configuration."""
KEYS: Final = 90_000
GUARDED, MUTATED, LABELLED = "guarded", "mutated", "labelled"


def _with_parameters(site: Site, name: str, count: int, kind: str, spec: Mapping[str, Any], **binding: Any) -> None:
    """Bind a policy to ``count`` ConfigMaps as its parameters. ``kind``: "validating" or "mutating"."""
    path = f"{_namespace(site, name)}/configmaps"
    for number in range(count):
        site.make(path, {"metadata": {"name": f"p{number}"}, "data": {"name": f"n{number}"}})
    reference = {"namespace": name, "selector": {}, "parameterNotFoundAction": "Allow"}
    param_kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    _bound(site, name, kind, {"paramKind": param_kind, **spec}, paramRef=reference, **binding)


def _bound(site: Site, name: str, kind: str, spec: Mapping[str, Any], **binding: Any) -> None:
    path = f"{_ADMISSION}/{kind}admissionpolic"
    site.make(f"{path}ies", {"metadata": {"name": name}, "spec": spec})
    site.make(f"{path}ybindings", {"metadata": {"name": name}, "spec": {"policyName": name, **binding}})


def _mutation(expression: str, again: str = "Never") -> dict[str, Any]:
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return {"mutations": [change], "reinvocationPolicy": again}


def parameters(site: Site) -> None:
    """Let a validating policy have PARAMETERS objects as its parameters."""
    spec = {
        "matchConstraints": {"resourceRules": [_rule("secrets")]},
        "validations": [{"expression": "object.metadata.name != params.data.name"}],
    }

    def make() -> None:
        _with_parameters(site, GUARDED, PARAMETERS, "validating", spec, validationActions=["Deny"])

    site.once("parameters", make)


def guarded_secret(site: Site) -> str:
    """Create a Secret that is judged once with each parameter."""
    path = f"/api/v1/namespaces/{TENANT}/secrets?dryRun=All"
    return site.ask("POST", path, {"metadata": {"name": "s"}}, user=ALICE).status


def mutating_parameters(site: Site) -> None:
    """Let a mutating policy have MUTATING_PARAMETERS objects as its parameters."""
    label = "Object{metadata: Object.metadata{labels: {'seen': params.data.name}}}"
    spec = {"matchConstraints": {"resourceRules": [_rule("endpoints")]}, **_mutation(label)}
    site.once("mutating parameters", lambda: _with_parameters(site, MUTATED, MUTATING_PARAMETERS, "mutating", spec))


def mutated_endpoints(site: Site) -> str:
    """Create Endpoints that are changed once with each parameter."""
    path = f"/api/v1/namespaces/{TENANT}/endpoints?dryRun=All"
    return site.ask("POST", path, {"metadata": {"name": "e"}}, user=ALICE).status


def label_policy(site: Site) -> None:
    """Let a policy label each ConfigMap of a namespace, again if others change it."""
    label = "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"
    selector = {"matchLabels": {"kubernetes.io/metadata.name": LABELLED}}
    constraints = {"resourceRules": [_rule("configmaps")], "namespaceSelector": selector}
    spec = {"matchConstraints": constraints, **_mutation(label, "IfNeeded")}

    def make() -> None:
        _namespace(site, LABELLED)
        _bound(site, LABELLED, "mutating", spec)

    site.once("label policy", make)


def labelled_map(site: Site) -> str:
    """Create a ConfigMap of KEYS keys that a policy labels."""
    body = {"metadata": {"name": "m"}, "data": {f"k{number}": "" for number in range(KEYS)}}
    return site.ask("POST", f"/api/v1/namespaces/{LABELLED}/configmaps?dryRun=All", body, user=EDITOR).status


def webhooks(site: Site, kind: str) -> None:
    """Create WEBHOOKS webhooks with conditions that are false. ``kind``: "validating" or "mutating"."""
    site.once(f"{kind} webhooks", lambda: _hook(site, kind))


def _hook(site: Site, kind: str) -> None:
    for number in range(WEBHOOKS // OF_ONE):
        made = [
            {
                "name": f"w{each}.a.io",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "rules": [_rule("controllerrevisions", "apps")],
                "matchConditions": [{"name": "c", "expression": f"object.metadata.name == 'n{number}-{each}'"}],
            }
            for each in range(OF_ONE)
        ]
        body = {"metadata": {"name": f"w{number}"}, "webhooks": made}
        site.make(f"{_ADMISSION}/{kind}webhookconfigurations", body)


def unmatched_revision(site: Site) -> str:
    """Create a ControllerRevision that no webhook is asked about."""
    path = f"/apis/apps/v1/namespaces/{TENANT}/controllerrevisions?dryRun=All"
    return site.ask("POST", path, {"metadata": {"name": "r"}, "data": {"a": 1}, "revision": 1}, user=ALICE).status


# Small objects that become large


TOLERATIONS: Final = 30_000
ITEMS, FIELDS = 1990, 100
RUNTIME, WIDGETS = "runtime", "grown.example.com"


def runtime_class(site: Site) -> None:
    """Create a RuntimeClass of TOLERATIONS tolerations."""
    site.once("runtime class", lambda: _runtime_class(site))


def _runtime_class(site: Site) -> None:
    _namespace(site, RUNTIME)
    tolerations = [{"key": f"k{number}", "operator": "Exists", "effect": "NoExecute"} for number in range(TOLERATIONS)]
    scheduling = {"tolerations": tolerations}
    body = {"metadata": {"name": RUNTIME}, "handler": "h", "scheduling": scheduling}
    site.make("/apis/node.k8s.io/v1/runtimeclasses", body)


def tolerating_pod(site: Site) -> str:
    """Create a Pod of this class."""
    body = _pod(1, _CPU, runtimeClassName=RUNTIME)
    return site.ask("POST", f"/api/v1/namespaces/{RUNTIME}/pods?dryRun=All", body, user=EDITOR).status


def growing_kind(site: Site, *, stored: bool = False) -> None:
    """Define objects whose list items have FIELDS defaults. ``stored``: there is one that has not got them yet."""
    site.once("growing kind", lambda: _growing_kind(site))
    if stored:
        site.once("growing object", lambda: _growing_object(site))


def _definition(plural: str, **members: str) -> dict[str, Any]:
    item = {"type": "object", "properties": {f"p{n}": {"type": "string", **members} for n in range(FIELDS)}}
    schema = {"type": "object", "properties": {"entries": {"type": "array", "items": item}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].capitalize()}
    spec = {"group": WIDGETS, "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.{WIDGETS}"}, "spec": spec}


_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _object(kind: str) -> dict[str, Any]:
    body = {"apiVersion": f"{WIDGETS}/v1", "kind": kind, "metadata": {"name": "o"}}
    return {**body, "entries": [{}] * ITEMS}


def _until_served(site: Site, plural: str) -> str:
    path = f"/apis/{WIDGETS}/v1/namespaces/{TENANT}/{plural}"
    while site.ask("GET", path).status == "404":
        pass
    return path


def _growing_kind(site: Site) -> None:
    site.make(_DEFINITIONS, _definition("widgets", default="d"))
    _until_served(site, "widgets")


def _growing_object(site: Site) -> None:
    site.make(_DEFINITIONS, _definition("gadgets"))
    path = _until_served(site, "gadgets")
    site.make(path, _object("Gadget"))
    place = f"{_DEFINITIONS}/gadgets.{WIDGETS}"
    version = site.ask("GET", place).json()["metadata"]["resourceVersion"]
    changed = _definition("gadgets", default="d")
    changed["metadata"]["resourceVersion"] = version
    site.ask("PUT", place, changed)
    while b"p99" not in site.ask("GET", f"{path}/o").body:
        pass


def growing_object(site: Site) -> str:
    """Create an object of 6 KB that gets ITEMS times FIELDS defaults."""
    path = f"/apis/{WIDGETS}/v1/namespaces/{TENANT}/widgets?dryRun=All"
    return site.ask("POST", path, _object("Widget"), user=ALICE).status


def grown_object(site: Site) -> str:
    """Read such an object, which is stored without its defaults, as YAML."""
    path = f"/apis/{WIDGETS}/v1/namespaces/{TENANT}/gadgets/o"
    return site.ask("GET", path, user=ALICE, headers={"accept": "application/yaml"}).status

"""Attacks with expressions and patterns: few bytes that are evaluated, or compiled, for long.

A definition's rules and a policy's validations nest five loops over ten values around one call of a library. Patterns
are alternatives of counted repetitions, which RE2 expands when it compiles them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.ops.development.hostile.site import ALICE, EDITOR, TENANT, Site, together

CALLS: Final[Mapping[str, tuple[str, str]]] = {
    "cidr": ("cidr({}).containsIP('10.0.0.1')", "10.0.0.0/8"),
    "ip": ("ip({}).family() == 4", "10.0.0.1"),
    "timestamp": ("timestamp({}).getFullYear() > 0", "2026-01-02T03:04:05Z"),
    "duration": ("duration({}).getSeconds() > 0", "1h2m3s"),
    "semver": ("semver({}).major() == 1", "1.2.3"),
    "url": ("url({}).getHost() == 'a.example'", "https://a.example/b"),
    "quantity": ("quantity({}).isInteger()", "1Gi"),
    "matches": ("{}.matches('(a+b*){{3}}')", "aaabbbaaabbbaaabbb"),
}
"""An expression of each library, true for the text beside it."""
RULES: Final = 10
DEPTH: Final = 5
TIMES: Final = 2
POLICY_SECONDS: Final = 3.0
"""Seconds until a kube-apiserver obeys a new policy, at most."""
LONG: Final = 48 * 1024
GROUP: Final = "hostile.example"
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1"
_CLAIMS: Final = f"/apis/resource.k8s.io/v1/namespaces/{TENANT}/resourceclaims?dryRun=All"
_REVISIONS: Final = f"/apis/history.kubechronicle.dev/v1/namespaces/{TENANT}/revisions"
_CONFIG_MAPS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}


def nested(expression: str) -> str:
    """Return the expression within DEPTH loops."""
    for level in range(DEPTH):
        expression = f"[1,2,3,4,5,6,7,8,9,10].all(x{level}, {expression})"
    return expression


def rules_of(call: str, place: str) -> list[str]:
    """Return RULES different expressions of a library."""
    text = nested(CALLS[call][0].format(place))
    return [f"{text} && '{number}' != ''" for number in range(RULES)]


def definition(name: str, rules: list[str], **properties: Any) -> dict[str, Any]:
    """Return a definition whose spec has a short text ``c``, and these rules."""
    spec = {"type": "object", "properties": {"c": {"type": "string", "maxLength": 30}, **properties}}
    validations = {"x-kubernetes-validations": [{"rule": rule} for rule in rules]} if rules else {}
    schema = {"type": "object", "properties": {"spec": spec}, **validations}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"{name}s.{GROUP}"},
        "spec": {
            "group": GROUP, "scope": "Cluster", "versions": [version],
            "names": {"plural": f"{name}s", "kind": name.title()},
        },
    }  # fmt: skip


def _served(site: Site, name: str) -> None:
    path = f"/apis/{GROUP}/v1/{name}s"
    for _ in range(100):
        if site.ask("GET", path).status == "200":
            return
        time.sleep(0.1)
    raise RuntimeError(f"{path} is not served")


def defined(call: str, site: Site) -> str:
    """Create a definition with rules. Return the status."""

    def create() -> str:
        reply = site.ask("POST", _DEFINITIONS, definition(call, rules_of(call, "self.spec.c")))
        if reply.status == "201":
            _served(site, call)
        return reply.status

    return site.once(f"definition of {call}", create)


def rules(call: str, site: Site) -> str:
    """Create an object of a definition with rules, as a dry run."""
    accepted = defined(call, site)
    if accepted != "201":
        return f"definition {accepted}"
    body = {"apiVersion": f"{GROUP}/v1", "kind": call.title(), "metadata": {"name": "x"}, "spec": {"c": CALLS[call][1]}}
    return together(TIMES, lambda: site.ask("POST", f"/apis/{GROUP}/v1/{call}s?dryRun=All", body, user=EDITOR).status)


COMPUTED: Final = "patterns"
"""The name of a policy that compiles a pattern of the object."""
SUMS: Final = "sums"
"""The name of a policy whose variables are texts of the object, each twice as long as the one before."""
DOUBLINGS: Final = 40


def enforced(name: str, site: Site) -> str:
    """Create a policy for the ConfigMaps of a namespace, both named after a library. Return the status."""

    def create() -> str:
        site.make("/api/v1/namespaces", {"metadata": {"name": f"judged-by-{name}"}})
        own = {COMPUTED: ["'a'.matches(object.data.p)"], SUMS: [f"variables.v{DOUBLINGS}.size() > 0"]}
        expressions = own.get(name) or rules_of(name, "object.data.c")
        doubled = [f"variables.v{number} + variables.v{number}" for number in range(DOUBLINGS)]
        variables = ["object.data.c", *doubled] if name == SUMS else []
        selector = {"matchLabels": {"kubernetes.io/metadata.name": f"judged-by-{name}"}}
        spec = {
            "matchConstraints": {"resourceRules": [_CONFIG_MAPS], "namespaceSelector": selector},
            "variables": [{"name": f"v{number}", "expression": text} for number, text in enumerate(variables)],
            "validations": [{"expression": each} for each in expressions],
        }
        metadata = {"name": f"{name}.{GROUP}"}
        reply = site.ask("POST", f"{_POLICIES}/validatingadmissionpolicies", {"metadata": metadata, "spec": spec})
        binding = {"policyName": metadata["name"], "validationActions": ["Deny"]}
        site.make(f"{_POLICIES}/validatingadmissionpolicybindings", {"metadata": metadata, "spec": binding})
        time.sleep(POLICY_SECONDS)
        return reply.status

    return site.once(f"policy of {name}", create)


def policy(name: str, site: Site) -> str:
    """Create a ConfigMap that the policy judges, as a dry run."""
    accepted = enforced(name, site)
    if accepted != "201":
        return f"policy {accepted}"
    data = {"p": pattern(800)} if name == COMPUTED else {"c": CALLS[name][1] if name in CALLS else "text"}
    path = f"/api/v1/namespaces/judged-by-{name}/configmaps?dryRun=All"
    return together(
        TIMES, lambda: site.ask("POST", path, {"metadata": {"name": "x"}, "data": data}, user=EDITOR).status
    )


# Texts and patterns that take long to compile


def long_rule(site: Site) -> str:
    """Create a definition with a rule of 48 KB, as a dry run."""
    return site.ask(
        "POST", f"{_DEFINITIONS}?dryRun=All", definition("long", [_long("self.spec.c")]), user=EDITOR
    ).status


def long_validation(site: Site) -> str:
    """Create a policy with a validation of 48 KB, as a dry run."""
    spec = {
        "matchConstraints": {"resourceRules": [_CONFIG_MAPS]},
        "validations": [{"expression": _long("object.data.c")}],
    }
    body = {"metadata": {"name": f"long.{GROUP}"}, "spec": spec}
    return site.ask("POST", f"{_POLICIES}/validatingadmissionpolicies?dryRun=All", body, user=EDITOR).status


def _long(place: str) -> str:
    clause = f"{place} != 'a' && "
    return clause * (LONG // len(clause)) + "true"


def pattern(alternatives: int, repeated: int = 900) -> str:
    """Return a pattern of 11 bytes for each alternative."""
    return "(" + "|".join([f"(a?){{0,{repeated}}}"] * alternatives) + ")"


def claim(selectors: int, site: Site) -> str:
    """Create a ResourceClaim whose selectors match different patterns of 9 KB, as a dry run."""
    texts = [f"device.driver.matches('{pattern(800, 900 - number)}')" for number in range(selectors)]
    exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": text}} for text in texts]}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "rc"}, "spec": spec}
    return site.ask("POST", _CLAIMS, body, user=ALICE).status


def bisect(site: Site) -> str:
    """Search the history of a namespace for a pattern of 25 KB."""
    expression = quote(f"self.metadata.name.matches('{pattern(2000)}')", safe="()?{},'|")
    return site.ask("GET", f"{_REVISIONS}?summary=bisect&expression={expression}", user=ALICE).status


def schema_pattern(site: Site) -> str:
    """Create a definition with 16 patterns of 9 KB, as a dry run."""
    texts = {f"p{number}": {"type": "string", "pattern": pattern(800, 900 - number)} for number in range(16)}
    return site.ask("POST", f"{_DEFINITIONS}?dryRun=All", definition("pattern", [], **texts), user=EDITOR).status

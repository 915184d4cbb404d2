"""Validation of what governs a cluster: priority and runtime classes, flow control, aggregated APIs."""

from __future__ import annotations

import math
from typing import Any, Final

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    wrong,
)
from kubechronicle.api.builtin.go_shapes import shape
from kubechronicle.api.builtin.validation_pod_spec import preemption_policy
from kubechronicle.api.builtin.validation_resources import requirements
from kubechronicle.api.builtin.validation_scheduling import tolerations
from kubechronicle.api.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.metadata import validate_labels

Object = dict[str, Any]

# -- priorities -------------------------------------------------------------------------------------------------------

MAX_USER_PRIORITY: Final = 1000000000
SYSTEM_PRIORITIES: Final = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}


def priority_class(obj: Object) -> list[Cause]:
    """Names and numbers of the system's own classes are kept for them."""
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    causes: list[Cause] = []
    if name.startswith("system-"):
        known = SYSTEM_PRIORITIES.get(name)
        problem = ""
        if known is None:
            problem = f"{name} is not a known system priority class"
        elif value != known:
            problem = f"value of {name} PriorityClass must be {known}"
        elif obj.get("globalDefault"):
            problem = f"globalDefault of {name} PriorityClass must be false"
        if problem:
            detail = "priority class names with 'system-' prefix are reserved for system use only. error: " + problem
            causes.append(forbidden("metadata.name", detail))
    elif value > MAX_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        causes.append(forbidden("value", detail))
    return causes + preemption_policy(obj.get("preemptionPolicy"), "preemptionPolicy")


def priority_class_update(new: Object, old: Object) -> list[Cause]:
    """What a priority class stands for never changes."""
    causes: list[Cause] = []
    if new.get("value", 0) != old.get("value", 0):
        causes.append(forbidden("value", "may not be changed in an update."))
    return causes + immutable("preemptionPolicy", new.get("preemptionPolicy"), old.get("preemptionPolicy"))


def runtime_class(obj: Object) -> list[Cause]:
    """Who runs pods of a class, what that costs, and where it can be done."""
    handler = obj.get("handler", "")
    causes = dns_label(handler, "handler") if handler else [required("handler")]
    overhead = (obj.get("overhead") or {}).get("podFixed")
    if overhead:
        causes += requirements({"limits": overhead}, "overhead")
    scheduling = obj.get("scheduling")
    if scheduling:
        causes += validate_labels(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
        given = scheduling.get("tolerations") or []
        for index, toleration in enumerate(given):
            if toleration in given[:index]:
                causes.append(Cause("FieldValueDuplicate", "Duplicate value", f"scheduling.tolerations[{index}]"))
        causes += tolerations(given, "scheduling.tolerations")
    return causes


def runtime_class_update(new: Object, old: Object) -> list[Cause]:
    """Who runs pods of a class stays."""
    return immutable("handler", new.get("handler", ""), old.get("handler", ""))


# -- flow control -----------------------------------------------------------------------------------------------------

MAX_PRECEDENCE: Final = 10000
FLOW_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
MAX_QUEUES: Final = 10**7
HASH_BITS: Final = 60
"""Bits of a flow's hash that queues are dealt from."""


def flow_schema(obj: Object) -> list[Cause]:
    """Which requests a schema is about, and which level they have."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    precedence, field = spec.get("matchingPrecedence", 0), "spec.matchingPrecedence"
    causes: list[Cause] = []
    if precedence <= 0:
        causes.append(invalid_value(field, precedence, "must be a positive value"))
    if precedence > MAX_PRECEDENCE:
        causes.append(invalid_value(field, precedence, f"must not be greater than {MAX_PRECEDENCE}"))
    if precedence == 1 and name != "exempt":
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        causes.append(invalid_value(field, precedence, detail))
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type", "") not in ("ByNamespace", "ByUser"):
        shown = shape(method, "FlowDistinguisherMethod")
        causes.append(not_supported("spec.distinguisherMethod.type", shown, ("ByNamespace", "ByUser")))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    path = "spec.priorityLevelConfiguration.name"
    causes += dns_subdomain(level, path) if level else [required(path, "must reference a priority level")]
    for index, rule in enumerate(spec.get("rules") or ()):
        causes += _flow_rule(rule, f"spec.rules[{index}]")
    return causes


def _flow_rule(rule: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    if not rule.get("subjects"):
        causes.append(required(f"{field}.subjects", "subjects must contain at least one value"))
    for index, subject in enumerate(rule.get("subjects") or ()):
        causes += _flow_subject(subject, f"{field}.subjects[{index}]")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        causes.append(required(field, "at least one of resourceRules and nonResourceRules has to be non-empty"))
    for index, each in enumerate(rule.get("resourceRules") or ()):
        path = f"{field}.resourceRules[{index}]"
        causes += _verbs(each, path)
        for member, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
            values = each.get(member) or []
            if not values:
                causes.append(required(f"{path}.{member}", f"resource rules must supply at least one {one}"))
            elif len(values) > 1 and "*" in values:
                detail = f"if '*' is present, must not specify other {many}"
                causes.append(invalid_value(f"{path}.{member}", values, detail))
        causes += _namespaces(each, f"{path}.namespaces")
    for index, each in enumerate(rule.get("nonResourceRules") or ()):
        path = f"{field}.nonResourceRules[{index}]"
        causes += _verbs(each, path) + _urls(each.get("nonResourceURLs") or [], f"{path}.nonResourceURLs")
    return causes


def _flow_subject(subject: Object, field: str) -> list[Cause]:
    members = {"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}
    kind = subject.get("kind", "")
    if kind not in members:
        return [not_supported(f"{field}.kind", kind, ("Group", "ServiceAccount", "User"))]
    own = members[kind]
    given, path = subject.get(own), f"{field}.{own}"
    causes: list[Cause] = []
    if given is None:
        causes.append(required(path, f"{own} is required when subject kind is '{kind}'"))
    else:
        if not given.get("name"):
            causes.append(required(f"{path}.name"))
        elif kind == "ServiceAccount" and given["name"] != "*":
            causes += dns_subdomain(given["name"], f"{path}.name")
        if kind == "ServiceAccount" and not given.get("namespace"):
            causes.append(required(f"{path}.namespace", "must specify namespace for service account"))
        elif kind == "ServiceAccount":
            causes += dns_label(given["namespace"], f"{path}.namespace")
    for other, member in members.items():
        if member != own and subject.get(member) is not None:
            detail = f"{member} is forbidden when subject kind is not '{other}'"
            causes.append(forbidden(f"{field}.{member}", detail))
    return causes


def _verbs(rule: Object, field: str) -> list[Cause]:
    verbs, path = rule.get("verbs") or [], f"{field}.verbs"
    if not verbs:
        return [required(path, "verbs must contain at least one value")]
    if "*" in verbs:
        detail = "if '*' is present, must not specify other verbs"
        return [invalid_value(path, verbs, detail)] if len(verbs) > 1 else []
    return [] if set(verbs) <= set(FLOW_VERBS) else [not_supported(path, verbs, FLOW_VERBS)]


def _namespaces(rule: Object, field: str) -> list[Cause]:
    values = rule.get("namespaces") or []
    if not values and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        return [required(field, detail)]
    if "*" in values:
        detail = "if '*' is present, must not specify other namespaces"
        return [invalid_value(field, values, detail)] if len(values) > 1 else []
    intro = "each member of this list must be '*' or a DNS-1123 label; "
    return [
        invalid_value(f"{field}[{index}]", value, intro + text)
        for index, value in enumerate(values)
        for text in names.dns_label(value)
    ]


def _urls(urls: list[str], field: str) -> list[Cause]:
    if not urls:
        return [required(field, "nonResourceURLs must contain at least one value")]
    if "*" in urls:
        detail = "if '*' is present, must not specify other non-resource URLs"
        return [invalid_value(field, urls, detail)] if len(urls) > 1 else []
    return [cause for index, url in enumerate(urls) for cause in wrong(f"{field}[{index}]", url, _url_problem(url))]


def _url_problem(url: str) -> list[str]:
    for bad, words in (
        (not url, "must not be empty"),
        (not url.startswith("/"), "must start with slash"),
        (" " in url, "must not contain white-space"),
        ("//" in url, "must not contain double slash"),
        (url.count("*") > 1 or ("*" in url and not url.endswith("/*")), "wildcard can only do suffix matching"),
    ):
        if bad:
            return [words]
    return []


def priority_level(obj: Object) -> list[Cause]:
    """How many requests of a level run and wait."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    kind, limited, exempt = spec.get("type", ""), spec.get("limited"), spec.get("exempt")
    causes: list[Cause] = []
    if (name == "exempt") != (kind == "Exempt"):
        detail = "type must be 'Exempt' if and only if name is 'exempt'"
        causes += [invalid_value("spec.type", kind, detail)] if kind in ("Exempt", "Limited") else []
    if kind == "Exempt":
        if limited is not None:
            causes.append(forbidden("spec.limited", "must be nil if the type is not Limited"))
        if exempt is not None:
            causes += _shares(exempt, "spec.exempt", borrows=False)
    elif kind == "Limited":
        if exempt is not None:
            causes.append(forbidden("spec.exempt", "must be nil if the type is Limited"))
        if limited is None:
            causes.append(required("spec.limited", "must not be empty when type is Limited"))
        else:
            causes += _shares(limited, "spec.limited", borrows=True)
            causes += _limit_response(limited.get("limitResponse") or {}, "spec.limited.limitResponse")
    else:
        causes.append(not_supported("spec.type", kind, ("Exempt", "Limited")))
    return causes


def _shares(level: Object, field: str, *, borrows: bool) -> list[Cause]:
    causes: list[Cause] = []
    shares, lend, borrow = (
        level.get(name) for name in ("nominalConcurrencyShares", "lendablePercent", "borrowingLimitPercent")
    )
    if shares is not None and shares < 0:
        causes.append(invalid_value(f"{field}.nominalConcurrencyShares", shares, "must be a non-negative integer"))
    if lend is not None and not 0 <= lend <= 100:
        causes.append(invalid_value(f"{field}.lendablePercent", lend, "must be between 0 and 100, inclusive"))
    if borrows and borrow is not None and borrow < 0:
        detail = "if specified, must be a non-negative integer"
        causes.append(invalid_value(f"{field}.borrowingLimitPercent", borrow, detail))
    return causes


def _limit_response(response: Object, field: str) -> list[Cause]:
    kind, queuing = response.get("type", ""), response.get("queuing")
    path = f"{field}.queuing"
    if kind == "Reject":
        detail = "must be nil if limited.limitResponse.type is not Limited"
        return [] if queuing is None else [forbidden(path, detail)]
    if kind != "Queue":
        return [not_supported(f"{field}.type", kind, ("Queue", "Reject"))]
    if queuing is None:
        return [required(path, "must not be empty if limited.limitResponse.type is Limited")]
    length, queues, hand = (queuing.get(name, 0) for name in ("queueLengthLimit", "queues", "handSize"))
    causes: list[Cause] = []
    if length <= 0:
        causes.append(invalid_value(f"{path}.queueLengthLimit", length, "must be positive"))
    if queues <= 0:
        causes.append(invalid_value(f"{path}.queues", queues, "must be positive"))
    elif queues > MAX_QUEUES:
        causes.append(invalid_value(f"{path}.queues", queues, f"must not be greater than {MAX_QUEUES}"))
    if hand <= 0:
        causes.append(invalid_value(f"{path}.handSize", hand, "must be positive"))
    elif hand > queues:
        causes.append(invalid_value(f"{path}.handSize", hand, f"should not be greater than queues ({queues})"))
    elif math.ceil(sum(math.log2(queues - index) for index in range(min(hand, 64)))) > HASH_BITS:
        detail = (
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        )
        causes.append(invalid_value(f"{path}.handSize", hand, detail))
    return causes


# -- aggregation ------------------------------------------------------------------------------------------------------


def api_service(obj: Object) -> list[Cause]:
    """An aggregated API: a version of a group, and the service behind it."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    causes: list[Cause] = []
    wanted = f"{version}.{group}"
    if name != wanted:
        detail = f'must be `spec.version+"."+spec.group`: "{wanted}"'
        causes.append(invalid_value("metadata.name", name, detail))
    if group:
        causes += dns_subdomain(group, "spec.group")
    elif version != "v1":
        causes.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    causes += wrong("spec.version", version, names.dns_1035_label(version))
    for member, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(member, 0)
        if not 0 < value <= most:
            causes.append(invalid_value(f"spec.{member}", value, f"must be positive and less than {most}"))
    service, bundle, insecure = spec.get("service"), spec.get("caBundle"), spec.get("insecureSkipTLSVerify")
    if service is None:
        if bundle:
            shown = f"{len(bundle) * 3 // 4} bytes"
            causes.append(invalid_value("spec.caBundle", shown, "local APIServices may not have a caBundle"))
        if insecure:
            detail = "local APIServices may not have insecureSkipTLSVerify"
            causes.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
        return causes
    causes += [required(f"spec.service.{member}") for member in ("namespace", "name") if not service.get(member)]
    port = service.get("port", 0)
    problems = names.port_number(port)
    if problems:
        causes.append(invalid_value("spec.service.port", port, f"port is not valid: {', '.join(problems)}"))
    if insecure and bundle:
        detail = "may not be true if caBundle is present"
        causes.append(invalid_value("spec.insecureSkipTLSVerify", True, detail))
    return causes

"""Validation of FlowSchemas and PriorityLevelConfigurations.

Both kinds have two objects that every cluster must have with a fixed spec: ``exempt`` and ``catch-all``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, one_of, wrong
from kubechronicle.api.builtin.common.go_shapes import shape
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, not_supported, required
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

MAX_PRECEDENCE: Final = 10000
FLOW_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
MAX_QUEUES: Final = 10**7
HASH_BITS: Final = 60
"""Bits of a flow's hash, from which its queues are chosen."""

_SCHEMAS: Final[Mapping[str, Object]] = bootstrap.schema_specs()
_LEVELS: Final[Mapping[str, Object]] = bootstrap.level_specs()


def _fixed(spec: Object, name: str, wanted: Mapping[str, Object], kind: str) -> list[Cause]:
    """Reject a changed spec of a mandatory object; in the exempt level, the field ``exempt`` may change."""
    if name not in bootstrap.MANDATORY:
        return []
    free: tuple[str, ...] = ("exempt",)
    words = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
    if name != bootstrap.EXEMPT or "exempt" not in wanted[name]:
        free, words = (), f"spec of '{name}' must equal the fixed value"
    compared = [{key: value for key, value in each.items() if key not in free} for each in (spec, wanted[name])]
    return [] if compared[0] == compared[1] else [invalid_value("spec", shape(spec, kind), words)]


def _conditions(obj: Object) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        field, kind = f"status.conditions[{index}].type", condition.get("type", "")
        if kind in seen:
            causes.append(duplicate(field, kind))
        seen.add(kind)
        if not kind:
            causes.append(required(field))
    return causes


def conditions_update(new: Object, old: Object) -> list[Cause]:
    """Check that each condition has a type, and that types differ."""
    return _conditions(new)


def flow_schema(obj: Object) -> list[Cause]:
    """Check the precedence, priority level and rules of a FlowSchema."""
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
    return causes + _fixed(spec, name, _SCHEMAS, "FlowSchemaSpec") + _conditions(obj)


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
    if url == "/":
        return []
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
    """Check the type, shares and queues of a PriorityLevelConfiguration."""
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    kind, limited, exempt = spec.get("type", ""), spec.get("limited"), spec.get("exempt")
    causes: list[Cause] = []
    if (name == "exempt") != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        causes.append(invalid_value("spec.type", kind, detail))
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
        causes += one_of(kind, ("Exempt", "Limited"), "spec.type")
    return causes + _fixed(spec, name, _LEVELS, "PriorityLevelConfigurationSpec") + _conditions(obj)


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
        return one_of(kind, ("Queue", "Reject"), f"{field}.type")
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

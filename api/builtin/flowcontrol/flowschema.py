"""FlowSchema: the requests of a flow, and their priority level.

Source: Kubernetes' ``registry/flowcontrol``, ``apis/flowcontrol`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, condition
from kubechronicle.api.builtin.common.checks import dns_label, dns_subdomain, wrong
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field_column, name_of
from kubechronicle.api.builtin.flowcontrol import bootstrap
from kubechronicle.api.builtin.flowcontrol.prioritylevelconfiguration import (
    CONDITIONS_ALONE,
    PACKAGE,
    conditions_of,
    fixed,
)
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, not_supported, required
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- defaults ---------------------------------------------------------------------------------------------------------


def default_flow_schema_spec(obj: Object) -> None:
    """Default to a matching precedence of 1000."""
    if not obj.get("matchingPrecedence"):
        obj["matchingPrecedence"] = 1000


# -- validation -------------------------------------------------------------------------------------------------------

MAX_PRECEDENCE: Final = 10000
FLOW_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")

_SCHEMAS: Final[Mapping[str, Object]] = bootstrap.schema_specs()


def validate_flow_schema(obj: Object) -> list[Cause]:
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
        shown = record(method, "FlowDistinguisherMethod")
        causes.append(not_supported("spec.distinguisherMethod.type", shown, ("ByNamespace", "ByUser")))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    path = "spec.priorityLevelConfiguration.name"
    causes += dns_subdomain(level, path) if level else [required(path, "must reference a priority level")]
    for index, rule in enumerate(spec.get("rules") or ()):
        causes += _flow_rule(rule, f"spec.rules[{index}]")
    return causes + fixed(spec, name, _SCHEMAS, "FlowSchemaSpec") + conditions_of(obj)


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


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    dangling = condition(at(obj, "status", "conditions"), "Dangling")
    return [
        name_of(obj),
        at(spec, "priorityLevelConfiguration", "name", default=""),
        spec.get("matchingPrecedence") or 0,
        at(spec, "distinguisherMethod", "type", default="<none>"),
        age_of(obj, since),
        "?" if dangling is None else dangling.get("status") or "",
    ]


def _flow_schema_order(obj: ReadOnlyObject) -> tuple[int, str]:
    """Return the sort key of a flow schema: the order in which schemas are matched."""
    return at(obj, "spec", "matchingPrecedence", default=0), name_of(obj)


# -- the kind ---------------------------------------------------------------------------------------------------------

KIND: Final = BuiltinKind(
    resource="flowschemas.flowcontrol.apiserver.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        generation=True,
        validate=validate_flow_schema,
        subresources=CONDITIONS_ALONE,
    ),
    default_functions={"flowcontrol.v1.FlowSchemaSpec": default_flow_schema_spec},
    printer=Printer(
        (
            NAME,
            field_column("PriorityLevel", f"{PACKAGE}.PriorityLevelConfigurationReference.name"),
            field_column("MatchingPrecedence", f"{PACKAGE}.FlowSchemaSpec.matchingPrecedence"),
            field_column("DistinguisherMethod", f"{PACKAGE}.FlowSchemaSpec.distinguisherMethod"),
            AGE,
            Column("MissingPL", text="references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _cells,
        order=_flow_schema_order,
    ),
)

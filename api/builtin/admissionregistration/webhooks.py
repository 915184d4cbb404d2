"""ValidatingWebhookConfiguration and MutatingWebhookConfiguration, and the fields that admission policies share with
them.

Source: Kubernetes' ``registry/admissionregistration``, ``apis/admissionregistration`` and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import label_selector, one_of_if_set, qualified_name, repeated, wrong
from kubechronicle.api.builtin.common.expressions import match_condition
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, counted, name_of
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, not_supported, required, too_many
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.strategy import MOST_WARNINGS, Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- names of configurations from files (KEP-5793) --------------------------------------------------------------------

STATIC_SUFFIX: Final = ".static.k8s.io"
STATIC_RESERVED: Final = (
    f'names ending with "{STATIC_SUFFIX}" are reserved for static manifest-based configurations and cannot be managed '
    "via the API"
)


VIRTUAL_RESOURCES: Final = frozenset(
    (
        "selfsubjectreviews.authentication.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
    )
)
"""The resources that no webhook is asked about (the feature gate ExcludeAdmissionWebhookVirtualResources)."""


def static_name_warnings(new: Object, old: Object | None) -> Sequence[str]:
    """Return a warning about a name that is reserved."""
    return (f"metadata.name: {STATIC_RESERVED}",) if new["metadata"].get("name", "").endswith(STATIC_SUFFIX) else ()


def unanswered_rule_warnings(new: Object, old: Object | None) -> Sequence[str]:
    """Return a warning about each resource of a rule that no webhook is asked about."""
    found = []
    for index, webhook in enumerate(new.get("webhooks") or ()):
        for place, rule in enumerate(webhook.get("rules") or ()):
            named = (f"{plural}.{group}" for group in rule.get("apiGroups") or () for plural in rule["resources"])
            found += [
                f"webhooks[{index}].rules[{place}]: {each} is excluded from admission webhooks; this rule will have no "
                "effect"
                for each in dict.fromkeys(named)
                if each in VIRTUAL_RESOURCES
            ]
            if len(found) > MOST_WARNINGS:
                return found
    return found


def _all_warnings(new: Object, old: Object | None) -> Sequence[str]:
    return (*static_name_warnings(new, old), *unanswered_rule_warnings(new, old))


# -- defaults ---------------------------------------------------------------------------------------------------------

_WEBHOOK: Final[Mapping[str, Any]] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "timeoutSeconds": 10,
}


# -- validation -------------------------------------------------------------------------------------------------------

SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
MAX_CONDITIONS: Final = 64


def rule_with_operations(rule: Object, field: str) -> list[Cause]:
    """Check the operations, API groups, versions, resources and scope of a rule."""
    causes: list[Cause] = []
    operations = rule.get("operations") or []
    if not operations:
        causes.append(required(f"{field}.operations"))
    if len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        causes.append(invalid_value(f"{field}.operations", operations, detail))
    for index, operation in enumerate(operations):
        if operation not in enum("admissionregistration.v1.OperationType"):
            causes.append(
                not_supported(f"{field}.operations[{index}]", operation, enum("admissionregistration.v1.OperationType"))
            )
    for member, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(member) or []
        if not values:
            causes.append(required(f"{field}.{member}"))
        if len(values) > 1 and "*" in values:
            detail = f"if '*' is present, must not specify other {words}"
            causes.append(invalid_value(f"{field}.{member}", values, detail))
        if member == "apiVersions":
            causes += [required(f"{field}.{member}[{index}]") for index, value in enumerate(values) if not value]
    causes += _resources(rule.get("resources") or [], f"{field}.resources")
    return causes + one_of_if_set(rule.get("scope"), enum("admissionregistration.v1.ScopeType"), f"{field}.scope")


def _resources(resources: list[str], field: str) -> list[Cause]:
    causes = [] if resources else [required(field)]
    whole: set[str] = set()
    everywhere: set[str] = set()
    for index, each in enumerate(resources):
        path = f"{field}[{index}]"
        if not each:
            causes.append(required(path))
        name, slash, below = each.partition("/")
        if not slash:
            continue
        if name in whole:
            causes.append(invalid_value(path, each, f"if '{name}/*' is present, must not specify {each}"))
        if below in everywhere:
            causes.append(invalid_value(path, each, f"if '*/{below}' is present, must not specify {each}"))
        if below == "*":
            whole.add(name)
        if name == "*":
            everywhere.add(below)
    if len(resources) > 1 and "*/*" in resources:
        causes.append(invalid_value(field, resources, "if '*/*' is present, must not specify other resources"))
    plain = [each for each in resources if each and "/" not in each]
    if "*" in resources and plain and plain[-1] != "*":
        detail = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid_value(field, resources, detail))
    return causes


def fully_qualified_name(name: str, field: str) -> list[Cause]:
    """Check that a name is a domain of at least three parts."""
    if not name:
        return [required(field)]
    problems = names.dns_subdomain(name)
    if problems:
        return [invalid_value(field, name, ",".join(problems))]
    if name.count(".") >= 2:
        return []
    return [invalid_value(field, name, "should be a domain with at least three segments separated by dots")]


def _review_versions(versions: list[str], field: str) -> list[Cause]:
    listed = ", ".join(REVIEW_VERSIONS)
    if not versions:
        return [required(field, f"must specify one of {listed}")]
    causes: list[Cause] = []
    for index, (version, again) in enumerate(zip(versions, repeated(versions), strict=True)):
        if again:
            causes.append(invalid_value(f"{field}[{index}]", version, "duplicate version"))
            continue
        causes += wrong(f"{field}[{index}]", version, names.dns_1035_label(version))
    if not set(versions) & set(REVIEW_VERSIONS):
        causes.append(invalid_value(field, versions, f"must include at least one of {listed}"))
    return causes


def client_config(config: Object, field: str) -> list[Cause]:
    """Check that a webhook is reached either at an https URL or through a service."""
    url, service = config.get("url"), config.get("service")
    if url is not None and service is None:
        return _url(url, f"{field}.url")
    if url is not None or service is None:
        return [required(field, "exactly one of url or service is required")]
    path = f"{field}.service"
    # Kubernetes mistakes one for the other: a missing namespace is reported as a missing name.
    mistaken = (("name", "namespace"), ("namespace", "name"))
    causes = [required(f"{path}.{shown}") for shown, member in mistaken if not service.get(member)]
    port = service.get("port", 443)
    causes += [
        invalid_value(f"{path}.port", port, f"port is not valid: {problem}") for problem in names.port_number(port)
    ]
    place = service.get("path")
    return causes if place is None else causes + _service_path(place, f"{path}.path")


def _service_path(place: str, field: str) -> list[Cause]:
    if place in ("", "/"):
        return []
    if place == "//":
        return [invalid_value(field, place, "segment[0] may not be empty")]
    causes: list[Cause] = []
    if not place.startswith("/"):
        causes.append(invalid_value(field, place, "must start with a '/'"))
    segments = (place[1:-1] if place.endswith("/") else place[1:]).split("/")
    for index, segment in enumerate(segments):
        if not segment:
            causes.append(invalid_value(field, place, f"segment[{index}] may not be empty"))
        else:
            problems = names.dns_subdomain(segment)
            causes += [invalid_value(field, place, f"segment[{index}]: {problem}") for problem in problems]
    return causes


def _url(url: str, field: str) -> list[Cause]:
    from kubechronicle.api.cel.library.urls import UrlError, parse_reference

    form = "; desired format: https://host[/path]"
    try:
        parts = parse_reference(url)
    except UrlError as error:
        return [required(field, f"url must be a valid URL: {error}{form}")]
    causes: list[Cause] = []
    if parts.scheme != "https":
        causes.append(invalid_value(field, parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not parts.host:
        causes.append(invalid_value(field, parts.host, f"host must be specified{form}"))
    if parts.user is not None:
        causes.append(invalid_value(field, parts.user, "user information is not permitted in the URL"))
    fragment = parts.fragment.decode(errors="replace")
    for text, part in ((fragment, "fragments"), (parts.query, "query parameters")):
        if text:
            causes.append(invalid_value(field, text, f"{part} are not permitted in the URL"))
    return causes


def _webhook(hook: Object, field: str) -> list[Cause]:
    causes = fully_qualified_name(hook.get("name", ""), f"{field}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        causes += rule_with_operations(rule, f"{field}.rules[{index}]")
    causes += one_of_if_set(
        hook.get("failurePolicy"), enum("admissionregistration.v1.FailurePolicyType"), f"{field}.failurePolicy"
    )
    causes += one_of_if_set(
        hook.get("matchPolicy"), enum("admissionregistration.v1.MatchPolicyType"), f"{field}.matchPolicy"
    )
    effects = hook.get("sideEffects")
    if effects is None:
        causes.append(required(f"{field}.sideEffects", f"must specify one of {', '.join(SIDE_EFFECTS)}"))
    causes += one_of_if_set(effects, SIDE_EFFECTS, f"{field}.sideEffects")
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        detail = "the timeout value must be between 1 and 30 seconds"
        causes.append(invalid_value(f"{field}.timeoutSeconds", seconds, detail))
    for name in ("namespaceSelector", "objectSelector"):
        causes += label_selector(hook.get(name), f"{field}.{name}")
    causes += one_of_if_set(
        hook.get("reinvocationPolicy"),
        enum("admissionregistration.v1.ReinvocationPolicyType"),
        f"{field}.reinvocationPolicy",
    )
    causes += client_config(hook.get("clientConfig") or {}, f"{field}.clientConfig")
    return causes + match_conditions(hook.get("matchConditions") or (), f"{field}.matchConditions")


def validate_webhooks(obj: Object) -> list[Cause]:
    """Check each webhook of a configuration, and that their names differ."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, hook in enumerate(obj.get("webhooks") or ()):
        field, name = f"webhooks[{index}]", hook.get("name", "")
        causes += _webhook(hook, field)
        causes += _review_versions(hook.get("admissionReviewVersions") or [], f"{field}.admissionReviewVersions")
        if name and name in seen:
            causes.append(duplicate(f"{field}.name", name))
        seen.add(name)
    return causes


def match_conditions(conditions: Any, field: str, *, params: bool = False) -> list[Cause]:
    """Check that match conditions compile and have different names; with ``params`` they may use the policy's
    parameters."""
    causes = [too_many(field, len(conditions), MAX_CONDITIONS)] if len(conditions) > MAX_CONDITIONS else []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        path, name = f"{field}[{index}]", condition.get("name", "")
        causes += match_condition(condition.get("expression", ""), f"{path}.expression", params=params)
        causes += qualified_name(name, f"{path}.name") if name else [required(f"{path}.name")]
        if name and name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return causes


# -- table columns ----------------------------------------------------------------------------------------------------


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, since)]


_PRINTER: Final = Printer(
    (NAME, counted("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), AGE),
    _cells,
)


# -- the kinds --------------------------------------------------------------------------------------------------------

_STRATEGY: Final = Strategy(
    update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
    status=False,
    kube_finalizers=False,
    generation=True,
    generation_fields=("webhooks",),
    generation_counts_empties=True,
    unconditional_update=False,
    validate=validate_webhooks,
    with_gates={"ExcludeAdmissionWebhookVirtualResources": {"warnings": unanswered_rule_warnings}},
    without_gates={
        "ManifestBasedAdmissionControlConfig": {"warnings": _all_warnings},
        "ExcludeAdmissionWebhookVirtualResources": {"warnings": static_name_warnings},
    },
)

KINDS: Final = (
    BuiltinKind(
        resource="validatingwebhookconfigurations.admissionregistration.k8s.io",
        strategy=_STRATEGY,
        default_values={
            "admissionregistration.v1.ValidatingWebhook": _WEBHOOK,
            "admissionregistration.v1.Rule": {"scope": "*"},
            "admissionregistration.v1.RuleWithOperations": {"scope": "*"},
            "admissionregistration.v1.ServiceReference": {"port": 443},
        },
        printer=_PRINTER,
    ),
    BuiltinKind(
        resource="mutatingwebhookconfigurations.admissionregistration.k8s.io",
        strategy=_STRATEGY,
        default_values={"admissionregistration.v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "Never"}},
        printer=_PRINTER,
    ),
)

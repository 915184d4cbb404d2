"""Validation of admissionregistration.k8s.io: webhook configurations, admission policies and their bindings.

Expressions are looked at as texts only: whether they compile is not known here.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from kubechronicle.api import names
from kubechronicle.api.builtin.checks import (
    label_selector,
    one_of,
    one_of_if_set,
    qualified_name,
    wrong,
)
from kubechronicle.api.builtin.validation_conditions import conditions
from kubechronicle.api.field_errors import Cause, duplicate, invalid_value, not_supported, required, too_many

Object = dict[str, Any]

SCOPES: Final = ("*", "Cluster", "Namespaced")
OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
FAILURE_POLICIES: Final = ("Fail", "Ignore")
MATCH_POLICIES: Final = ("Equivalent", "Exact")
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
REINVOCATIONS: Final = ("IfNeeded", "Never")
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
ACTIONS: Final = ("Audit", "Deny", "Warn")
REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
PATCH_TYPES: Final = ("ApplyConfiguration", "JSONPatch")
MAX_CONDITIONS: Final = 64
MAX_AUDIT_ANNOTATIONS: Final = 20


def _rule(rule: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    operations = rule.get("operations") or []
    if not operations:
        causes.append(required(f"{field}.operations"))
    if len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        causes.append(invalid_value(f"{field}.operations", operations, detail))
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            causes.append(not_supported(f"{field}.operations[{index}]", operation, OPERATIONS))
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
    return causes + one_of_if_set(rule.get("scope"), SCOPES, f"{field}.scope")


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
    plain = [each for each in resources if "/" not in each]
    if "*" in resources and plain and plain[-1] != "*":
        detail = "if '*' is present, must not specify other resources without subresources"
        causes.append(invalid_value(field, resources, detail))
    return causes


# -- webhooks ---------------------------------------------------------------------------------------------------------


def fully_qualified_name(name: str, field: str) -> list[Cause]:
    """A domain of three parts at least."""
    if not name:
        return [required(field)]
    causes = wrong(field, name, names.dns_subdomain(name))
    if not causes and name.count(".") < 2:
        causes.append(invalid_value(field, name, "should be a domain with at least three segments separated by dots"))
    return causes


def _review_versions(versions: list[str], field: str) -> list[Cause]:
    listed = ", ".join(REVIEW_VERSIONS)
    if not versions:
        return [required(field, f"must specify one of {listed}")]
    causes: list[Cause] = []
    for index, version in enumerate(versions):
        if version in versions[:index]:
            causes.append(invalid_value(f"{field}[{index}]", version, "duplicate version"))
            continue
        causes += wrong(f"{field}[{index}]", version, names.dns_1035_label(version))
    if not set(versions) & set(REVIEW_VERSIONS):
        causes.append(invalid_value(field, versions, f"must include at least one of {listed}"))
    return causes


def client_config(config: Object, field: str) -> list[Cause]:
    """Where a webhook is: at a URL or behind a service."""
    url, service = config.get("url"), config.get("service")
    if url is not None and service is None:
        return _url(url, f"{field}.url")
    if url is not None or service is None:
        return [required(field, "exactly one of url or service is required")]
    path = f"{field}.service"
    causes = [required(f"{path}.{name}") for name in ("name", "namespace") if not service.get(name)]
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
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
    except ValueError as error:
        return [required(field, f"url must be a valid URL: {error}{form}")]
    causes: list[Cause] = []
    if parts.scheme != "https":
        causes.append(invalid_value(field, parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not parts.netloc:
        causes.append(invalid_value(field, parts.netloc, f"host must be specified{form}"))
    if "@" in parts.netloc:
        detail = "user information is not permitted in the URL"
        causes.append(invalid_value(field, parts.netloc.rpartition("@")[0], detail))
    for text, what in ((parts.fragment, "fragments"), (parts.query, "query parameters")):
        if text:
            causes.append(invalid_value(field, text, f"{what} are not permitted in the URL"))
    return causes


def _webhook(hook: Object, field: str) -> list[Cause]:
    causes = fully_qualified_name(hook.get("name", ""), f"{field}.name")
    for index, rule in enumerate(hook.get("rules") or ()):
        causes += _rule(rule, f"{field}.rules[{index}]")
    causes += one_of_if_set(hook.get("failurePolicy"), FAILURE_POLICIES, f"{field}.failurePolicy")
    causes += one_of_if_set(hook.get("matchPolicy"), MATCH_POLICIES, f"{field}.matchPolicy")
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
    causes += one_of_if_set(hook.get("reinvocationPolicy"), REINVOCATIONS, f"{field}.reinvocationPolicy")
    causes += client_config(hook.get("clientConfig") or {}, f"{field}.clientConfig")
    return causes + _match_conditions(hook.get("matchConditions") or (), f"{field}.matchConditions")


def webhooks(obj: Object) -> list[Cause]:
    """Webhooks of one configuration have different names."""
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


def _match_conditions(conditions: Any, field: str) -> list[Cause]:
    causes = [too_many(field, len(conditions), MAX_CONDITIONS)] if len(conditions) > MAX_CONDITIONS else []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        path, name = f"{field}[{index}]", condition.get("name", "")
        if not condition.get("expression", "").strip():
            causes.append(required(f"{path}.expression"))
        causes += qualified_name(name, f"{path}.name") if name else [required(f"{path}.name")]
        if name and name in seen:
            causes.append(duplicate(f"{path}.name", name))
        seen.add(name)
    return causes


# -- policies ---------------------------------------------------------------------------------------------------------


def _match_resources(match: Object, field: str) -> list[Cause]:
    causes = one_of(match.get("matchPolicy", ""), MATCH_POLICIES, f"{field}.matchPolicy")
    for name in ("namespaceSelector", "objectSelector"):
        causes += label_selector(match.get(name), f"{field}.{name}")
    for group in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(group) or ()):
            path, named = f"{field}.{group}[{index}]", rule.get("resourceNames") or []
            for position, name in enumerate(named):
                causes += wrong(f"{path}.resourceNames[{position}]", name, names.path_segment(name))
                if name in named[:position]:
                    causes.append(duplicate(f"{path}.resourceNames[{position}]", name))
            causes += _rule(rule, path)
    return causes


def _param_kind(kind: Object, field: str) -> list[Cause]:
    version, path = kind.get("apiVersion", ""), f"{field}.apiVersion"
    causes: list[Cause] = []
    if not version:
        causes.append(required(path))
    elif version.count("/") > 1:
        causes.append(invalid_value(path, version, f"unexpected GroupVersion string: {version}"))
    else:
        group, _, number = version.rpartition("/")
        problems = names.dns_subdomain(group) if group else []
        if problems:
            causes.append(invalid_value(path, group, ",".join(problems)))
        problems = names.dns_1035_label(number) if number else ["version must be specified"]
        if problems:
            causes.append(invalid_value(path, number or version, ",".join(problems)))
    name, path = kind.get("kind", ""), f"{field}.kind"
    problems = names.dns_1035_label(name.lower())
    if not name:
        causes.append(required(path))
    elif problems:
        detail = "may have mixed case, but should otherwise match: " + ",".join(problems)
        causes.append(invalid_value(path, name, detail))
    return causes


def _policy(spec: Object) -> list[Cause]:
    causes = one_of(spec.get("failurePolicy", ""), FAILURE_POLICIES, "spec.failurePolicy")
    if spec.get("paramKind") is not None:
        causes += _param_kind(spec["paramKind"], "spec.paramKind")
    match, field = spec.get("matchConstraints"), "spec.matchConstraints"
    if match is None:
        causes.append(required(field))
    else:
        causes += _match_resources(match, field)
        if not match.get("resourceRules"):
            causes.append(required(f"{field}.resourceRules"))
    causes += _match_conditions(spec.get("matchConditions") or (), "spec.matchConditions")
    for index, variable in enumerate(spec.get("variables") or ()):
        for member in ("name", "expression"):
            if not variable.get(member, "").strip():
                causes.append(required(f"spec.variables[{index}].{member}", f"{member} is not specified"))
    return causes


def validating_policy(obj: Object) -> list[Cause]:
    """What a policy is about, and what it demands or notes."""
    spec = obj["spec"]
    causes = _policy(spec)
    validations, notes = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not notes:
        detail = "validations or auditAnnotations must contain at least one item"
        return [*causes, required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for index, validation in enumerate(validations):
        field, message = f"spec.validations[{index}]", validation.get("message", "")
        if not validation.get("expression", "").strip():
            causes.append(required(f"{field}.expression", "expression is not specified"))
        expression = validation.get("messageExpression", "")
        if expression and not expression.strip():
            detail = "must be non-empty if specified"
            causes.append(invalid_value(f"{field}.messageExpression", expression, detail))
        if message and not message.strip():
            causes.append(invalid_value(f"{field}.message", message, "message must be non-empty if specified"))
        elif "\n" in message.strip() or "\r" in message.strip():
            causes.append(invalid_value(f"{field}.message", message, "message must not contain line breaks"))
        causes += one_of_if_set(validation.get("reason"), REASONS, f"{field}.reason")
    if len(notes) > MAX_AUDIT_ANNOTATIONS:
        detail = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        causes.append(invalid_value("spec.auditAnnotations", list(notes), detail))
    seen: set[str] = set()
    for index, note in enumerate(notes):
        field, key = f"spec.auditAnnotations[{index}]", note.get("key", "")
        causes += qualified_name(f"{obj['metadata'].get('name', '')}/{key}", f"{field}.key")
        if not note.get("valueExpression", "").strip():
            causes.append(required(f"{field}.valueExpression", "valueExpression is not specified"))
        if key in seen:
            causes.append(duplicate(f"{field}.key", key))
        seen.add(key)
    return causes


def mutating_policy(obj: Object) -> list[Cause]:
    """What a policy is about, and what it changes."""
    spec = obj["spec"]
    causes = _policy(spec)
    mutations = spec.get("mutations") or ()
    if not mutations:
        causes.append(required("spec.mutations", "mutations must contain at least one item"))
    forms = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
    for index, mutation in enumerate(mutations):
        field, kind = f"spec.mutations[{index}]", mutation.get("patchType", "")
        if kind not in forms:
            causes += one_of(kind, PATCH_TYPES, f"{field}.patchType")
            continue
        for other, member in forms.items():
            if other == kind and mutation.get(member) is None:
                causes.append(required(f"{field}.{member}", f"must be specified when patchType is {kind}"))
            elif other != kind and mutation.get(member) is not None:
                detail = f"must not be specified when patchType is {kind}"
                causes.append(invalid_value(f"{field}.{member}", f"{{{member}}}", detail))
    return causes + one_of(spec.get("reinvocationPolicy", ""), REINVOCATIONS, "spec.reinvocationPolicy")


def _binding(spec: Object) -> list[Cause]:
    policy = spec.get("policyName", "")
    causes = wrong("spec.policyName", policy, names.dns_subdomain(policy)) if policy else [required("spec.policyName")]
    reference, field = spec.get("paramRef"), "spec.paramRef"
    if reference is not None:
        name, selector = reference.get("name", ""), reference.get("selector")
        if name:
            causes += wrong(f"{field}.name", name, names.path_segment(name))
            if selector is not None:
                detail = "name and selector are mutually exclusive"
                causes.append(Cause("FieldValueForbidden", f"Forbidden: {detail}", f"{field}.name"))
        elif selector is None:
            causes.append(required(field, "one of name or selector must be specified"))
        causes += label_selector(selector, f"{field}.selector")
        action = reference.get("parameterNotFoundAction", "")
        causes += one_of(action, ("Allow", "Deny"), f"{field}.parameterNotFoundAction")
    if spec.get("matchResources") is not None:
        causes += _match_resources(spec["matchResources"], "spec.matchResources")
    return causes


def validating_binding(obj: Object) -> list[Cause]:
    """Where a policy holds, and what becomes of what it refuses."""
    spec, field = obj["spec"], "spec.validationActions"
    causes = _binding(spec)
    actions = spec.get("validationActions") or []
    for index, action in enumerate(actions):
        if action not in ACTIONS:
            causes.append(not_supported(f"{field}[{index}]", action, ACTIONS))
        if action in actions[:index]:
            causes.append(duplicate(f"{field}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        causes.append(invalid_value(field, actions, detail))
    if not actions:
        causes.append(required(field, "at least one validation action is required"))
    return causes


def mutating_binding(obj: Object) -> list[Cause]:
    """Where a policy holds."""
    return _binding(obj["spec"])


def policy_status(new: Object, old: Object) -> list[Cause]:
    """Warnings of type checking say what they are about; conditions are whole."""
    status, field = new.get("status") or {}, "status.typeChecking.expressionWarnings"
    causes: list[Cause] = []
    for index, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
        if not warning.get("warning"):
            causes.append(required(f"{field}[{index}].warning"))
        if not warning.get("fieldRef", "").strip():
            causes.append(required(f"{field}[{index}].fieldRef"))
    return causes + conditions(status.get("conditions") or (), "status.conditions")

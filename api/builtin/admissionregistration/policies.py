"""ValidatingAdmissionPolicy and MutatingAdmissionPolicy, and their bindings.

Source: Kubernetes' ``registry/admissionregistration``, ``apis/admissionregistration`` and
``pkg/printers/internalversion``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from kubechronicle.api.builtin.admissionregistration.webhooks import (
    match_conditions,
    rule_with_operations,
    static_name_warnings,
)
from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import (
    conditions,
    label_selector,
    one_of,
    one_of_if_set,
    qualified_name,
    repeated,
    wrong,
)
from kubechronicle.api.builtin.common.expressions import PolicyExpressions
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Cells, Column, Printer, age_of, at, counted, name_of
from kubechronicle.api.errors.field_errors import Cause, duplicate, forbidden, invalid_value, not_supported, required
from kubechronicle.api.kinds.reading import enum
from kubechronicle.api.strategy.strategy import Check, Strategy, Validate
from kubechronicle.api.values import json_path, names
from kubechronicle.api.values.objects import Object, ReadOnlyObject

# -- preparation ------------------------------------------------------------------------------------------------------


def _policy_strategy(validate: Validate) -> Strategy:
    return Strategy(
        update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
        status=False,
        kube_finalizers=False,
        generation=True,
        unconditional_update=False,
        validate=validate,
        warnings=static_name_warnings,
    )


# -- validation -------------------------------------------------------------------------------------------------------

REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
MUTABLE: Final = ("*", "CONNECT", "CREATE", "UPDATE")
MAX_AUDIT_ANNOTATIONS: Final = 20
_FORMS: Final = {"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*\Z")
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
"""CEL keywords, which cannot be names of variables."""


def _chosen(value: str | None, choices: Sequence[str], field: str) -> list[Cause]:
    """Require a value that is one of the choices; "" is not a choice."""
    if value is None:
        return [required(field)]
    return [] if value in choices else [not_supported(field, value, choices)]


def _match_resources(match: Object, field: str) -> list[Cause]:
    causes = _chosen(match.get("matchPolicy"), enum("admissionregistration.v1.MatchPolicyType"), f"{field}.matchPolicy")
    for name in ("namespaceSelector", "objectSelector"):
        path, selector = f"{field}.{name}", match.get(name)
        causes += [required(path)] if selector is None else label_selector(selector, path)
    for group in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(group) or ()):
            path, named = f"{field}.{group}[{index}]", rule.get("resourceNames") or []
            for position, (name, again) in enumerate(zip(named, repeated(named), strict=True)):
                causes += wrong(f"{path}.resourceNames[{position}]", name, names.path_segment(name))
                if again:
                    causes.append(duplicate(f"{path}.resourceNames[{position}]", name))
            causes += rule_with_operations(rule, path)
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


def _mutable(match: Object, field: str) -> list[Cause]:
    """Reject DELETE in a mutating policy: a deleted object cannot be changed."""
    return [
        not_supported(f"{field}.resourceRules.operations", operation, MUTABLE)
        for rule in match.get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in MUTABLE
    ]


def _policy(spec: Object, expressions: PolicyExpressions, *, mutates: bool = False) -> list[Cause]:
    causes = _chosen(
        spec.get("failurePolicy"), enum("admissionregistration.v1.FailurePolicyType"), "spec.failurePolicy"
    )
    if spec.get("paramKind") is not None:
        causes += _param_kind(spec["paramKind"], "spec.paramKind")
    match, field = spec.get("matchConstraints"), "spec.matchConstraints"
    if match is None:
        causes.append(required(field))
    else:
        causes += _match_resources(match, field)
        if not match.get("resourceRules"):
            causes.append(required(f"{field}.resourceRules"))
        causes += _mutable(match, field) if mutates else []
    has_parameters = spec.get("paramKind") is not None
    causes += match_conditions(spec.get("matchConditions") or (), "spec.matchConditions", params=has_parameters)
    for index, variable in enumerate(spec.get("variables") or ()):
        path, name = f"spec.variables[{index}]", variable.get("name", "")
        if not name.strip():
            causes.append(required(f"{path}.name", "name is not specified"))
        elif not _IDENTIFIER.match(name) or name in _RESERVED:
            causes.append(invalid_value(f"{path}.name", name, "must be a valid CEL identifier"))
        causes += expressions.variable(name, variable.get("expression", ""), f"{path}.expression")
    return causes


def validate_validating_policy(obj: Object) -> list[Cause]:
    """Check the match constraints, variables, validations and audit annotations of a ValidatingAdmissionPolicy."""
    spec = obj["spec"]
    expressions = PolicyExpressions(spec)
    causes = _policy(spec, expressions)
    validations, notes = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not notes:
        detail = "validations or auditAnnotations must contain at least one item"
        return [*causes, required("spec.validations", detail), required("spec.auditAnnotations", detail)]
    for index, validation in enumerate(validations):
        field, message = f"spec.validations[{index}]", validation.get("message", "")
        causes += expressions.validation(validation.get("expression", ""), f"{field}.expression")
        causes += expressions.message(validation.get("messageExpression", ""), f"{field}.messageExpression")
        if message and not message.strip():
            causes.append(invalid_value(f"{field}.message", message, "must be non-empty if specified"))
        elif "\n" in message.strip() or "\r" in message.strip():
            causes.append(invalid_value(f"{field}.message", message, "must not contain line breaks"))
        causes += one_of_if_set(validation.get("reason"), REASONS, f"{field}.reason")
    if len(notes) > MAX_AUDIT_ANNOTATIONS:
        detail = f"must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"
        shown = [{"Key": note.get("key", ""), "ValueExpression": note.get("valueExpression", "")} for note in notes]
        causes.append(invalid_value("spec.auditAnnotations", shown, detail))
    seen: set[str] = set()
    for index, note in enumerate(notes):
        field, key = f"spec.auditAnnotations[{index}]", note.get("key", "")
        if name := obj["metadata"].get("name", ""):
            causes += qualified_name(f"{name}/{key}", f"{field}.key")
        else:
            causes.append(invalid_value(f"{field}.key", key, "requires metadata.name be non-empty"))
        causes += expressions.annotation(note.get("valueExpression", ""), f"{field}.valueExpression")
        if key in seen:
            causes.append(duplicate(f"{field}.key", key))
        seen.add(key)
    return causes


def validate_mutating_policy(obj: Object) -> list[Cause]:
    """Check the match constraints, variables and mutations of a MutatingAdmissionPolicy."""
    spec = obj["spec"]
    expressions = PolicyExpressions(spec)
    causes = _policy(spec, expressions, mutates=True)
    mutations = spec.get("mutations") or ()
    if not mutations:
        causes.append(required("spec.mutations", "mutations must contain at least one item"))
    for index, mutation in enumerate(mutations):
        field, kind = f"spec.mutations[{index}]", mutation.get("patchType", "")
        if kind not in _FORMS:
            causes += one_of(kind, enum("admissionregistration.v1.PatchType"), f"{field}.patchType")
            continue
        for other, member in sorted(_FORMS.items(), key=lambda form: form[0] != kind):
            patch = mutation.get(member)
            if other == kind and patch is None:
                causes.append(required(f"{field}.{member}", f"must be specified when patchType is {kind}"))
            elif other == kind:
                text = patch.get("expression", "")
                causes += expressions.patch(text, f"{field}.{member}.expression", json=kind == "JSONPatch")
            elif other != kind and mutation.get(member) is not None:
                detail = f"must not be specified when patchType is {kind}"
                causes.append(invalid_value(f"{field}.{member}", f"{{{member}}}", detail))
    return causes + one_of(
        spec.get("reinvocationPolicy", ""),
        enum("admissionregistration.v1.ReinvocationPolicyType"),
        "spec.reinvocationPolicy",
    )


def _binding(spec: Object) -> list[Cause]:
    policy = spec.get("policyName", "")
    causes = wrong("spec.policyName", policy, names.dns_subdomain(policy)) if policy else []
    if spec.get("paramRef") is not None:
        causes += _parameters(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        causes += _match_resources(spec["matchResources"], "spec.matchResources")
    return causes


def _parameters(reference: Object, field: str) -> list[Cause]:
    name, selector, causes = reference.get("name", ""), reference.get("selector"), list[Cause]()
    both = "name and selector are mutually exclusive"
    if name:
        causes += wrong(f"{field}.name", name, names.path_segment(name))
        if selector is not None:
            causes.append(forbidden(f"{field}.name", both))
    if selector is not None:
        causes += label_selector(selector, f"{field}.selector")
        if name:
            causes.append(forbidden(f"{field}.selector", both))
    if not name and selector is None:
        causes.append(required(field, "one of name or selector must be specified"))
    action = reference.get("parameterNotFoundAction", "")
    return causes + one_of(action, ("Deny", "Allow"), f"{field}.parameterNotFoundAction")


def validate_validating_binding(obj: Object) -> list[Cause]:
    """Check the policy name, parameters, matched resources and actions of a ValidatingAdmissionPolicyBinding."""
    spec, field = obj["spec"], "spec.validationActions"
    causes = _binding(spec)
    actions = spec.get("validationActions") or []
    for index, (action, again) in enumerate(zip(actions, repeated(actions), strict=True)):
        if action not in enum("admissionregistration.v1.ValidationAction"):
            causes.append(not_supported(f"{field}[{index}]", action, enum("admissionregistration.v1.ValidationAction")))
        if again:
            causes.append(duplicate(f"{field}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        causes.append(invalid_value(field, actions, detail))
    return causes


def validate_mutating_binding(obj: Object) -> list[Cause]:
    """Check the policy name, parameters and matched resources of a MutatingAdmissionPolicyBinding."""
    spec, match = obj["spec"], obj["spec"].get("matchResources")
    causes = ([] if spec.get("policyName") else [required("spec.policyName")]) + _binding(spec)
    return causes if match is None else causes + _mutable(match, "spec.matchResources")


def validate_policy_status(new: Object, old: Object) -> list[Cause]:
    """Check that type checking warnings name a field and a text, and that conditions are complete."""
    status, field = new.get("status") or {}, "status.typeChecking.expressionWarnings"
    causes: list[Cause] = []
    for index, warning in enumerate((status.get("typeChecking") or {}).get("expressionWarnings") or ()):
        if not warning.get("warning"):
            causes.append(required(f"{field}[{index}].warning"))
        reference = warning.get("fieldRef", "").strip()
        if not reference:
            causes.append(required(f"{field}[{index}].fieldRef"))
        elif problem := json_path.problem(f"{{{reference}}}"):
            causes.append(invalid_value(f"{field}[{index}].fieldRef", reference, f"invalid JSONPath: {problem}"))
    return causes + conditions(status.get("conditions") or (), "status.conditions")


# -- table columns ----------------------------------------------------------------------------------------------------


def _policy_cells(rules: str) -> Cells:
    def cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
        kind = at(obj, "spec", "paramKind")
        text = "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
        return [name_of(obj), len(at(obj, "spec", rules, default=())), text, age_of(obj, since)]

    return cells


def _selector_struct(selector: ReadOnlyObject) -> str:
    """Return a LabelSelector as its generated Go String method prints it."""
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{term.get('key', '')},Operator:{term.get('operator', '')},"
        f"Values:[{' '.join(term.get('values') or ())}],}},"
        for term in selector.get("matchExpressions") or ()
    )
    listed = f"[]LabelSelectorRequirement{{{expressions}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:{listed},}}"


def _param_ref(ref: ReadOnlyObject | None) -> str:
    if ref is not None and ref.get("name"):
        return f"{ref.get('namespace') or '*'}/{ref['name']}"
    if ref is not None and ref.get("selector") is not None:
        return _selector_struct(ref["selector"])
    return "<unset>"


def _binding_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [name_of(obj), spec.get("policyName") or "", _param_ref(spec.get("paramRef")), age_of(obj, since)]


_PARAM_KIND: Final = Column(
    "ParamKind", text="ParamKind specifies the kind of resources used to parameterize this policy"
)
_BINDING_PRINTER: Final = Printer(
    (
        NAME,
        Column("PolicyName", text="PolicyName indicates the policy definition which the policy binding binded to"),
        Column("ParamRef", text="ParamRef indicates the param resource which sets the configuration param"),
        AGE,
    ),
    _binding_cells,
)


# -- the kinds --------------------------------------------------------------------------------------------------------

KINDS: Final = (
    BuiltinKind(
        resource="validatingadmissionpolicies.admissionregistration.k8s.io",
        strategy=Strategy(
            update_checks=(Check.CHANGE, Check.METADATA, Check.OBJECT),
            kube_finalizers=False,
            generation=True,
            unconditional_update=False,
            validate=validate_validating_policy,
            warnings=static_name_warnings,
            subresources=only_status(validate_policy_status, checks=(Check.CHANGE,)),
        ),
        default_values={
            "admissionregistration.v1.NamedRuleWithOperations": {"scope": "*"},
            "admissionregistration.v1.MatchResources": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
            },
            "admissionregistration.v1.ValidatingAdmissionPolicySpec": {"failurePolicy": "Fail"},
        },
        printer=Printer(
            (
                NAME,
                counted(
                    "Validations", "Validations indicates the number of validation rules defined in this configuration"
                ),
                _PARAM_KIND,
                AGE,
            ),
            _policy_cells("validations"),
        ),
    ),
    BuiltinKind(
        resource="validatingadmissionpolicybindings.admissionregistration.k8s.io",
        strategy=_policy_strategy(validate_validating_binding),
        printer=_BINDING_PRINTER,
    ),
    BuiltinKind(
        resource="mutatingadmissionpolicies.admissionregistration.k8s.io",
        strategy=_policy_strategy(validate_mutating_policy),
        default_values={"admissionregistration.v1.MutatingAdmissionPolicySpec": {"failurePolicy": "Fail"}},
        printer=Printer(
            (
                NAME,
                counted("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
                _PARAM_KIND,
                AGE,
            ),
            _policy_cells("mutations"),
        ),
    ),
    BuiltinKind(
        resource="mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        strategy=_policy_strategy(validate_mutating_binding),
        default_values={"admissionregistration.v1alpha1.ParamRef": {"parameterNotFoundAction": "Deny"}},
        printer=_BINDING_PRINTER,
    ),
)

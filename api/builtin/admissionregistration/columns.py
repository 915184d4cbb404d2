"""Table columns of the kinds of admissionregistration.k8s.io.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.printer import AGE, NAME, Cells, Column, Printer, age_of, at, counted, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _webhooks(obj: ReadOnlyObject, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, since)]


def _policy(rules: str) -> Cells:
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


def _policy_binding(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [name_of(obj), spec.get("policyName") or "", _param_ref(spec.get("paramRef")), age_of(obj, since)]


_WEBHOOKS: Final = Printer(
    (NAME, counted("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), AGE),
    _webhooks,
)
_PARAM_KIND: Final = Column(
    "ParamKind", text="ParamKind specifies the kind of resources used to parameterize this policy"
)
_POLICY_BINDING: Final = Printer(
    (
        NAME,
        Column("PolicyName", text="PolicyName indicates the policy definition which the policy binding binded to"),
        Column("ParamRef", text="ParamRef indicates the param resource which sets the configuration param"),
        AGE,
    ),
    _policy_binding,
)

PRINTERS: Final[Mapping[str, Printer]] = {
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": Printer(
        (
            NAME,
            counted(
                "Validations", "Validations indicates the number of validation rules defined in this configuration"
            ),
            _PARAM_KIND,
            AGE,
        ),
        _policy("validations"),
    ),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": Printer(
        (
            NAME,
            counted("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
            _PARAM_KIND,
            AGE,
        ),
        _policy("mutations"),
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDING,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDING,
}

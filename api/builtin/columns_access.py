"""How the kinds that govern the server itself are shown: RBAC, certificates, admission, aggregation, flow control.

Source: Kubernetes' ``pkg/printers/internalversion``, and kube-aggregator for APIServices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import Since, condition, human_duration
from kubechronicle.api.builtin.printer import (
    AGE,
    NAME,
    Cells,
    Column,
    Object,
    Printer,
    age_of,
    at,
    counted,
    field,
    name_of,
    wide,
)


def _binding(obj: Object, since: Since) -> list[Any]:
    role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in subjects:
        kind, name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        by_kind.setdefault(kind, []).append(name)
    listed = (", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount"))
    return [name_of(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age_of(obj, since), *listed]


def _signing_status(obj: Object) -> str:
    given = {found.get("type") for found in at(obj, "status", "conditions", default=())}
    word = "Denied" if "Denied" in given else "Approved" if "Approved" in given else "Pending"
    failed = ",Failed" if "Failed" in given else ""
    return word + failed + (",Issued" if at(obj, "status", "certificate") else "")


def _signing_request(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, since),
        spec.get("signerName") or "<none>",
        spec.get("username") or "",
        "<none>" if seconds is None else human_duration(seconds),
        _signing_status(obj),
    ]


# -- admission, aggregation, flow control -----------------------------------------------------------------------------


def _webhooks(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), len(obj.get("webhooks") or ()), age_of(obj, since)]


def _policy(rules: str) -> Cells:
    def cells(obj: Object, since: Since) -> list[Any]:
        kind = at(obj, "spec", "paramKind")
        text = "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
        return [name_of(obj), len(at(obj, "spec", rules, default=())), text, age_of(obj, since)]

    return cells


def _selector_struct(selector: Object) -> str:
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


def _param_ref(ref: Object | None) -> str:
    if ref is not None and ref.get("name"):
        return f"{ref.get('namespace') or '*'}/{ref['name']}"
    if ref is not None and ref.get("selector") is not None:
        return _selector_struct(ref["selector"])
    return "<unset>"


def _policy_binding(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [name_of(obj), spec.get("policyName") or "", _param_ref(spec.get("paramRef")), age_of(obj, since)]


def _api_service(obj: Object, since: Since) -> list[Any]:
    service = at(obj, "spec", "service")
    available = condition(at(obj, "status", "conditions"), "Available")
    word = "Unknown"
    if available is not None:
        word, reason = available.get("status") or "", available.get("reason") or ""
        if word != "True" and reason:
            word = f"{word} ({reason})"
    local = service is None
    return [
        name_of(obj),
        "Local" if local else f"{service.get('namespace', '')}/{service.get('name', '')}",
        word,
        age_of(obj, since),
    ]


def _flow_schema(obj: Object, since: Since) -> list[Any]:
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


def _flow_schema_order(obj: Object) -> tuple[int, str]:
    """Flow schemas are listed in the order they are tried."""
    return at(obj, "spec", "matchingPrecedence", default=0), name_of(obj)


def _priority_level(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    limited = spec.get("limited") or {}
    queuing = at(limited, "limitResponse", "queuing", default={})
    return [
        name_of(obj),
        spec.get("type") or "",
        limited.get("nominalConcurrencyShares", "<none>"),
        *(queuing.get(name, "<none>") for name in ("queues", "handSize", "queueLengthLimit")),
        age_of(obj, since),
    ]


def _subjects(where: str) -> tuple[Column, ...]:
    return tuple(wide(name, f"{name} in the {where}") for name in ("Users", "Groups", "ServiceAccounts"))


_ROLE_TEXT: Final = " If the RoleRef cannot be resolved, the Authorizer must return an error."
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
        Column("ParamRef", text="ParamRef indicates the param resource which sets the configration param"),
        AGE,
    ),
    _policy_binding,
)
_SIGNER_TEXT: Final = (
    "Requested signer for the request. It is a qualified name in the form: `scope-hostname.io/name`. If empty, it will "
    "be defaulted:\n"
    " 1. If it's a kubelet client certificate, it is assigned\n"
    '    "kubernetes.io/kube-apiserver-client-kubelet".\n'
    " 2. If it's a kubelet serving certificate, it is assigned\n"
    '    "kubernetes.io/kubelet-serving".\n'
    ' 3. Otherwise, it is assigned "kubernetes.io/legacy-unknown".\n'
    "Distribution of trust for signers happens out of band. You can select on this field using `spec.signerName`."
)
_CSR: Final = "certificates.v1.CertificateSigningRequestSpec"
_FLOW: Final = "flowcontrol.v1"

PRINTERS: Final[Mapping[str, Printer]] = {
    "rolebindings.rbac.authorization.k8s.io": Printer(
        (
            NAME,
            Column(
                "Role",
                text="RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace."
                + _ROLE_TEXT,
            ),
            AGE,
            *_subjects("roleBinding"),
        ),
        _binding,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": Printer(
        (
            NAME,
            Column("Role", text="RoleRef can only reference a ClusterRole in the global namespace." + _ROLE_TEXT),
            AGE,
            *_subjects("clusterRoleBinding"),
        ),
        _binding,
    ),
    "certificatesigningrequests.certificates.k8s.io": Printer(
        (
            NAME,
            AGE,
            Column("SignerName", text=_SIGNER_TEXT),
            Column("Requestor", text="Base64-encoded PKCS#10 CSR data"),
            field("RequestedDuration", f"{_CSR}.expirationSeconds"),
            Column("Condition", text="Conditions applied to the request, such as approval or denial."),
        ),
        _signing_request,
    ),
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
    "apiservices.apiregistration.k8s.io": Printer(
        (
            NAME,
            Column("Service", text="The reference to the service that hosts this API endpoint."),
            Column("Available", text="Whether this service is available."),
            AGE,
        ),
        _api_service,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": Printer(
        (
            NAME,
            field("PriorityLevel", f"{_FLOW}.PriorityLevelConfigurationReference.name"),
            field("MatchingPrecedence", f"{_FLOW}.FlowSchemaSpec.matchingPrecedence"),
            field("DistinguisherMethod", f"{_FLOW}.FlowSchemaSpec.distinguisherMethod"),
            AGE,
            Column("MissingPL", text="references a broken or non-existent PriorityLevelConfiguration"),
        ),
        _flow_schema,
        order=_flow_schema_order,
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Printer(
        (
            NAME,
            field("Type", f"{_FLOW}.PriorityLevelConfigurationSpec.type"),
            field("NominalConcurrencyShares", f"{_FLOW}.LimitedPriorityLevelConfiguration.nominalConcurrencyShares"),
            field("Queues", f"{_FLOW}.QueuingConfiguration.queues"),
            field("HandSize", f"{_FLOW}.QueuingConfiguration.handSize"),
            field("QueueLengthLimit", f"{_FLOW}.QueuingConfiguration.queueLengthLimit"),
            AGE,
        ),
        _priority_level,
    ),
}
"""Storage resource -> printer."""

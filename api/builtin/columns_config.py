"""How the remaining kinds are shown: networking, storage, RBAC, certificates, admission, flow control, devices, …

Source: Kubernetes' ``pkg/printers/internalversion``, and kube-aggregator for APIServices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubechronicle.api.builtin.cell_text import Since, condition, human_duration, joined, selector_text
from kubechronicle.api.builtin.columns_core import ingress_points
from kubechronicle.api.builtin.printer import AGE, NAME, Column, Object, Printer, age_of, at, field, name_of, wide

LIST_SHOWN: Final = 3


def _aged(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), age_of(obj, since)]


# -- networking and discovery -----------------------------------------------------------------------------------------


def _hosts(rules: Sequence[Object]) -> str:
    shown = [rule["host"] for rule in rules if rule.get("host")][:LIST_SHOWN]
    if not shown:
        return "*"
    more = len(rules) - LIST_SHOWN
    # Rules without a host count among those not shown only when three hosts are.
    return ",".join(shown) + (f" + {more} more..." if more > 0 and len(shown) == LIST_SHOWN else "")


def _ingress(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("ingressClassName") or "<none>",
        _hosts(spec.get("rules") or ()),
        ingress_points(obj.get("status")),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, since),
    ]


def _ingress_class(obj: Object, since: Since) -> list[Any]:
    parameters = at(obj, "spec", "parameters")
    text = "<none>"
    if parameters is not None:
        group = parameters.get("apiGroup")
        text = f"{parameters.get('kind', '')}{f'.{group}' if group else ''}/{parameters.get('name', '')}"
    return [name_of(obj), at(obj, "spec", "controller", default=""), text, age_of(obj, since)]


def _network_policy(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), selector_text(at(obj, "spec", "podSelector")), age_of(obj, since)]


def _service_cidr(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), ",".join(at(obj, "spec", "cidrs", default=())), age_of(obj, since)]


def _ip_address(obj: Object, since: Since) -> list[Any]:
    parent = at(obj, "spec", "parentRef")
    text = "<none>"
    if parent is not None:
        resource = ".".join(filter(None, (parent.get("resource"), parent.get("group")))).lower()
        text = "/".join(filter(None, (resource, parent.get("namespace"), parent.get("name"))))
    # The age has no column of its own, and is there all the same.
    return [name_of(obj), text, age_of(obj, since)]


def _slice_port(port: Object) -> str:
    number = port.get("port")
    return str(number) if number is not None else port.get("name") or "*"


def _endpoint_slice(obj: Object, since: Since) -> list[Any]:
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType") or "",
        joined([_slice_port(port) for port in obj.get("ports") or ()], LIST_SHOWN, empty="<unset>"),
        joined(addresses, LIST_SHOWN, empty="<unset>"),
        age_of(obj, since),
    ]


# -- storage ----------------------------------------------------------------------------------------------------------

_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_DEFAULT_ATTRIBUTES_CLASS: Final = ("volumeattributesclass.alpha.kubernetes.io/is-default-class",)


def _marked_default(obj: Object, annotations: Sequence[str]) -> str:
    given = obj["metadata"].get("annotations") or {}
    return f"{name_of(obj)} (default)" if any(given.get(key) == "true" for key in annotations) else name_of(obj)


def _storage_class(obj: Object, since: Since) -> list[Any]:
    return [
        _marked_default(obj, _DEFAULT_CLASS),
        obj.get("provisioner") or "",
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, since),
    ]


def _attributes_class(obj: Object, since: Since) -> list[Any]:
    return [_marked_default(obj, _DEFAULT_ATTRIBUTES_CLASS), obj.get("driverName") or "", age_of(obj, since)]


def _volume_attachment(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher") or "",
        at(spec, "source", "persistentVolumeName", default=""),
        spec.get("nodeName") or "",
        at(obj, "status", "attached", default=False),
        age_of(obj, since),
    ]


def _csi_node(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), len(at(obj, "spec", "drivers", default=())), age_of(obj, since)]


def _csi_driver(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(request.get("audience", "") for request in requests)
    return [
        name_of(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, since),
    ]


# -- access -----------------------------------------------------------------------------------------------------------


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


def _policy(rules: str) -> Any:
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


# -- scheduling, leases, devices --------------------------------------------------------------------------------------


def _priority_class(obj: Object, since: Since) -> list[Any]:
    return [
        name_of(obj),
        obj.get("value") or 0,
        bool(obj.get("globalDefault")),
        age_of(obj, since),
        obj.get("preemptionPolicy") or "",
    ]


def _runtime_class(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), obj.get("handler") or "", age_of(obj, since)]


def _lease(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), at(obj, "spec", "holderIdentity", default=""), age_of(obj, since)]


def _claim_state(obj: Object) -> str:
    deleted = bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if at(obj, "status", "allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states += ["allocated", *(["reserved"] if at(obj, "status", "reservedFor") else [])]
    return ",".join(states)


def _resource_claim(obj: Object, since: Since) -> list[Any]:
    return [name_of(obj), _claim_state(obj), age_of(obj, since)]


def _resource_slice(obj: Object, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    pool = at(spec, "pool", "name", default="")
    return [name_of(obj), spec.get("nodeName") or "", spec.get("driver") or "", pool, age_of(obj, since)]


def _subjects(where: str) -> tuple[Column, ...]:
    return tuple(wide(name, f"{name} in the {where}") for name in ("Users", "Groups", "ServiceAccounts"))


def _counted(name: str, text: str) -> Column:
    return Column(name, "integer", text=text)


_ROLE_TEXT: Final = " If the RoleRef cannot be resolved, the Authorizer must return an error."
_WEBHOOKS: Final = Printer(
    (NAME, _counted("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration"), AGE),
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
_DRIVER: Final = "storage.v1.CSIDriverSpec"
_CLASS: Final = "storage.v1.StorageClass"
_ATTACHMENT: Final = "storage.v1.VolumeAttachmentSpec"
_FLOW: Final = "flowcontrol.v1"

PRINTERS: Final[Mapping[str, Printer]] = {
    "ingresses.networking.k8s.io": Printer(
        (
            NAME,
            Column(
                "Class",
                text="The name of the IngressClass resource that should be used for additional configuration",
            ),
            Column("Hosts", text="Hosts that incoming requests are matched against before the ingress rule"),
            Column("Address", text="Address is a list containing ingress points for the load-balancer"),
            Column("Ports", text="Ports of TLS configurations that open"),
            AGE,
        ),
        _ingress,
    ),
    "ingressclasses.networking.k8s.io": Printer(
        (
            NAME,
            Column("Controller", text="Controller that is responsible for handling this class"),
            Column("Parameters", text="A reference to a resource with additional parameters"),
            AGE,
        ),
        _ingress_class,
    ),
    "networkpolicies.networking.k8s.io": Printer(
        (NAME, field("Pod-Selector", "networking.v1.NetworkPolicySpec.podSelector"), AGE), _network_policy
    ),
    "servicecidrs.networking.k8s.io": Printer(
        (NAME, field("CIDRs", "networking.v1.ServiceCIDRSpec.cidrs"), AGE), _service_cidr
    ),
    "ipaddresses.networking.k8s.io": Printer(
        (NAME, field("ParentRef", "networking.v1.IPAddressSpec.parentRef")), _ip_address
    ),
    "endpointslices.discovery.k8s.io": Printer(
        (
            NAME,
            field("AddressType", "discovery.v1.EndpointSlice.addressType"),
            field("Ports", "discovery.v1.EndpointSlice.ports"),
            field("Endpoints", "discovery.v1.EndpointSlice.endpoints"),
            AGE,
        ),
        _endpoint_slice,
    ),
    "storageclasses.storage.k8s.io": Printer(
        (
            NAME,
            field("Provisioner", f"{_CLASS}.provisioner"),
            field("ReclaimPolicy", f"{_CLASS}.reclaimPolicy"),
            field("VolumeBindingMode", f"{_CLASS}.volumeBindingMode"),
            field("AllowVolumeExpansion", f"{_CLASS}.allowVolumeExpansion"),
            AGE,
        ),
        _storage_class,
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(
        (NAME, field("DriverName", "storage.v1.VolumeAttributesClass.driverName"), AGE), _attributes_class
    ),
    "volumeattachments.storage.k8s.io": Printer(
        (
            NAME,
            Column("Attacher", field=f"{_ATTACHMENT}.attacher", format="name"),
            field("PV", "storage.v1.VolumeAttachmentSource.persistentVolumeName"),
            field("Node", f"{_ATTACHMENT}.nodeName"),
            field("Attached", "storage.v1.VolumeAttachmentStatus.attached", "boolean"),
            AGE,
        ),
        _volume_attachment,
    ),
    "csinodes.storage.k8s.io": Printer(
        (
            NAME,
            _counted("Drivers", "Drivers indicates the number of CSI drivers registered on the node"),
            AGE,
        ),
        _csi_node,
    ),
    "csidrivers.storage.k8s.io": Printer(
        (
            NAME,
            field("AttachRequired", f"{_DRIVER}.attachRequired", "boolean"),
            field("PodInfoOnMount", f"{_DRIVER}.podInfoOnMount", "boolean"),
            field("StorageCapacity", f"{_DRIVER}.storageCapacity", "boolean"),
            field("TokenRequests", f"{_DRIVER}.tokenRequests"),
            field("RequiresRepublish", f"{_DRIVER}.requiresRepublish", "boolean"),
            field("Modes", f"{_DRIVER}.volumeLifecycleModes"),
            AGE,
        ),
        _csi_driver,
    ),
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
            _counted(
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
            _counted("Mutations", "Mutation indicates the number of mutations rules defined in this configuration"),
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
    "priorityclasses.scheduling.k8s.io": Printer(
        (
            NAME,
            field("Value", "scheduling.v1.PriorityClass.value", "integer"),
            field("Global-Default", "scheduling.v1.PriorityClass.globalDefault", "boolean"),
            AGE,
            field("PreemptionPolicy", "scheduling.v1.PriorityClass.preemptionPolicy"),
        ),
        _priority_class,
    ),
    # Kubernetes looks for this description in the metadata, where it is not.
    "runtimeclasses.node.k8s.io": Printer((NAME, Column("Handler"), AGE), _runtime_class),
    "leases.coordination.k8s.io": Printer(
        (NAME, field("Holder", "coordination.v1.LeaseSpec.holderIdentity"), AGE), _lease
    ),
    "deviceclasses.resource.k8s.io": Printer((NAME, AGE), _aged),
    "resourceclaimtemplates.resource.k8s.io": Printer((NAME, AGE), _aged),
    "resourceclaims.resource.k8s.io": Printer(
        (
            NAME,
            Column("State", text="A summary of the current state (allocated, pending, reserved, etc.)."),
            AGE,
        ),
        _resource_claim,
    ),
    "resourceslices.resource.k8s.io": Printer(
        (
            NAME,
            field("Node", "resource.v1.ResourceSliceSpec.nodeName"),
            field("Driver", "resource.v1.ResourceSliceSpec.driver"),
            field("Pool", "resource.v1.ResourcePool.name"),
            AGE,
        ),
        _resource_slice,
    ),
}
"""Storage resource -> printer."""

"""NodeRestriction (plugin/pkg/admission/noderestriction of kube-apiserver): a kubelet changes only its own objects.

The Node authorizer has checked the path of the request; this plugin checks its content. A kubelet may write:

- mirror pods of its node, and the status of its pods;
- its Node, except taints, owner references and labels of others;
- its lease and CSINode;
- tokens for its pods, with the audiences of their volumes;
- certificate requests in its own name;
- requests for certificates of its pods, from the signers of their volumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubechronicle.actors.admission.certificates import POD_CERTIFICATES, check_pod_certificate
from kubechronicle.actors.admission.chain import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    AdmissionState,
    Attributes,
    forbidden,
)
from kubechronicle.actors.admission.token_audiences import check_audience
from kubechronicle.api.access.pod_references import ACCOUNTS, CLAIMS, CONFIG_MAPS, MIRROR, SECRETS, references
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.values.certificates import request_name, request_problem
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

NODE_PREFIX: Final = "system:node:"
GROUP_NODES: Final = "system:nodes"
LEASE_NAMESPACE: Final = "kube-node-lease"
RESTRICTED: Final = "node-restriction.kubernetes.io"

# kubeletapis.IsKubeletLabel: labels a kubelet sets, and domains it may use freely.
KUBELET_LABELS: Final = frozenset({
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type", "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region", "node.kubernetes.io/windows-build",
})  # fmt: skip
KUBELET_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")

# Certificate requests, and the signers of nodes' certificates.
CERTIFICATES: Final = "certificatesigningrequests.certificates.k8s.io"
NODE_SIGNERS: Final = ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet")

# Fields of a claim's status that a kubelet may change.
CLAIM_STATUS: Final = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")


AUDIENCES: Final = "ServiceAccountNodeAudienceRestriction"
ANY_REQUEST: Final = "AllowInsecureKubeletCertificateSigningRequests"
POD_CERTIFICATE_GATE: Final = "PodCertificateRequest"
GATES: Final = (AUDIENCES, ANY_REQUEST, POD_CERTIFICATE_GATE)
"""The gates that switch checks."""


class NodeRestriction(AdmissionPlugin):
    name = "NodeRestriction"
    resources = frozenset(
        {
            "pods",
            "nodes",
            "persistentvolumeclaims",
            "serviceaccounts",
            "leases.coordination.k8s.io",
            "csinodes.storage.k8s.io",
            "resourceslices.resource.k8s.io",
            CERTIFICATES,
            POD_CERTIFICATES,
        }
    )
    operations = frozenset({CREATE, UPDATE, DELETE})

    def __init__(self, gates: FeatureGates | None = None) -> None:
        gates = gates or FeatureGates()
        self._checks = dict(CHECKS)
        if not gates.enabled(AUDIENCES):
            self._checks["serviceaccounts", "token"] = _token_for_any_audience
        if gates.enabled(ANY_REQUEST):
            del self._checks[CERTIFICATES, ""]
        if not gates.enabled(POD_CERTIFICATE_GATE):
            self._checks[POD_CERTIFICATES, ""] = _refused_pod_certificate

    def admit(self, attributes: Attributes, state: AdmissionState) -> None:
        who = attributes.who
        if GROUP_NODES not in who.groups or not who.user.startswith(NODE_PREFIX):
            return
        node = who.user.removeprefix(NODE_PREFIX)
        if not node:
            raise forbidden(attributes, f"could not determine node from user {go_quote(who.user)}")
        check = self._checks.get((attributes.rt.resource, attributes.subresource))
        if check is not None:
            check(node, attributes, state)
        elif attributes.rt.resource == "pods":
            raise forbidden(attributes, f"unexpected pod subresource {go_quote(attributes.subresource)}")


# -- pods -------------------------------------------------------------------------------------------------------------


def _pod(node: str, attributes: Attributes, state: AdmissionState) -> None:
    shown = go_quote(node)
    if attributes.operation == CREATE and attributes.object is not None:
        _new_pod(node, attributes, attributes.object, state)
    elif attributes.operation == DELETE:
        if _node_of(attributes.old) != node:
            raise forbidden(attributes, f"node {shown} can only delete pods with spec.nodeName set to itself")
    else:
        operation = go_quote(attributes.operation)
        why = f"unexpected operation {operation}, node {shown} can only create and delete mirror pods"
        raise forbidden(attributes, why)


def _new_pod(node: str, attributes: Attributes, pod: Object, state: AdmissionState) -> None:
    shown, metadata, spec = go_quote(node), pod["metadata"], pod.get("spec") or {}

    def refuse(why: str) -> status.StatusError:
        return forbidden(attributes, f"node {shown} {why}")

    if MIRROR not in (metadata.get("annotations") or {}):
        annotation = go_quote(MIRROR)
        why = f"pod does not have {annotation} annotation, node {shown} can only create mirror pods"
        raise forbidden(attributes, why)
    if spec.get("nodeName") != node:
        raise refuse("can only create pods with spec.nodeName set to itself")
    owners = metadata.get("ownerReferences") or []
    if len(owners) > 1:
        raise refuse("can only create pods with a single owner reference set to itself")
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        raise refuse("can only create pods with an owner reference set to itself")
    if not owner.get("controller"):
        raise refuse("can only create pods with a controller owner reference set to itself")
    if owner.get("blockOwnerDeletion"):
        raise refuse("must not set blockOwnerDeletion on an owner reference")
    held = state.peek("nodes", "", node)
    if held is None:
        raise status.StatusError(404, "NotFound", f'node "{node}" not found', details={"kind": "node", "name": node})
    if owner.get("uid") != held.uid:
        uid = f"expected {owner.get('uid', '')} got {held.uid}"
        raise forbidden(attributes, f"node {node} UID mismatch: {uid}")
    bare = {**pod, "metadata": {**metadata, "annotations": {}}}
    referred = {resource for resource, _ in references(bare)}
    for resource, noun in REFERENCES:
        if resource in referred:
            raise refuse(f"can not create pods that reference {noun}")
    for volume in spec.get("volumes") or ():
        if any("clusterTrustBundle" in each for each in (volume.get("projected") or {}).get("sources") or ()):
            raise refuse("can not create pods that reference clustertrustbundles")


# Kinds that a mirror pod must not refer to, in the order of their errors.
REFERENCES: Final = (
    (ACCOUNTS, "a service account"),
    (SECRETS, "secrets"),
    (CONFIG_MAPS, "configmaps"),
    (CLAIMS, "persistentvolumeclaims"),
)


def _pod_status(node: str, attributes: Attributes, state: AdmissionState) -> None:
    shown = go_quote(node)
    if attributes.old is None or attributes.object is None:
        raise forbidden(attributes, f"unexpected operation {go_quote(attributes.operation)}")
    if _node_of(attributes.old) != node:
        why = "can only update pod status for pods with spec.nodeName set to itself"
        raise forbidden(attributes, f"node {shown} {why}")
    old, new = attributes.before, attributes.object
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise forbidden(attributes, f"node {shown} cannot update labels through pod status")
    claims = [(each.get("status") or {}).get("resourceClaimStatuses") or [] for each in (old, new)]
    if claims[0] != claims[1]:
        raise forbidden(attributes, f"node {shown} cannot update resource claim statues")
    extended = [(each.get("status") or {}).get("extendedResourceClaimStatus") for each in (old, new)]
    if extended[0] != extended[1]:
        raise forbidden(attributes, f"node {shown} cannot update extended resource claim status")


def _eviction(node: str, attributes: Attributes, state: AdmissionState) -> None:
    held = state.peek("pods", attributes.namespace, attributes.name)
    if held is None:
        raise status.not_found(attributes.rt, attributes.name)
    if _node_of(held) != node:
        raise forbidden(attributes, f"node {node} can only evict pods with spec.nodeName set to itself")


def _node_of(entry: Any) -> str:
    name: str = entry.fields.get("spec.nodeName", "") if entry is not None else ""
    return name


# -- the node itself --------------------------------------------------------------------------------------------------


def _node(node: str, attributes: Attributes, state: AdmissionState) -> None:
    new = attributes.object
    name = attributes.name or (new["metadata"].get("name", "") if new is not None else "")
    if name != node:
        raise forbidden(attributes, f"node {go_quote(node)} is not allowed to modify node {go_quote(name)}")
    if new is None:
        return
    labels = new["metadata"].get("labels") or {}
    if attributes.operation == CREATE or attributes.old is None:
        rejected = rejected_labels(labels, {})
        if rejected:
            listed = ", ".join(rejected)
            why = f"node {go_quote(node)} is not allowed to set the following labels: {listed}"
            raise forbidden(attributes, why)
        return
    old = attributes.before
    if ((new.get("spec") or {}).get("taints") or []) != ((old.get("spec") or {}).get("taints") or []):
        raise forbidden(attributes, f"node {go_quote(node)} is not allowed to modify taints")
    # With an owner the garbage collector would delete the Node, and the kubelet could create it without restrictions.
    if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
        raise forbidden(attributes, f"node {go_quote(node)} is not allowed to modify ownerReferences")
    rejected = rejected_labels(labels, old["metadata"].get("labels") or {})
    if rejected:
        raise forbidden(attributes, f"is not allowed to modify labels: {', '.join(rejected)}")


def rejected_labels(new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
    """Return the changed labels that a kubelet must not set, sorted."""
    changed = {key for key in new.keys() | old.keys() if new.get(key) != old.get(key) or (key in new) != (key in old)}
    return sorted(key for key in changed if _is_rejected(key))


def _is_rejected(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    if _within(domain, RESTRICTED):
        return True
    if not (_within(domain, "kubernetes.io") or _within(domain, "k8s.io")):
        return False
    return key not in KUBELET_LABELS and not any(_within(domain, each) for each in KUBELET_DOMAINS)


def _within(domain: str, above: str) -> bool:
    return domain == above or domain.endswith(f".{above}")


# -- the rest ---------------------------------------------------------------------------------------------------------


def _claim_status(node: str, attributes: Attributes, state: AdmissionState) -> None:
    if attributes.old is None or attributes.object is None:
        raise forbidden(attributes, f"unexpected operation {go_quote(attributes.operation)}")
    if _without_claim_status(attributes.before) != _without_claim_status(attributes.object):
        why = "is not allowed to update fields other than status.capacity and status.conditions"
        raise forbidden(attributes, f"node {go_quote(node)} {why}")


def _without_claim_status(claim: Object) -> Object:
    metadata = {
        name: value for name, value in claim["metadata"].items() if name not in ("resourceVersion", "managedFields")
    }
    kept = {name: value for name, value in (claim.get("status") or {}).items() if name not in CLAIM_STATUS}
    return {**claim, "metadata": metadata, "status": kept}


def _token(node: str, attributes: Attributes, state: AdmissionState) -> None:
    pod = _pod_of_token(node, attributes, state)
    if pod is not None:
        check_audience(attributes, pod.object(), state)


def _token_for_any_audience(node: str, attributes: Attributes, state: AdmissionState) -> None:
    _pod_of_token(node, attributes, state)


def _pod_of_token(node: str, attributes: Attributes, state: AdmissionState) -> Entry | None:
    """Return the pod that a token is bound to, which runs on the node; None for other requests than of a token."""
    if attributes.operation != CREATE or attributes.object is None:
        return None
    bound = (attributes.object.get("spec") or {}).get("boundObjectRef") or {}
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
        raise forbidden(attributes, "node requested token not bound to a pod")
    if not bound.get("uid"):
        raise forbidden(attributes, "node requested token with a pod binding without a uid")
    pod = state.peek("pods", attributes.namespace, bound["name"])
    if pod is None:
        raise status.StatusError(
            404, "NotFound", f'pod "{bound["name"]}" not found', details={"kind": "pod", "name": bound["name"]}
        )
    if pod.uid != bound["uid"]:
        why = f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record."
        raise forbidden(attributes, f"{why} The object might have been deleted and then recreated")
    if _node_of(pod) != node:
        raise forbidden(attributes, "node requested token bound to a pod scheduled on a different node")
    return pod


def _certificate(node: str, attributes: Attributes, state: AdmissionState) -> None:
    if attributes.operation != CREATE or attributes.object is None:
        return
    spec = attributes.object.get("spec") or {}
    if spec.get("signerName") not in NODE_SIGNERS:
        return
    problem = request_problem(spec.get("request", ""))
    if problem:
        raise forbidden(attributes, f"unable to parse csr: {problem}")
    name = f"{NODE_PREFIX}{node}"
    if request_name(spec["request"]) != name:
        raise forbidden(attributes, f"can only create a node CSR with CN={name}")


def _lease(node: str, attributes: Attributes, state: AdmissionState) -> None:
    if attributes.namespace != LEASE_NAMESPACE:
        raise forbidden(attributes, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    if _name(attributes) != node:
        raise forbidden(attributes, "can only access node lease with the same name as the requesting node")


def _csi_node(node: str, attributes: Attributes, state: AdmissionState) -> None:
    if _name(attributes) != node:
        raise forbidden(attributes, "can only access CSINode with the same name as the requesting node")


def _slice(node: str, attributes: Attributes, state: AdmissionState) -> None:
    obj = attributes.object if attributes.old is None else attributes.before
    if obj is not None and (obj.get("spec") or {}).get("nodeName") != node:
        verb = "create" if attributes.operation == CREATE else "update" if attributes.operation == UPDATE else "delete"
        raise forbidden(attributes, f"can only {verb} ResourceSlice with the same NodeName as the requesting node")


def _name(attributes: Attributes) -> str:
    if attributes.operation == CREATE and attributes.object is not None:
        name: str = attributes.object["metadata"].get("name", "")
        return name
    return attributes.name


def _refused_pod_certificate(node: str, attributes: Attributes, state: AdmissionState) -> None:
    raise forbidden(attributes, "PodCertificateRequest feature gate is disabled")


Check = Callable[[str, Attributes, AdmissionState], None]

CHECKS: Final[Mapping[tuple[str, str], Check]] = {
    ("pods", ""): _pod,
    ("pods", "status"): _pod_status,
    ("pods", "eviction"): _eviction,
    ("nodes", ""): _node,
    ("nodes", "status"): _node,
    ("persistentvolumeclaims", "status"): _claim_status,
    ("serviceaccounts", "token"): _token,
    ("leases.coordination.k8s.io", ""): _lease,
    ("csinodes.storage.k8s.io", ""): _csi_node,
    ("csinodes.storage.k8s.io", "status"): _csi_node,
    ("resourceslices.resource.k8s.io", ""): _slice,
    (CERTIFICATES, ""): _certificate,
    (POD_CERTIFICATES, ""): check_pod_certificate,
}
"""(storage resource, subresource) → check of a node's write. Other pod subresources are rejected."""

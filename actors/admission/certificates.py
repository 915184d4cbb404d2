"""Admission of certificate requests (plugin/pkg/admission/certificates of kube-apiserver).

CertificateApproval, CertificateSigning, ClusterTrustBundleAttest and PodCertificateSigning check permissions on the
signer. CertificateSubjectRestriction rejects client certificates for system:masters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionPlugin, AdmissionState, Attributes, forbidden
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.actors.evaluation import judge_large
from kubechronicle.actors.large_work import LARGE
from kubechronicle.api.access.pod_references import ACCOUNTS, MIRROR
from kubechronicle.api.builtin.certificates.podcertificaterequest import late_problem, request_status
from kubechronicle.api.errors import field_errors, status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.certificates import lifetime_of, request_organizations, request_problem
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry

GROUP: Final = "certificates.k8s.io"
REQUESTS: Final = frozenset({"certificatesigningrequests.certificates.k8s.io"})
POD_CERTIFICATES: Final = "podcertificaterequests.certificates.k8s.io"
SIGNER_VERB: Final = "request-serviceaccounts-podcertificate-signer"
"""The verb that allows requests to a signer that no volume of the pod has. The signer is the resource."""
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
KUBERNETES_SIGNER: Final = "kubernetes.io/"
MASTERS: Final = "system:masters"


def _may(attributes: Attributes, state: AdmissionState, verb: str, signer: str) -> bool:
    """Return True if the requester has the verb on this signer or on all signers of its domain."""
    domain = f"{signer.partition('/')[0]}/*"
    return any(state.permits(attributes.who, verb, GROUP, "signers", name) for name in (signer, domain))


class CertificateApproval(AdmissionPlugin):
    """Approval and denial require the verb "approve" on the signer."""

    name = "CertificateApproval"
    resources = REQUESTS
    operations = frozenset({UPDATE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.subresource != "approval" or attributes.old is None:
            return
        signer = attributes.before["spec"].get("signerName", "")
        if not _may(attributes, state, "approve", signer):
            raise forbidden(attributes, f"user not permitted to approve requests with signerName {go_quote(signer)}")


class CertificateSigning(AdmissionPlugin):
    """Changes of the certificate or conditions require the verb "sign" on the signer."""

    name = "CertificateSigning"
    resources = REQUESTS
    operations = frozenset({UPDATE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.subresource != "status" or attributes.old is None or attributes.object is None:
            return
        old = attributes.before
        before, now = old.get("status") or {}, attributes.object.get("status") or {}
        if all(before.get(name) == now.get(name) for name in ("certificate", "conditions")):
            return
        signer = old["spec"].get("signerName", "")
        if not _may(attributes, state, "sign", signer):
            raise forbidden(attributes, f"user not permitted to sign requests with signerName {go_quote(signer)}")


class CertificateSubjectRestriction(AdmissionPlugin):
    """Requests to the signer of client certificates must not name the group system:masters."""

    name = "CertificateSubjectRestriction"
    resources = REQUESTS
    operations = frozenset({CREATE})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        if attributes.object is None or attributes.subresource:
            return
        spec = attributes.object["spec"]
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        request = spec.get("request") or ""
        problem = judge_large(self.name, request, _problem, request) if len(request) > LARGE else _problem(request)
        if problem:
            raise forbidden(attributes, problem)


def _problem(request: str) -> str:
    """Return why a client's certificate is not requested like this, "" otherwise."""
    if problem := request_problem(request):
        return f"failed to parse CSR: {problem}"
    if MASTERS in request_organizations(request):
        return f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
    return ""


class ClusterTrustBundleAttest(AdmissionPlugin):
    """A bundle of a signer requires the verb "attest" on it, unless only fields of the garbage collector change."""

    name = "ClusterTrustBundleAttest"
    gate = "ClusterTrustBundle"
    resources = frozenset({"clustertrustbundles.certificates.k8s.io"})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        bundle = attributes.object
        signer = "" if bundle is None else (bundle.get("spec") or {}).get("signerName", "")
        if bundle is None or not signer:
            return
        if attributes.operation == UPDATE and only_gc_fields_change(bundle, attributes.before):
            return
        if not _may(attributes, state, "attest", signer):
            raise forbidden(attributes, f"user not permitted to attest for signerName {go_quote(signer)}")


def only_gc_fields_change(new: Object, old: Object) -> bool:
    """Return whether a change is one of owner references and finalizers alone."""
    bare = [
        {**each, "metadata": {name: value for name, value in each["metadata"].items() if name not in GC_FIELDS}}
        for each in (new, old)
    ]
    return same_json(*bare)


GC_FIELDS: Final = ("ownerReferences", "finalizers", "managedFields")


class PodCertificateSigning:
    """A StorageHook: a change of the status of a PodCertificateRequest requires the verb "sign" on the signer.

    As in kube-apiserver it is a problem of the object (422), which is found only if the status has no other one.
    """

    resources = frozenset({f"{POD_CERTIFICATES}/status"})

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Note the problem of a changed status."""
        new, old = attributes.object, attributes.before
        if new is None or same_json(new.get("status") or {}, old.get("status") or {}) or request_status(new, old):
            return
        attributes.causes.extend(late_problem(new, old, datetime.now(UTC)))
        signer = (old.get("spec") or {}).get("signerName", "")
        if not attributes.causes and not _may(attributes, state, "sign", signer):
            text = f'User {go_quote(attributes.who.user)} is not permitted to "sign" for signer {go_quote(signer)}'
            attributes.causes.append(field_errors.forbidden("spec.signerName", text))


class IssuedDurations:
    """A StorageHook: count the certificates that are issued to requests of a duration, and those of about that duration
    (registry/certificates ``countCSRDurationMetric``)."""

    resources = frozenset({f"{request}/status" for request in REQUESTS})

    def release(self, entry: Entry, state: AdmissionState) -> Sequence[CompanionChange]:
        """Return nothing: a count holds nothing."""
        return ()

    def begin_write(self, attributes: Attributes, state: AdmissionState) -> None:
        """Note what is to be counted."""
        new, old = attributes.object or {}, attributes.before
        issued, spec = (new.get("status") or {}).get("certificate"), old.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        if not issued or seconds is None or attributes.dry_run or (old.get("status") or {}).get("certificate"):
            return
        signer = spec.get("signerName", "")
        label = (signer if signer.startswith(KUBERNETES_SIGNER) else "other",)
        attributes.achieved.append(partial(state.metrics.requested_durations.add, label))
        if is_honored(seconds, lifetime_of(issued)):
            attributes.achieved.append(partial(state.metrics.honored_durations.add, label))


def is_honored(wanted: int, seconds: float | None) -> bool:
    """Tell whether a lifetime is about the one wanted: signers backdate by minutes."""
    return seconds is not None and abs(wanted - seconds) < 5 * 60 + wanted / 20


def check_pod_certificate(node: str, attributes: Attributes, state: AdmissionState) -> None:
    """Compare a node's request with the node, the pod and the service account that it names.

    A UID that differs may be newer than this server's state: 500, so that the kubelet tries again.
    """
    if attributes.operation != CREATE or attributes.object is None:
        raise forbidden(attributes, f"unexpected operation {attributes.operation}")
    spec, space = attributes.object.get("spec") or {}, attributes.namespace
    named = {name: spec.get(name, "") for name in ("nodeName", "nodeUID", "podName", "podUID", "signerName")}
    account, pod_name = spec.get("serviceAccountName", ""), go_quote(f"{space}/{named['podName']}")
    if named["nodeName"] != node:
        shown = f"PodCertificateRequest.Spec.NodeName={go_quote(named['nodeName'])}"
        raise forbidden(attributes, f"{shown}, which is not the requesting node {go_quote(node)}")
    about = f"PodCertificateRequest for pod {pod_name}"
    held = _looked_up(state, "nodes", "", node, f"node {go_quote(node)}")
    if held.uid != named["nodeUID"]:
        shown = f"names node UID {go_quote(named['nodeUID'])}, inconsistent with the running node"
        raise status.unknown(f"{about} {shown} ({go_quote(held.uid)})")
    entry = _looked_up(state, "pods", space, named["podName"], f"pod {pod_name}")
    if entry.uid != named["podUID"]:
        shown = f"contains pod UID ({go_quote(named['podUID'])}) which differs from running pod"
        raise status.unknown(f"{about} {shown} {go_quote(entry.uid)}")
    pod = entry.object()
    if pod["spec"].get("nodeName") != node:
        raise forbidden(attributes, f"pod {pod_name} is not running on node {go_quote(node)} named in the request")
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        raise forbidden(attributes, f"pod {pod_name} is a mirror pod")
    running = pod["spec"].get("serviceAccountName", "")
    if account != running:
        shown = f"contains serviceAccountName ({go_quote(account)}) that differs from running pod ({go_quote(running)})"
        raise forbidden(attributes, f"{about} {shown}")
    found = _looked_up(state, ACCOUNTS, space, account, f"service account {go_quote(f'{space}/{account}')}")
    uid = spec.get("serviceAccountUID", "")
    if found.uid != uid:
        shown = f"names service account UID {go_quote(uid)}, which differs from the running service account"
        raise status.unknown(f"{about} {shown} ({go_quote(found.uid)})")
    signer = named["signerName"]
    if signer in _signers_of(pod):
        return
    if not state.permits(attributes.who, SIGNER_VERB, "certificates.k8s.io", signer.replace("/", ":"), account, space):
        why = f"does not mount a podCertificate projected volume for signer {go_quote(signer)}"
        raise forbidden(attributes, f"pod {pod_name} {why}")


def _looked_up(state: AdmissionState, resource: str, namespace: str, name: str, shown: str) -> Entry:
    held = state.peek(resource, namespace, name)
    if held is None:
        noun = {ACCOUNTS: "serviceaccount"}.get(resource, resource.removesuffix("s"))
        text = f"while retrieving {shown} named in the PodCertificateRequest: {noun} {go_quote(name)} not found"
        raise status.unknown(text)
    return held


def _signers_of(pod: Object) -> set[str]:
    volumes = pod["spec"].get("volumes") or ()
    sources = (source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or ())
    return {source["podCertificate"].get("signerName", "") for source in sources if source.get("podCertificate")}

"""Admission of certificate requests (plugin/pkg/admission/certificates of kube-apiserver).

CertificateApproval and CertificateSigning check permissions on the signer. CertificateSubjectRestriction rejects client
certificates for system:masters.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import CREATE, UPDATE, AdmissionPlugin, Attributes, State, forbidden
from kubechronicle.actors.evaluation import judge_large
from kubechronicle.actors.large_work import LARGE
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.certificates import request_organizations, request_problem

GROUP: Final = "certificates.k8s.io"
REQUESTS: Final = frozenset({"certificatesigningrequests.certificates.k8s.io"})
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
MASTERS: Final = "system:masters"


def _may(attributes: Attributes, state: State, verb: str, signer: str) -> bool:
    """Return True if the requester has the verb on this signer or on all signers of its domain."""
    domain = f"{signer.partition('/')[0]}/*"
    return any(state.permits(attributes.who, verb, GROUP, "signers", name) for name in (signer, domain))


class CertificateApproval(AdmissionPlugin):
    """Approval and denial require the verb "approve" on the signer."""

    name = "CertificateApproval"
    resources = REQUESTS
    operations = frozenset({UPDATE})

    def validate(self, attributes: Attributes, state: State) -> None:
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

    def validate(self, attributes: Attributes, state: State) -> None:
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

    def validate(self, attributes: Attributes, state: State) -> None:
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

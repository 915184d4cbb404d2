"""CertificateSubjectRestriction (plugin/pkg/admission/certificates of kube-apiserver): nobody becomes a master by a
certificate that this server's own signer would sign."""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import CREATE, AdmissionPlugin, Attributes, State, forbidden
from kubechronicle.api.certificates import request_organizations, request_problem

CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
MASTERS: Final = "system:masters"


class CertificateSubjectRestriction(AdmissionPlugin):
    """A request to the signer of clients is not for the group that may do everything."""

    name = "CertificateSubjectRestriction"
    resources = frozenset({"certificatesigningrequests.certificates.k8s.io"})
    operations = frozenset({CREATE})

    def validate(self, attributes: Attributes, state: State) -> None:
        if attributes.object is None or attributes.subresource:
            return
        spec = attributes.object["spec"]
        if spec.get("signerName") != CLIENT_SIGNER:
            return
        problem = request_problem(spec.get("request", ""))
        if problem:
            raise forbidden(attributes, f"failed to parse CSR: {problem}")
        if MASTERS in request_organizations(spec["request"]):
            raise forbidden(attributes, f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")

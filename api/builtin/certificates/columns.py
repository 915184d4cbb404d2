"""Table columns of CertificateSigningRequests. | Source: Kubernetes' ``pkg/printers/internalversion``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, human_duration
from kubechronicle.api.builtin.common.printer import AGE, NAME, Column, Printer, age_of, at, field, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _signing_status(obj: ReadOnlyObject) -> str:
    given = {found.get("type") for found in at(obj, "status", "conditions", default=())}
    word = "Denied" if "Denied" in given else "Approved" if "Approved" in given else "Pending"
    failed = ",Failed" if "Failed" in given else ""
    return word + failed + (",Issued" if at(obj, "status", "certificate") else "")


def _signing_request(obj: ReadOnlyObject, since: Since) -> list[Any]:
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

PRINTERS: Final[Mapping[str, Printer]] = {
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
}

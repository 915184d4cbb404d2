"""Bodies of PodCertificateRequests, with a signed request for a certificate."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def request_of_pod(**spec: Any) -> dict[str, Any]:
    """Return a valid request of pod p, with these fields of its spec instead."""
    key = ec.generate_private_key(ec.SECP256R1())
    signed = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    usual = {
        "signerName": "pods.example.com/web", "podName": "p", "podUID": "u1", "serviceAccountName": "a",
        "serviceAccountUID": "u2", "nodeName": "n", "nodeUID": "u3",
        "stubPKCS10Request": base64.b64encode(signed.public_bytes(serialization.Encoding.DER)).decode(),
    }  # fmt: skip
    return {"spec": {**usual, **spec}}

"""Requests that come back: sent to a kubelet on behalf of a client, received by a listener of the same cluster.

The client certificate for kubelets is a user with all rights. The address of a Node can lead through a load balancer or
a Service to this server, or to another one of its cluster: no address shows that. So each request with that certificate
names it in a field (RFC 9110 §7.6.3), and no listener takes the certificate from such a request:

    to a kubelet          certificate C     via: 1.1 kubechronicle-DIGEST-OF-C
    to an API server      certificate C     the same field: the request has come back, and is not authenticated

The client cannot remove the field: it is added to the client's own fields, inside a connection of TLS from server to
server. A kubelet ignores it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubechronicle.http.headers import Headers

VIA: Final = "via"
_NAME: Final = "kubechronicle-"


def via_field(certificate: bytes) -> tuple[str, str]:
    """Return the field for requests with a client certificate (DER)."""
    return VIA, f"1.1 {_NAME}{hashlib.sha256(certificate).hexdigest()[:32]}"


def has_come_back(headers: Headers, certificate: bytes) -> bool:
    """Tell whether a request with a client certificate (DER) was sent by a server on behalf of a client."""
    fields = headers.get_all(VIA)
    return any(_NAME in each for each in fields) and any(via_field(certificate)[1] in each for each in fields)

"""Trust between servers on one database: whether each accepts the credentials that the others issue.

Every server has keys of its own in DATA_DIR/pki, unless it is given others. Behind one load balancer, a token or
certificate from one server is then rejected (401) by the next. So each notes the digests of its keys and authorities in
the database, and says at its start in one line what differs.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres.connection import open_session
from kubechronicle.eventlog.postgres.servers import introduce
from kubechronicle.http.authentication.token_issuer import ServiceAccountIssuer
from kubechronicle.ops.pki import Pki
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

TOKENS: Final = (
    "tokens of service accounts that one signs are rejected (401) by the other: give both the same "
    "--service-account-signing-key-file, or each the other's key as --service-account-key-file"
)
ISSUERS: Final = "their tokens have different issuers: give both the same --service-account-issuer"
CLIENTS: Final = (
    "client certificates from one are rejected (401) by the other: copy DATA_DIR/pki of one to the other, or give both "
    "a --client-ca-file with both authorities"
)
SERVING: Final = "kubeconfigs of one do not trust the certificate of the other: copy DATA_DIR/pki of one to the other"


def trust_of(settings: Settings, pki: Pki, issuer: ServiceAccountIssuer) -> dict[str, Any]:
    """Return the digests of the keys and authorities of this server."""
    authorities = [file for file in (pki.ca_file, settings.client_ca_file) if file]
    own_certificate = settings.tls_cert_file is None or settings.root_ca_file is not None
    return {
        **({"signs": issuer.signing.verifying.key_id} if issuer.signing is not None else {}),
        "verifies": sorted(key.key_id for key in issuer.accepted()),
        "issuers": list(issuer.issuers),
        "issuesClients": digests([pki.ca_file]),
        "acceptsClients": digests(authorities),
        "serving": digests([settings.root_ca_file or pki.ca_file]) if own_certificate else None,
    }


def name_of(server_address: str) -> str:
    """Return the name of a server: its host, with address and port, as one host may run several."""
    return f"{socket.gethostname()} {server_address}"


def digests(files: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each certificate in the files."""
    found: set[str] = set()
    for file in files:
        for certificate in x509.load_pem_x509_certificates(file.read_bytes()):
            found.add(certificate.fingerprint(SHA256()).hex())
    return sorted(found)


def differences(own: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return what one of the two servers rejects of the other. Unknown members count as equal."""

    def within(parts: Any, whole: Any) -> bool:
        return parts is None or not isinstance(whole, Collection) or set(parts) <= set(whole)

    pairs = ((own, other), (other, own))
    found = []
    if not all(within([one["signs"]] if "signs" in one else None, two.get("verifies")) for one, two in pairs):
        found.append(TOKENS)
    if not all(within((one.get("issuers") or [])[:1], two.get("issuers")) for one, two in pairs):
        found.append(ISSUERS)
    if not all(within(one.get("issuesClients"), two.get("acceptsClients")) for one, two in pairs):
        found.append(CLIENTS)
    elif None not in (own.get("serving"), other.get("serving")) and own["serving"] != other["serving"]:
        found.append(SERVING)
    return found


async def compare_trust(database_url: str, name: str, trust: dict[str, Any]) -> None:
    """Note this server in the database, and log in one line what differs from the others there."""
    try:
        async with open_session(database_url) as session:
            others = await introduce(session, name, trust)
    except LogError as error:
        log.warning("The other servers on this database could not be compared", extra={"err": str(error)})
        return
    for other, its in others.items():
        if found := differences(trust, its):
            wrong = "; ".join(found)
            log.warning("This server and %s use one database, but %s (docs/high-availability.md)", other, wrong)

"""ConfigMap ``extension-apiserver-authentication`` of kube-system: how this server authenticates clients.

Extension API servers and other delegates read it, to authenticate in the same way (kube-apiserver:
controlplane/controller/clusterauthenticationtrust).

    client-ca-file                        authorities of client certificates (PEM)
    requestheader-client-ca-file          authorities of authenticating proxies (PEM)
    requestheader-allowed-names           common names of proxies (JSON list)
    requestheader-{username,uid,group}-headers, requestheader-extra-headers-prefix
                                          header names that proxies use (JSON lists)

Servers may trust different authorities: entries of another server stay until its certificates expire.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kubechronicle.actors.loops.bootstrap.config_map import KeptConfigMap
from kubechronicle.actors.store import Store

log = logging.getLogger(__name__)

NAME: Final = "extension-apiserver-authentication"
COMPONENT: Final = "cluster-authentication-info-controller"
CLIENT_CA: Final = "client-ca-file"
PROXY_CA: Final = "requestheader-client-ca-file"
# Seconds between two reads of the authorities, whose files may have changed.
INTERVAL: Final = 10.0
# How long an expired certificate stays published.
SLACK: Final = timedelta(minutes=5)
# Limit of all certificates in bytes; beyond it, only this server's are published. A ConfigMap holds 1 MiB.
MAX_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """This server's settings.

    ``client_ca``: returns the current authorities of clients; None: no client certificate is accepted.
    ``proxy_ca``: returns the current authorities of proxies; None: no proxy is accepted.
    ``proxy_lists``: names by key of the ConfigMap, from the flags.
    """

    client_ca: Callable[[], Sequence[x509.Certificate]] | None = None
    proxy_ca: Callable[[], Sequence[x509.Certificate]] | None = None
    proxy_lists: Mapping[str, Sequence[str]] | None = None

    def data(self, held: Mapping[str, str]) -> dict[str, str]:
        """Return the data the ConfigMap should have; ``held``: the data it has."""
        bundles = {
            CLIENT_CA: _bundle(held.get(CLIENT_CA, ""), self.client_ca),
            PROXY_CA: _bundle(held.get(PROXY_CA, ""), self.proxy_ca),
        }
        data = {key: pem for key, pem in bundles.items() if pem}
        if PROXY_CA in data:
            for key in LISTS:
                ours = (self.proxy_lists or {}).get(key, ())
                data[key] = json.dumps(list(dict.fromkeys([*_names(held.get(key, "")), *ours])), separators=(",", ":"))
        return data


LISTS: Final = (
    "requestheader-allowed-names",
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
)


def authentication_trust(store: Store, trust: Trust) -> KeptConfigMap:
    """Return the loop that keeps the ConfigMap."""
    return KeptConfigMap(store, NAME, trust.data, component=COMPONENT, interval=INTERVAL)


def _bundle(held: str, ours: Callable[[], Sequence[x509.Certificate]] | None) -> str:
    """Return the certificates of both (PEM), each once, without expired ones."""
    own = list(ours()) if ours is not None else []
    try:
        others = x509.load_pem_x509_certificates(held.encode()) if held else []
    except ValueError as error:
        log.warning("ConfigMap %s holds no certificates where it should, replacing them: %s", NAME, error)
        others = []
    oldest = datetime.now(UTC) - SLACK
    for certificates in ([*others, *own], own):
        good = dict.fromkeys(each for each in certificates if each.not_valid_after_utc > oldest)
        pem = b"".join(each.public_bytes(Encoding.PEM) for each in good).decode()
        if len(pem) <= MAX_BYTES:
            return pem
    return pem


def _names(text: str) -> list[str]:
    """Return the strings of a JSON list; [] for any other text."""
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

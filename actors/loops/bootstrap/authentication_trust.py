"""ConfigMap ``extension-apiserver-authentication`` of kube-system: how this server knows its clients, for those that
know them the same way: extension API servers, and whoever else delegates authentication
(kube-apiserver: controlplane/controller/clusterauthenticationtrust).

    client-ca-file                        authorities of client certificates (PEM)
    requestheader-client-ca-file          those of authenticating proxies
    requestheader-allowed-names           their common names, and the names of the fields they use: JSON lists
    requestheader-{username,uid,group}-headers, requestheader-extra-headers-prefix

Several servers may trust different authorities: what another has put there stays, until its certificates expire.
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
# Seconds between two looks at the authorities, whose files may have changed.
INTERVAL: Final = 10.0
# For how long a certificate that has expired is still told of.
SLACK: Final = timedelta(minutes=5)
# Bytes of certificates told; beyond it only our own. A ConfigMap holds a MiB.
MAX_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """``client_ca``, ``proxy_ca``: the authorities as they are now (None: nobody's certificates are believed);
    ``proxy_lists``: names by key of the ConfigMap, as the flags give them."""

    client_ca: Callable[[], Sequence[x509.Certificate]] | None = None
    proxy_ca: Callable[[], Sequence[x509.Certificate]] | None = None
    proxy_lists: Mapping[str, Sequence[str]] | None = None

    def data(self, held: Mapping[str, str]) -> dict[str, str]:
        """What the ConfigMap should hold, that holds ``held``."""
        found = {
            CLIENT_CA: _bundle(held.get(CLIENT_CA, ""), self.client_ca),
            PROXY_CA: _bundle(held.get(PROXY_CA, ""), self.proxy_ca),
        }
        data = {key: pem for key, pem in found.items() if pem}
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
    """The loop."""
    return KeptConfigMap(store, NAME, trust.data, component=COMPONENT, interval=INTERVAL)


def _bundle(held: str, ours: Callable[[], Sequence[x509.Certificate]] | None) -> str:
    """The certificates of both, each once, without those that have expired."""
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
    """Of a JSON list; none of what is not one."""
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []

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
from typing import Any, Final

import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kubechronicle.actors.loops.edits import create_unless_exists
from kubechronicle.actors.loops.reflector import Reflector
from kubechronicle.actors.loops.retries import FIRST_DELAY, LONGEST_DELAY, first_pass
from kubechronicle.actors.reading.reads import Selection
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.selectors.field_selectors import parse_field_selector
from kubechronicle.eventlog.restarts import delays

# -- config map --------------------------------------------------------------------------------------------------------
#
# A ConfigMap of kube-system that the server itself keeps: created when it is missing, repaired when it was changed.


NAMESPACE: Final = "kube-system"

Wanted = Callable[[Mapping[str, str]], dict[str, str]]
"""Returns the data that the ConfigMap should have, from the data it has."""


class KeptConfigMap:
    """``wanted`` is called after every change of the ConfigMap, and every ``interval`` seconds.

    ``ready`` is True once the ConfigMap was found or put in order, or admission has rejected it: kube-apiserver is
    ready as soon as its controllers have started, so that an administrator can repair admission.
    """

    def __init__(self, store: Store, name: str, wanted: Wanted, *, component: str, interval: float) -> None:
        self.ready = False
        self._store = store
        self._name, self._wanted = name, wanted
        self._component, self._interval = component, interval
        self._rt = store.registry.builtin("", "v1", "configmaps")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the ConfigMap until cancelled. Report started after the first attempt, also if that failed."""
        await first_pass(
            self.reconcile, subject=f"the ConfigMap {self._name}", on_error=self._failed, task_status=task_status
        )
        fields = parse_field_selector(f"metadata.name={self._name}", self._rt)
        reflector = Reflector(
            self._store.reads,
            self._rt,
            component=self._component,
            on_list=self.reconcile,
            selection=Selection(namespace=NAMESPACE, fields=fields),
            resync=self._interval,
            delays=delays(FIRST_DELAY, LONGEST_DELAY),
        )
        await reflector.run()

    def _failed(self, error: Exception) -> None:
        if isinstance(error, StatusError):
            self.ready = True

    async def reconcile(self) -> None:
        """Create or repair the ConfigMap. StatusError, LogError, ActorError."""
        target = Target(rt=self._rt, namespace=NAMESPACE, name=self._name, manager=self._component)
        present = self._store.reads.peek(self._rt.resource, NAMESPACE, self._name)
        if present is None:
            obj = {"metadata": {"name": self._name}, "data": self._wanted({})}
            await create_unless_exists(self._store, self._component, target, obj)
        elif self._changed(held := present.object()) is not held:
            caller = system_caller(self._component, "update", cause=present.revision)
            await self._store.writes.edit(caller, target, self._changed)
        self.ready = True

    def _changed(self, obj: dict[str, Any]) -> dict[str, Any]:
        held = obj.get("data") or {}
        wanted = self._wanted(held)
        return obj if wanted == held else {**obj, "data": wanted}


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

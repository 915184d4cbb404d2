"""The control loops of --controllers, with kube-controller-manager's names.

They make the server useful without a kube-controller-manager, and do no harm beside one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final, Protocol

import trio

from kubechronicle.actors.definitions.api_services import CustomAPIServices
from kubechronicle.actors.definitions.cleanup import Cleanup
from kubechronicle.actors.definitions.current import CurrentRegistry
from kubechronicle.actors.definitions.establishing import Establishing
from kubechronicle.actors.loops import elections, storage_versions
from kubechronicle.actors.loops.bootstrap.rbac import ClusterRoleAggregation
from kubechronicle.actors.loops.elections import ElectionLoop
from kubechronicle.actors.loops.event_ttl import EventExpiry
from kubechronicle.actors.loops.foreign_objects import ForeignObjects
from kubechronicle.actors.loops.garbage.collector import GarbageCollector
from kubechronicle.actors.loops.namespace_lifecycle import NamespaceLifecycleLoop
from kubechronicle.actors.loops.namespace_objects import RootCAPublisher, ServiceAccountLoop
from kubechronicle.actors.loops.policy_status import PolicyStatusLoop
from kubechronicle.actors.loops.resource_quota import ResourceQuotaLoop
from kubechronicle.actors.loops.service_account_tokens import AccountTokens
from kubechronicle.actors.loops.service_cidrs import ServiceCIDRLoop
from kubechronicle.actors.loops.storage_migration import StorageMigrationLoop
from kubechronicle.actors.loops.storage_protection import StorageProtectionLoop
from kubechronicle.actors.loops.storage_versions import StorageVersionLoop
from kubechronicle.actors.store import Store
from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.api.access.account_tokens import Sign
from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.eventlog.restarts import Runnable


class Loop(Protocol):
    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None: ...


ROOT_CA: Final = "root-ca-cert-publisher"
ACCOUNT_TOKENS: Final = "serviceaccount-token"

OVER_ALL_SERVERS: Final[Mapping[str, Callable[[Store, ForeignObjects | None], Loop]]] = {
    "namespace": NamespaceLifecycleLoop,
    "garbage-collector": GarbageCollector,
}
"""The loops that deal with the objects of extension API servers, too."""

OVER_THE_STORE: Final[Mapping[str, Callable[[Store], Loop]]] = {
    "serviceaccount": ServiceAccountLoop,
    "storage-protection": StorageProtectionLoop,
    "resourcequota": ResourceQuotaLoop,
    "service-cidr": ServiceCIDRLoop,
    "clusterrole-aggregation": ClusterRoleAggregation,
    "storage-version-migrator": StorageMigrationLoop,
    "validatingadmissionpolicy-status": PolicyStatusLoop,
}
LOOPS: Final = (*OVER_ALL_SERVERS, *OVER_THE_STORE)
CONTROLLERS: Final = (*LOOPS, ROOT_CA, ACCOUNT_TOKENS)
"""All names of --controllers."""

CONTROLLER_ALIASES: Final = {
    "namespace-controller": "namespace",
    "serviceaccount-controller": "serviceaccount",
    "garbage-collector-controller": "garbage-collector",
    "garbagecollector": "garbage-collector",
    "resourcequota-controller": "resourcequota",
    "root-ca-certificate-publisher-controller": ROOT_CA,
    "serviceaccount-token-controller": ACCOUNT_TOKENS,
    "service-cidr-controller": "service-cidr",
    "clusterrole-aggregation-controller": "clusterrole-aggregation",
    "storage-version-migrator-controller": "storage-version-migrator",
    "validatingadmissionpolicy-status-controller": "validatingadmissionpolicy-status",
}
"""Other names in kube-controller-manager."""


def control_loops(
    names: Collection[str],
    store: Store,
    *,
    root_ca: bytes,
    sign: Sign | None = None,
    event_ttl: int = 0,
    foreign: ForeignObjects | None = None,
) -> list[ChildSpec]:
    """Return the loops of these names, and the one for Events, as children of the tree.

    ``root_ca``: authorities to publish in every namespace; not published if empty
    ``sign``: signs tokens for Secrets; without it they get none
    ``event_ttl``: seconds that an Event is kept; 0: for ever. Its loop does not depend on ``names``
    ``foreign``: the objects of extension API servers; without it, the loops deal with none
    """
    loops = [
        ChildSpec(name=name, run=make(store, foreign).run) for name, make in OVER_ALL_SERVERS.items() if name in names
    ]
    loops += [ChildSpec(name=name, run=make(store).run) for name, make in OVER_THE_STORE.items() if name in names]
    if ROOT_CA in names and root_ca:
        loops.append(ChildSpec(name=ROOT_CA, run=RootCAPublisher(store, root_ca).run))
    if ACCOUNT_TOKENS in names and sign is not None:
        loops.append(ChildSpec(name=ACCOUNT_TOKENS, run=AccountTokens(store, root_ca, sign).run))
    if event_ttl:
        loops.append(ChildSpec(name="event-ttl", run=EventExpiry(store, timedelta(seconds=event_ttl)).run))
    return loops


def definition_loops(store: Store, current: CurrentRegistry) -> list[ChildSpec]:
    """Return the loops of custom resources, which kube-apiserver has, so they do not depend on --controllers."""
    return [
        ChildSpec(name="definition-status", run=Establishing(store, current).run),
        ChildSpec(name="definition-cleanup", run=Cleanup(store, current).run),
        ChildSpec(name="definition-api-services", run=CustomAPIServices(store, current).run),
    ]


def gated_loops(store: Store, gates: FeatureGates, host: str) -> list[ChildSpec]:
    """Return the loops of kube-apiserver that come with a feature gate. ``host``: the name of this one."""
    versions = StorageVersionLoop(store, host=host, versions=gates.versions)
    known = [
        (elections.GATE, ChildSpec(name="elections", run=ElectionLoop(store).run)),
        (storage_versions.GATE, ChildSpec(name="storage-versions", run=versions.run)),
    ]
    return [loop for gate, loop in known if gates.enabled(gate)]


def led(leading: trio.Event | None, children: Iterable[ChildSpec]) -> list[ChildSpec]:
    """Return the children so that each starts when ``leading`` is set; unchanged for None.

    Several servers may run the same loops: they agree through the log. Several processes of one server would only
    repeat the same work.
    """
    if leading is None:
        return list(children)
    return [replace(child, run=partial(_run_led, leading, child.run)) for child in children]


async def _run_led(
    leading: trio.Event, run: Runnable, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    if not leading.is_set():
        task_status.started()
        task_status = trio.TASK_STATUS_IGNORED
        await leading.wait()
    await run(task_status=task_status)

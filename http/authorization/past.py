"""Rights at a moment: the present authorizers, which decide by the roles, bindings, Pods and volumes of the moment.

The log has the objects that RBAC and Node decide by. It has no decisions of a webhook, and no former file of ABAC: a
request that only these could decide is refused (decision.NotInHistory). The authorizers and their order are those of
the present flags, because the log has no flags either.

Only the objects that one decision needs are read, so its cost does not depend on the cluster's size:

    any user       all cluster roles and their bindings; roles and bindings of the request's namespace
    a node         Pods of that namespace, and of the claims of a volume; volumes if a Secret or a volume is asked for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubechronicle.actors.history.past_reads import PastReads
from kubechronicle.actors.reading.reads import Listing, Reads, Selection
from kubechronicle.api.access.pod_references import volume_secrets
from kubechronicle.api.errors import status
from kubechronicle.api.history.cells import ERASED
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Moment
from kubechronicle.eventlog.views.view import Window
from kubechronicle.http.authentication.user import User
from kubechronicle.http.authorization.decision import AuthorizationChain
from kubechronicle.http.authorization.node import NODE_NAMED, node_name
from kubechronicle.http.authorization.rbac import GROUP

CLUSTER_WIDE: Final = (f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}")
IN_NAMESPACE: Final = (f"roles.{GROUP}", f"rolebindings.{GROUP}")
VOLUMES: Final = "persistentvolumes"
_NO_EVENTS: Final = Window()


class PastView:
    """The objects of one resource at a moment (view_follower.FollowedView). Nothing follows."""

    held_since = 0
    applied = 0
    window = _NO_EVENTS

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries = entries
        self._by_place = {(entry.key.namespace, entry.key.name): entry for entry in entries}

    def entries(self, namespace: str = "") -> Sequence[Entry]:
        return [entry for entry in self._entries if not namespace or entry.key.namespace == namespace]

    def get(self, namespace: str, name: str) -> Entry | None:
        return self._by_place.get((namespace, name))


class PastViews:
    """Views that were read for one decision; a resource that was not read is empty (view_follower.FollowedViews)."""

    def __init__(self, views: Mapping[str, PastView]) -> None:
        self._views = views

    def __getitem__(self, resource: str) -> PastView:
        return self._views.get(resource) or PastView()


class PastRights:
    """The rights at one moment. ``size``: the bytes of the objects that were read for them."""

    def __init__(self, reads: Reads, registry: Registry, moment: Moment) -> None:
        self._reads = PastReads(reads, moment)
        self._registry = registry
        self._read: dict[tuple[str, str, str], Sequence[Entry]] = {}
        self.size = 0

    async def chain(self, present: AuthorizationChain, user: User, info: RequestInfo) -> AuthorizationChain:
        """Return the authorizers as of the moment, for decisions about one request of one user, or about the user's
        rules in the request's namespace. StatusError 410: the history of their objects begins later, or is erased."""
        entries = {resource: await self.entries(resource, "") for resource in CLUSTER_WIDE}
        if info.namespace:
            entries |= {resource: await self.entries(resource, info.namespace) for resource in IN_NAMESPACE}
        if node_name(user) and info.is_resource and info.name:
            entries |= await self._of_nodes(info)
        return present.at(PastViews({resource: PastView(found) for resource, found in entries.items()}))

    async def entries(self, resource: str, namespace: str, name: str = "") -> Sequence[Entry]:
        """Return the objects of a resource in a namespace ("": in all), or one of them. StatusError 410."""
        key = (resource, namespace, name)
        if key not in self._read:
            found = self._read[key] = await self._entries(resource, namespace, name)
            self.size += sum(len(entry.json) for entry in found)
        return self._read[key]

    async def _entries(self, resource: str, namespace: str, name: str) -> Sequence[Entry]:
        rt = self._registry.storage(resource)
        if rt is None:
            return ()
        if name:
            one = await self._reads.get(rt, namespace, name)
            return () if one is None else (one,)
        listing: Listing = await self._reads.list(rt, Selection(namespace=namespace))
        if listing.erased:
            raise status.gone(f"{listing.erased} {rt.plural} {ERASED}, so the rights of then are not known")
        return listing.entries

    async def _of_nodes(self, info: RequestInfo) -> dict[str, Sequence[Entry]]:
        """Return the objects that relate a node to the object of a request."""
        resource = info.group_resource
        if resource in NODE_NAMED:
            return {resource: await self.entries(resource, "", info.name)}
        found: dict[str, Sequence[Entry]] = {}
        namespaces = {info.namespace} if info.namespace else set()
        if resource == VOLUMES:
            found[VOLUMES] = await self.entries(VOLUMES, "", info.name)
            namespaces |= _claim_namespaces(found[VOLUMES])
        elif resource == "secrets":
            volumes = await self.entries(VOLUMES, "")
            wanted = (info.namespace, info.name)
            found[VOLUMES] = [each for each in volumes if wanted in volume_secrets(each.object())]
            namespaces |= _claim_namespaces(found[VOLUMES])
        pods: list[Entry] = []
        for namespace in sorted(namespaces):
            pods += await self.entries("pods", namespace)
        found["pods"] = pods
        return found


def _claim_namespaces(volumes: Sequence[Entry]) -> set[str]:
    claims = [(volume.object().get("spec") or {}).get("claimRef") or {} for volume in volumes]
    return {claim["namespace"] for claim in claims if claim.get("namespace")}

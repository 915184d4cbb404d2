"""Discovery of other servers: their resources are requested regularly, and merged into this server's documents.

A server that has aggregated discovery is asked for it (/apis); of any other, the APIResourceList of the group version
is turned into that form. While a server does not answer, its group version stays in the documents, without resources
and with the freshness Stale, as in kube-apiserver. Every process of a server asks for itself. Source: kube-aggregator
``pkg/apiserver/handler_discovery.go``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import trio

from kubechronicle.api.registry.api_services import (
    RESOURCE,
    ApiService,
    from_aggregated,
    from_resource_list,
    ordered_versions,
)
from kubechronicle.api.registry.registry import Registry
from kubechronicle.eventlog.entries import Event
from kubechronicle.eventlog.views.views import Views
from kubechronicle.http.aggregation.backends import AGGREGATOR, TIMEOUT, Backends
from kubechronicle.http.aggregation.openapi import RemoteOpenApi
from kubechronicle.http.aggregation.proxy import Proxy
from kubechronicle.http.aggregation.routes import Routes
from kubechronicle.http.outgoing.client import Answer, AskError

log = logging.getLogger(__name__)

REFRESH: Final = 60.0
"""Seconds between two requests for the resources of one server."""
FIRST_RETRY: Final = 0.5
"""Seconds after the first failure; each further delay is twice as long, up to REFRESH."""
MOST_REQUESTS: Final = 8
"""Servers asked at a time."""
ACCEPT: Final = ",".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList" for version in ("v2", "v2beta1")
)
OPENAPI: Final = "/openapi/v3"
MALFORMED: Final = (AttributeError, KeyError, TypeError, ValueError)

GroupVersion = tuple[str, str]
Resources = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteVersion:
    """The resources of a group version in aggregated form.

    ``fresh``: the last request for them succeeded.
    ``openapi``: the URL of its OpenAPI document in the index of /openapi/v3, with a hash; "": it has none.
    """

    resources: Resources = ()
    fresh: bool = False
    openapi: str = ""

    def document(self, version: str) -> dict[str, Any]:
        """Return the entry of a version in an APIGroupDiscoveryList."""
        resources = {"resources": list(self.resources)} if self.resources else {}
        return {"version": version, **resources, "freshness": "Current" if self.fresh else "Stale"}


@dataclass(frozen=True, slots=True, eq=False)
class Others:
    """The part of other servers in discovery at one time. Compared by identity, as a key of caches.

    ``versions``: the versions of all groups but the core one, those of this server too, in their order.
    ``aggregated``: the same in the order of aggregated discovery.
    ``remote``: the group versions of other servers.
    """

    versions: Mapping[str, Sequence[str]]
    aggregated: Mapping[str, Sequence[str]]
    remote: Mapping[GroupVersion, RemoteVersion]

    def openapi(self) -> dict[str, str]:
        """Return the URLs of OpenAPI documents by path below /openapi/v3."""
        return {f"apis/{group}/{version}": one.openapi for (group, version), one in self.remote.items() if one.openapi}


@dataclass(slots=True)
class _KnownGroups:
    """The state of one APIService of another server. ``one``: as of its last request. ``due``: in trio's time."""

    one: ApiService
    found: RemoteVersion
    due: float = 0.0
    failures: int = 0
    running: bool = False


class RemoteDiscovery:
    """Requests the resources of other servers while ``run`` runs, and merges them with a registry."""

    def __init__(self, routes: Routes, backends: Backends, views: Views, openapi: RemoteOpenApi) -> None:
        self._routes = routes
        self._documents = openapi
        self._backends = backends
        self._known: dict[str, _KnownGroups] = {}
        self._changed = trio.Event()
        self._turns = trio.Semaphore(MOST_REQUESTS)
        self._merged: tuple[Registry | None, int, Others | None] = (None, -1, None)
        self._finds = 0
        views.follow(RESOURCE, self._follow)

    def others(self, registry: Registry) -> Others | None:
        """Return the part of other servers beside a registry; None if there are no other servers."""
        remote = self._routes.remote()
        if not remote:
            return None
        state = self._routes.changes + self._finds
        held_registry, held_state, merged = self._merged
        if merged is None or held_registry is not registry or held_state != state:
            versions = ordered_versions(self._routes.all().values(), registry)
            found = {}
            for group_version, one in remote.items():
                known = self._known.get(one.name)
                found[group_version] = known.found if known is not None else RemoteVersion()
            aggregated = ordered_versions(self._routes.all().values(), registry, aggregated=True)
            merged = Others(versions, aggregated, found)
            self._merged = (registry, state, merged)
        return merged

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask all servers when they are due, until cancelled."""
        for known in self._known.values():
            known.running = False
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                self._changed = trio.Event()
                due = self._begin_due(nursery)
                with trio.move_on_at(due):
                    await self._changed.wait()

    def _follow(self, _: Sequence[Event] | None) -> None:
        self._changed.set()

    def _begin_due(self, nursery: trio.Nursery) -> float:
        """Start the requests that are due. Return the time of the next one."""
        now, remote = trio.current_time(), {one.name: one for one in self._routes.remote().values()}
        gone = self._known.keys() - remote.keys()
        for name in gone:
            del self._known[name]
        self._documents.forget_converted(gone)
        for name, one in remote.items():
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = _KnownGroups(one, RemoteVersion())
            elif known.one != one:
                known.one, known.due, known.failures = one, now, 0
            if known.due <= now and not known.running:
                known.running = True
                nursery.start_soon(self._refresh, known)
        return min((known.due for known in self._known.values() if not known.running), default=float("inf"))

    async def _refresh(self, known: _KnownGroups) -> None:
        one = known.one
        try:
            async with self._turns:
                resources = await self._resources(one)
                found = RemoteVersion(resources=resources, fresh=True, openapi=await self._openapi(one))
            known.failures = 0
        except (AskError, *MALFORMED) as error:
            log.log(logging.DEBUG if known.failures else logging.INFO, "no discovery of %s: %s", one.name, error)
            found = RemoteVersion(openapi=known.found.openapi)
            known.failures += 1
        if found != known.found:
            known.found = found
            self._finds += 1
        delay = REFRESH if not known.failures else min(FIRST_RETRY * 2 ** min(known.failures - 1, 10), REFRESH)
        known.due = trio.current_time() + (delay if known.one == one else 0)
        known.running = False
        self._changed.set()

    async def _resources(self, one: ApiService) -> Resources:
        """Return the resources of a group version. Raises AskError, or one of MALFORMED.

        As in kube-apiserver, the server is asked whether or not its APIService is available.
        """
        assert one.service is not None
        url = await self._backends.url(one.service)
        client = await self._backends.client(one, url)
        answer = await client.ask("GET", f"{url}/apis", headers={**AGGREGATOR, "accept": ACCEPT}, timeout=TIMEOUT)
        if answer.status == 503:
            raise AskError("the server answered 503")
        if answer.status == 200 and "as=APIGroupDiscoveryList" in answer.headers.get("content-type", ""):
            return from_aggregated(_object(answer)).get((one.group, one.version), ())
        user = {"x-remote-user": AGGREGATOR["x-remote-user"]}
        answer = await client.ask("GET", url + one.path, headers=user, timeout=TIMEOUT)
        if answer.status != 200:
            raise AskError(f"{one.path} was answered with {answer.status}")
        return from_resource_list(_object(answer).get("resources") or ())

    async def _openapi(self, one: ApiService) -> str:
        """Return the URL of an OpenAPI v3 document as the other server's index has it; "" if there is none.

        A server without an index is asked for its v2 document, which is converted.
        """
        assert one.service is not None
        url = await self._backends.url(one.service)
        client = await self._backends.client(one, url)
        answer = await client.ask("GET", url + OPENAPI, headers=AGGREGATOR, timeout=TIMEOUT)
        path = f"apis/{one.group}/{one.version}"
        if answer.status == 404:
            try:
                return await self._documents.convert(one)
            except (AskError, *MALFORMED, RecursionError) as error:
                log.info("no OpenAPI document of %s: %s", one.name, error)
                return ""
        if answer.status != 200:
            return ""
        self._documents.forget_converted((one.name,))
        try:
            found = _object(answer)["paths"][path]["serverRelativeURL"]
        except MALFORMED:
            return ""
        return found if isinstance(found, str) and found.split("?")[0] == f"{OPENAPI}/{path}" else ""


def _object(answer: Answer) -> Mapping[str, Any]:
    value = orjson.loads(answer.body)
    if not isinstance(value, dict):
        raise ValueError("the answer is no object")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """One per server. ``discovery.run`` is a child of the supervision tree."""

    routes: Routes
    proxy: Proxy
    discovery: RemoteDiscovery
    openapi: RemoteOpenApi

"""Addresses of Services, for requests of this server to webhooks and other API servers in the cluster.

A Service is reached at its cluster IP, as by kube-apiserver without --enable-aggregator-routing. A cluster IP is no
address of a machine: without kube-proxy on the server's host, nobody answers there. So the cluster IP is tried first,
and if it takes no connection, a ready endpoint of the Service's EndpointSlices is chosen, at the target port.

    hook.default:443   clusterIP 10.96.0.7         reachable          10.96.0.7:443
                       EndpointSlice 172.17.0.4    10.96.0.7 is not   172.17.0.4:8443

Source: k8s.io/apiserver ``pkg/util/proxy/proxy.go``.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import trio

from kubechronicle.http.outgoing.networks import DIRECTLY, Connect

FindService = Callable[[str, str], Mapping[str, Any] | None]
"""(namespace, name) -> the Service, None if there is none."""
FindSlices = Callable[[str, str], Sequence[Mapping[str, Any]]]
"""(namespace, name of a Service) -> its EndpointSlices."""

TRIAL: Final = 1.0
"""Seconds within which a cluster IP must take a connection: its endpoints are near."""
TRUSTED: Final = 60.0
"""Seconds after which a cluster IP is tried again."""
MOST_TRIALS: Final = 1024
"""Services whose trials are kept."""
SERVICE_NAME: Final = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""


def cluster_address(service: Mapping[str, Any] | None, name: str, port: int) -> str:
    """Return the host and port at which a Service is reached. ValueError, with kube-apiserver's reason."""
    if service is None:
        raise ValueError(f'service "{name}" not found')
    spec = service.get("spec") or {}
    kind, address = spec.get("type") or "ClusterIP", spec.get("clusterIP") or ""
    if kind == "ExternalName":
        return joined(spec.get("externalName") or "", port)
    if kind == "ClusterIP" and address == "None":
        raise ValueError('cannot route to service with ClusterIP "None"')
    _port_of(spec, name, port)
    return joined(address, port)


def endpoint_addresses(
    service: Mapping[str, Any] | None, name: str, port: int, slices: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return host and port of the ready endpoints of a Service, those of its first address family first.

    ValueError, with kube-apiserver's reason: the Service has no such port, is of another type, or has no endpoints.
    """
    if service is None:
        raise ValueError(f'service "{name}" not found')
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        raise ValueError('unsupported service type "ExternalName"')
    port_name = _port_of(spec, name, port).get("name") or ""
    family = next(iter(spec.get("ipFamilies") or ()), None)
    ready = ready_endpoints(slices, port_name, family)
    found = [joined(each["addresses"][0], number) for each, number in ready]
    if not found:
        raise ValueError(f'no endpoints available for service "{name}"')
    return found


def _port_of(spec: Mapping[str, Any], name: str, port: int) -> Mapping[str, Any]:
    for each in spec.get("ports") or ():
        if each.get("port") == port:
            found: Mapping[str, Any] = each
            return found
    raise ValueError(f'no service port {port} found for service "{name}"')


def ready_endpoints(
    slices: Iterable[Mapping[str, Any]], port_name: str, family: str | None
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the ready endpoints of a Service with the number of its port there, those of an address family first.

    Only the first address of an endpoint is used. One whose condition is unknown counts as ready.
    """
    for each in sorted(slices, key=lambda one: one.get("addressType") != family):
        if each.get("addressType") == "FQDN":
            continue
        ports = [one.get("port") for one in each.get("ports") or () if (one.get("name") or "") == port_name]
        for port in filter(None, ports):
            for endpoint in each.get("endpoints") or ():
                if endpoint.get("addresses") and (endpoint.get("conditions") or {}).get("ready") is not False:
                    yield endpoint, port


def joined(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Trial(NamedTuple):
    """The result of a connection to a cluster IP. ``until``: trio time at which it is out of date."""

    reachable: bool
    until: float


class ServiceAddresses:
    """The address of each Service of the cluster at which this server reaches it.

    ``endpoints_first``: always choose an endpoint, as with --enable-aggregator-routing.
    ``connect``: the way to cluster IPs, to try them; None: those behind an egress proxy are not tried.
    """

    def __init__(
        self,
        find_service: FindService,
        find_slices: FindSlices,
        *,
        endpoints_first: bool = False,
        connect: Connect | None = DIRECTLY,
    ) -> None:
        self._find_service = find_service
        self._find_slices = find_slices
        self._endpoints_first = endpoints_first
        self._connect = connect
        self._trials: OrderedDict[str, _Trial] = OrderedDict()
        self._chosen: OrderedDict[tuple[str, str, int], str] = OrderedDict()
        """The endpoint of a Service that was chosen last. It is kept, so that connections to it are, too."""

    async def resolve(self, namespace: str, name: str, port: int) -> str:
        """Return host and port to connect to. ValueError, with kube-apiserver's reason: there is none."""
        while (found := self.resolve_nowait(namespace, name, port)) is None:
            await self._try(cluster_address(self._find_service(namespace, name), name, port))
        return found

    def resolve_nowait(self, namespace: str, name: str, port: int) -> str | None:
        """Return the same, None if the cluster IP must be tried first. ValueError."""
        service = self._find_service(namespace, name)
        if self._endpoints_first:
            return self._endpoint(service, namespace, name, port)
        address = cluster_address(service, name, port)
        if self._connect is None or service is None or (service.get("spec") or {}).get("type") == "ExternalName":
            return address
        trial = self._trials.get(address)
        if trial is None or trial.until < trio.current_time():
            return None
        if trial.reachable:
            return address
        try:
            return self._endpoint(service, namespace, name, port)
        except ValueError:
            return address  # the error of the connection says more than that there are no endpoints

    def failed(self, namespace: str, name: str, port: int, address: str) -> None:
        """Choose again for the next request: no connection was made to ``address``."""
        self._trials.pop(address, None)
        if self._chosen.get((namespace, name, port)) == address:
            del self._chosen[namespace, name, port]

    def _endpoint(self, service: Mapping[str, Any] | None, namespace: str, name: str, port: int) -> str:
        found = endpoint_addresses(service, name, port, self._find_slices(namespace, name))
        key = (namespace, name, port)
        chosen = self._chosen.get(key)
        if chosen not in found:
            family = found[0].startswith("[")
            chosen = random.choice([each for each in found if each.startswith("[") is family])
            self._chosen[key] = chosen
            if len(self._chosen) > MOST_TRIALS:
                self._chosen.popitem(last=False)
        return chosen

    async def _try(self, address: str) -> None:
        """Find out whether a cluster IP takes connections. A trial serves all requests of the next minute."""
        self._trials.pop(address, None)
        reachable = await self._takes_connections(address)
        self._trials[address] = _Trial(reachable, trio.current_time() + TRUSTED)
        if len(self._trials) > MOST_TRIALS:
            self._trials.popitem(last=False)

    async def _takes_connections(self, address: str) -> bool:
        assert self._connect is not None
        host, _, port = address.rpartition(":")
        try:
            with trio.move_on_after(TRIAL):
                stream = await self._connect(host.strip("[]"), int(port))
                await trio.aclose_forcefully(stream)
                return True
        except OSError:
            pass
        return False

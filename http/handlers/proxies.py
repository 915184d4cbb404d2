"""…/proxy of pods, services and nodes: any method and upgrades, passed on to a pod, an endpoint or a kubelet.

    …/pods/[SCHEME:]NAME[:PORT]/proxy/PATH, …/services/[SCHEME:]NAME[:PORT]/proxy/PATH, …/nodes/…
Source: k8s.io/kubernetes pkg/registry/core/{pod,service,node} (ResourceLocation).

The reverse proxy of nodes, pods and services: requests and answers as streams, upgrades as raw bytes.

Source: apimachinery util/proxy (UpgradeAwareHandler, Transport), net/http/httputil (ReverseProxy). As there: fields of
one connection are dropped, X-Forwarded-For is extended, X-Forwarded-Uri is set, fields for cross-origin requests are
dropped from answers, redirects and links lead through this server. Difference: the answer of a pod to an unfinished
body ends that body.
"""

from __future__ import annotations

import posixpath
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from kubechronicle.actors.writing.targets import Caller, Target
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import refuse_dry_run
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context, author_of
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.handlers.kubelets import kubelet_of, read_object
from kubechronicle.http.handlers.write_request import showing_warnings
from kubechronicle.http.messages import SWITCHED, Request, Response
from kubechronicle.http.outgoing.addresses import Reach
from kubechronicle.http.outgoing.answers import SWITCHING_PROTOCOLS
from kubechronicle.http.outgoing.networks import Network
from kubechronicle.http.outgoing.service_addresses import SERVICE_NAME, ready_endpoints
from kubechronicle.http.proxying.answers import (
    CACHE_CONTROL,
    HOP_BY_HOP,
    PATH_CHARACTERS,
    LinkRewriter,
    answer_of,
    named_by_connection,
    passed_fields,
)
from kubechronicle.http.proxying.backend_request import BackendDrain, BackendFailed, Stream, close_now
from kubechronicle.http.proxying.dialing import BackendServer, ClientFiles, ClientTls, DialError, host_port
from kubechronicle.http.proxying.kept_streams import KeptStreams
from kubechronicle.http.proxying.switching import (
    SwitchFailed,
    body_begin,
    pass_through,
    read_error,
    require_switch,
    send_request,
    switch,
)
from kubechronicle.http.streaming.pacing import paced


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The server to proxy to, and its name for it. ``path``: decoded, as it is asked for there."""

    scheme: str
    authority: str
    path: str
    server: BackendServer


def join_path(path: str) -> str:
    """Clean a path, and keep the slash at its end (JoinPreservingTrailingSlash).

    >>> join_path("/a/../b//c/"), join_path("")
    ('/b/c/', '')
    """
    if not path:
        return ""
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    return f"{cleaned}/" if path.endswith("/") and cleaned != "/" else cleaned


async def proxy(
    request: Request, location: Location, drain: BackendDrain, kept: KeptStreams, *, session_rate: int = 0
) -> Response:
    """Send the request there, and return the answer. StatusError 500, 503.

    ``kept``: connections to use again. ``session_rate``: bytes a second of an upgraded connection; 0: no limit.
    """
    if request.upgrade is not None:
        return await _upgrade(request, location, session_rate)
    path = location.path
    if request.path.endswith("/") and not path.endswith("/"):
        path += "/"
    if not path and request.method in ("GET", "HEAD"):
        query = f"?{request.query_string}" if request.query_string else ""
        return Response(301, [CACHE_CONTROL, ("location", f"{request.raw_path}/{query}")])
    suffix = location.path
    if request.path.endswith("/") and not suffix.endswith("/"):
        suffix += "/"
    rewriter = LinkRewriter(
        prefix=request.path.removesuffix(suffix),
        server=location.authority,
        request_host=request.headers.get("host"),
    )
    body, target = await body_begin(request), _target(path, request.query_string)
    fields = [*_request_fields(request, location), *_forwarded_fields(request, target, rewriter.prefix)]
    send = partial(send_request, request=request, body=body, target=target, fields=fields)
    try:
        asked, head = await kept.ask(location.server, request.method, send, repeatable=not body.first)
        return await answer_of(asked, head, rewriter, drain)
    except (BackendFailed, DialError) as error:
        refused = _refused(error)
        raise refused or status.service_unavailable(f"error trying to reach service: {error}") from None


def _refused(error: Exception) -> status.StatusError | None:
    """Return the answer to a proxy whose address is itself a mistake, as kube-apiserver's ResourceLocation has it."""
    return status.bad_request(error.refused) if isinstance(error, DialError) and error.refused else None


def _target(path: str, query: str) -> str:
    target = quote(path or "/", safe=PATH_CHARACTERS)
    return f"{target}?{query}" if query else target


def _forwarded_fields(request: Request, target: str, prefix: str) -> Iterable[tuple[str, str]]:
    path = target.partition("?")[0]
    joined = posixpath.normpath(f"{prefix}/{path.lstrip('/')}")
    yield "x-forwarded-uri", f"{joined}/" if path.endswith("/") else joined
    yield "x-forwarded-for", _forwarded_for(request)


def _request_fields(request: Request, location: Location) -> Iterable[tuple[str, str]]:
    dropped = HOP_BY_HOP | {"content-length", "expect", "x-forwarded-for", "x-forwarded-uri", "host"}
    dropped |= named_by_connection(request.headers.get_all("connection"))
    yield "host", request.headers.get("host") or location.authority
    for name, value in request.headers:
        if name not in dropped:
            yield name, value


def _forwarded_for(request: Request) -> str:
    return ", ".join([*request.headers.get_all("x-forwarded-for"), request.client[0]])


async def _upgrade(request: Request, location: Location, rate: int) -> Response:
    """Pass an upgrade through: the head of the request, then raw bytes both ways. StatusError 400, 500."""
    assert request.upgrade is not None
    fields = [(name, value) for name, value in request.headers if name != "x-forwarded-for"]
    fields.append(("x-forwarded-for", _forwarded_for(request)))
    stream: Stream | None = None
    try:
        target = _target(location.path, request.query_string)
        stream, head = await switch(location.server, request.method, target, fields)
        require_switch(head)
        if head.status != SWITCHING_PROTOCOLS:
            return Response(head.status, passed_fields(head.fields), await read_error(stream, head))
        await pass_through(request.upgrade, paced(stream, rate), head, draining=request.draining)
    except DialError as error:
        raise _refused(error) or status.unknown(f"error dialing backend: {error}") from None
    except SwitchFailed as error:
        raise status.unknown(str(error)) from None
    finally:
        if stream is not None:
            close_now(stream)
    return SWITCHED


METHODS: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
KINDS: Final = {"pods": "PodProxyOptions", "services": "ServiceProxyOptions", "nodes": "NodeProxyOptions"}
SLICES: Final = "endpointslices.discovery.k8s.io"
SCHEMES: Final = frozenset(("", "http", "https"))
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_INSECURE = ClientTls(ClientFiles())
"""The certificates of pods are not verified, as in kube-apiserver: they have no names that could be checked."""


def is_proxied(rt: ResourceType, context: Context) -> bool:
    """Tell whether the path is that of a proxy."""
    info = context.info
    fits = bool(info.namespace) == rt.namespaced and not info.deprecated_watch
    return info.subresource == "proxy" and not rt.group and rt.resource in KINDS and fits


async def connect(backend: Backend, request: Request, context: Context, rt: ResourceType) -> Response:
    """Answer as the pod, service or node does. StatusError 400, 404, 405, 500, 503."""
    if request.method not in METHODS:
        raise status.method_not_allowed()
    refuse_dry_run(context.query.get_all("dryRun"))
    info = context.info
    path = "/".join(info.parts[3:])
    path = f"/{path}" if path and not path.startswith("/") else path
    if info.path.endswith("/") and not path.endswith("/"):
        path += "/"
    options: dict[str, Any] = {"apiVersion": "v1", "kind": KINDS[rt.resource]}
    if path:
        options["path"] = path
    who = author_of(request, context)
    caller = Caller(who=who, deadline=context.deadline, limited=True, turn=context.turn)
    namespace = info.namespace if rt.namespaced else ""
    notes = {} if context.audit is None else context.audit.annotations
    target = Target(rt=rt, namespace=namespace, name=info.name, subresource="proxy", who=who, annotations=notes)
    with showing_warnings(context, target):
        await backend.store.writes.admit_connect(caller, target, options)
    scheme, name, port = split_id(info.name, rt.resource.removesuffix("s"))
    location = await LOCATORS[rt.resource](backend, context, namespace, scheme, name, port)
    joined = join_path(str(options.get("path") or ""))
    return await proxy(request, location(joined), backend.drain, backend.kept, session_rate=backend.session_rate)


def split_id(identity: str, kind: str) -> tuple[str, str, str]:
    """Split NAME, NAME:PORT or SCHEME:NAME:PORT into scheme, name and port. StatusError 400."""
    parts = identity.split(":")
    if len(parts) <= 2:
        parts = ["", *parts]
    scheme, name, port = [*parts, ""][:3] if len(parts) < 4 else ("?", "", "")
    if not name or scheme not in SCHEMES:
        raise status.bad_request(f"invalid {kind} request {go_quote(identity)}")
    return scheme, name, port


At = Callable[[str], Location]


def _at(backend: Backend, scheme: str, host: str, port: str) -> At:
    """Return the location at a host, for any path. Without a port, the scheme's."""
    scheme = scheme or "http"
    number = int(port) if port.isdecimal() else 0
    shown = host_port(host, port) if port else f"[{host}]" if ":" in host else host

    server = BackendServer(
        host=host,
        port=number or DEFAULT_PORTS[scheme],
        tls=_INSECURE.context() if scheme == "https" else None,
        connect=backend.networks.connect_to(Network.CLUSTER, Reach.UNICAST),
    )
    return lambda path: Location(scheme=scheme, authority=shown, path=path, server=server)


async def _pod(backend: Backend, context: Context, namespace: str, scheme: str, name: str, port: str) -> At:
    def place(pod: Object) -> tuple[str, str]:
        with_ports = (each["ports"][0] for each in pod["spec"].get("containers") or () if each.get("ports"))
        first: Object = next(with_ports, {})
        return next(iter(_addresses(pod)), ""), port or str(first.get("containerPort", ""))

    return _at(backend, scheme, *await read_object(backend, context, "pods", namespace, name, place))


def _addresses(pod: Object) -> list[str]:
    state = pod.get("status") or {}
    addresses = [each.get("ip", "") for each in state.get("podIPs") or ()]
    return addresses or ([state["podIP"]] if state.get("podIP") else [])


async def _service(backend: Backend, context: Context, namespace: str, scheme: str, name: str, port: str) -> At:
    def name_of_port(service: Object) -> str:
        for each in service["spec"].get("ports") or ():
            if each["port"] == int(port):
                return str(each.get("name", ""))
        raise status.service_unavailable(f"no service port {int(port)} found for service {go_quote(name)}")

    wanted = port
    if port.isdecimal():
        wanted = await read_object(backend, context, "services", namespace, name, name_of_port)
    slices = await _slices(backend, context, namespace, name)
    family = await _family(backend, context)
    for endpoint, number in ready_endpoints(slices, wanted, family):
        if await _is_of_pod(backend, context, namespace, endpoint):
            return _at(backend, scheme, endpoint["addresses"][0], str(number))
    raise status.service_unavailable(f"no endpoints available for service {go_quote(name)}")


async def _slices(backend: Backend, context: Context, namespace: str, name: str) -> list[Object]:
    """Return the EndpointSlices of a Service and their endpoints, both in random order."""
    reads = backend.store.reads
    await reads.wait_consistent()
    entries = [each for each in reads.entries(SLICES, namespace) if each.labels.get(SERVICE_NAME) == name]
    slices = []
    for entry in entries:
        found = await context.turn.read(entry, lambda obj: obj)
        endpoints = list(found.get("endpoints") or ())
        random.shuffle(endpoints)
        slices.append({**found, "endpoints": endpoints})
    random.shuffle(slices)
    return slices


async def _family(backend: Backend, context: Context) -> str:
    """Return the address family that the cluster prefers: that of its own Service."""

    def first(service: Object) -> str:
        return str(next(iter(service["spec"].get("ipFamilies") or ()), "IPv4"))

    try:
        return await read_object(backend, context, "services", "default", "kubernetes", first, revision=0)
    except StatusError:
        return "IPv4"


async def _is_of_pod(backend: Backend, context: Context, namespace: str, endpoint: Mapping[str, Any]) -> bool:
    """Tell whether an endpoint is a pod of the same namespace. Others are not proxied to."""
    target = endpoint.get("targetRef") or {}
    if target.get("namespace") != namespace:
        return False
    try:
        addresses = await read_object(backend, context, "pods", namespace, target.get("name", ""), _addresses)
    except StatusError:
        return False
    return endpoint["addresses"][0] in addresses


async def _node(backend: Backend, context: Context, namespace: str, scheme: str, name: str, port: str) -> At:
    address = await kubelet_of(backend, context, name)
    if port and port != str(address.port):
        return _at(backend, scheme, address.host, port)

    try:
        server = backend.kubelets.server(address, reach=Reach.UNICAST)
    except DialError as error:
        raise status.service_unavailable(f"error trying to reach service: {error}") from None
    return lambda path: Location(scheme="https", authority=str(address), path=path, server=server)


Locator = Callable[[Backend, Context, str, str, str, str], Awaitable[At]]
LOCATORS: Final[Mapping[str, Locator]] = {"pods": _pod, "services": _service, "nodes": _node}

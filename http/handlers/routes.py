"""The verb of a request for a resource, by method and path: the routes that kube-apiserver registers for a type.

GET    /apis/apps/v1/deployments        list (or watch)     all other methods there: 405
GET    /apis/apps/v1/deployments/x      no route            404: an object with a namespace has no other path
GET    /api/v1/namespaces//pods         list of all namespaces; a creation is refused by its rules; by name: 400
DELETE …/selfsubjectreviews/x           no route            404: no verb of a review takes a name

Custom resources have no such routes: kube-apiserver chooses their handler by the verb and subresource that the path
names (``custom_verb``), so some of the answers differ.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from kubechronicle.api.builtin.strategies import strategy_of
from kubechronicle.api.errors import status
from kubechronicle.api.meta.request_info import RequestInfo
from kubechronicle.api.registry.registry import ResourceType

Methods = Mapping[str, str]

COLLECTION: Final[Methods] = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
COLLECTION_VERBS: Final = frozenset((*COLLECTION.values(), "watch"))
EVERYWHERE: Final[Methods] = {"GET": "list"}
NAMED: Final[Methods] = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCE: Final[Methods] = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}
WATCHED: Final[Methods] = {"GET": "watch"}
NONE: Final[Methods] = {}


def route(method: str, info: RequestInfo, rt: ResourceType, own_subresources: Container[str]) -> str:
    """Return the verb. StatusError 404 if nothing is served at the path, 405 for another method.

    ``own_subresources``: those that are no other view of their object.
    """
    if not info.subresource and bool(info.namespace) == rt.namespaced and "//" not in info.path:
        # Most paths are plain. All rules below are met if the method's verb is the authorized one.
        verb = (NAMED if info.name else COLLECTION).get(method, "")
        if verb == info.verb and verb in rt.verbs and not info.deprecated_watch and len(info.parts) <= 3:
            return verb
    if len(info.parts) > 3 or (info.namespace and not _may_be_below(info, rt)):
        raise status.path_not_found()
    is_unnamed = "//" in info.path.rstrip("/")
    if is_unnamed and not _names_no_namespace(info, rt):
        raise status.path_not_found()
    methods, verbs = _routes(info, rt, own_subresources, is_everywhere=not is_unnamed and _is_everywhere(info, rt))
    if not any(verb in verbs for verb in methods.values()):
        raise status.path_not_found()
    verb = methods.get(method, "")
    if verb not in verbs:
        raise status.method_not_allowed()
    if verb == "list" and info.verb == "watch":
        verb = "watch"
    if is_unnamed and (info.name or verb not in COLLECTION_VERBS):
        raise status.bad_request("Namespace parameter required.")
    if verb != info.verb:
        # Another verb was authorized: the old verbs in paths (/proxy/…, /watch/… before a subresource) are not served.
        raise status.path_not_found()
    return verb


CUSTOM_SUBRESOURCE_VERBS: Final = frozenset(("get", "update", "patch"))


def is_custom_path(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether a path that names a custom resource belongs to it: both have a namespace, or none.

    Lists and watches may be of all namespaces.
    """
    if rt.namespaced:
        return bool(info.namespace) or info.verb in ("list", "watch")
    return not info.namespace


def custom_verb(info: RequestInfo, rt: ResourceType) -> str:
    """Return the verb of a request for a custom resource. StatusError 404 for an unknown subresource, 405 for a verb.

    Source: apiextensions-apiserver ``pkg/apiserver/customresource_handler.go``.
    """
    if info.subresource and info.subresource not in rt.subresources:
        raise status.not_found(rt, info.name)
    if info.verb not in (CUSTOM_SUBRESOURCE_VERBS if info.subresource else rt.verbs):
        raise status.method_not_supported(rt, info.verb)
    if info.verb in ("update", "patch") and not info.name:
        raise status.bad_request("name must be provided")
    return info.verb


def _names_no_namespace(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether the path is …/namespaces//pods: that of a namespace with an empty name, and well formed elsewhere. A
    list there is one of all namespaces, and was authorized as such."""
    found = "/namespaces//" in info.path and info.path.count("//") == 1 and "///" not in info.path
    return found and rt.namespaced and not info.namespace and not info.deprecated_watch


def _is_everywhere(info: RequestInfo, rt: ResourceType) -> bool:
    return rt.namespaced and not info.namespace


def _may_be_below(info: RequestInfo, rt: ResourceType) -> bool:
    """Tell whether objects of the type exist below a namespace. Of cluster-scoped ones only the Namespace itself does:
    rights in a namespace must not authorize anything outside of it."""
    if rt.namespaced:
        return True
    itself = rt.resource == "namespaces" and info.name == info.namespace
    return itself and f"/namespaces/{info.namespace}/namespaces/" not in info.path


def _routes(
    info: RequestInfo, rt: ResourceType, own_subresources: Container[str], *, is_everywhere: bool
) -> tuple[Methods, Container[str]]:
    """Return the methods of this shape of path, and the verbs that the type serves. ``is_everywhere``: the path names
    no namespace of a type that has them."""
    if info.subresource:
        subresource = rt.subresources.get(info.subresource)
        served = info.subresource in own_subresources or info.subresource in strategy_of(rt.resource).subresources
        if subresource is None or not served or is_everywhere:
            return NONE, ()
        return SUBRESOURCE, subresource.verbs
    if info.name and is_everywhere:
        return NONE, ()
    if info.deprecated_watch:
        return WATCHED, rt.verbs
    if info.name:
        return NAMED, rt.verbs
    return (EVERYWHERE if is_everywhere else COLLECTION), rt.verbs

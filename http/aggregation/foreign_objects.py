"""The objects of extension API servers, for the control loops: found by discovery, asked for in the server's own name.

    list                GET    /apis/g/v1/namespaces/a/things?limit=200     as PartialObjectMetadataList, page by page
    delete_collection   DELETE /apis/g/v1/namespaces/a/things               {"propagationPolicy": "Background"}
    patch               PATCH  /apis/g/v1/namespaces/a/things/x             merge patch

Implements actors/loops/foreign_objects.py. Errors have client-go's texts, as they stand in conditions of namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import orjson

from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.registry.api_services import ForeignResource, foreign_resource
from kubechronicle.api.registry.registry import Registry
from kubechronicle.api.values.objects import Object, ReadOnlyObject
from kubechronicle.http.aggregation.backends import Backends
from kubechronicle.http.aggregation.discovery import RemoteDiscovery
from kubechronicle.http.aggregation.routes import Routes
from kubechronicle.http.outgoing.client import Answer, AskError
from kubechronicle.http.outgoing.reviews import failure

PAGE: Final = 200
"""Objects in a page: metadata of 15 KB each still fit an answer."""
MOST_PAGES: Final = 1000
TIMEOUT: Final = 30.0
"""Seconds for one request."""
USER: Final = {"x-remote-user": "system:apiserver", "x-remote-group": "system:masters"}
"""The user of the loops' own writes (actors.store.system_caller)."""
METADATA: Final = ",".join(
    [*(f"application/json;as={{kind}};g=meta.k8s.io;v={version}" for version in ("v1", "v1beta1")), "application/json"]
)


class RemoteObjects:
    """``registry``: returns the resources of this server; a foreign one of the same name is left out."""

    def __init__(
        self, routes: Routes, discovery: RemoteDiscovery, backends: Backends, registry: Callable[[], Registry]
    ) -> None:
        self._routes = routes
        self._discovery = discovery
        self._backends = backends
        self._registry = registry

    def resources(self) -> Sequence[ForeignResource]:
        registry = self._registry()
        others = self._discovery.others(registry)
        found: dict[tuple[str, str], ForeignResource] = {}
        for group, versions in others.versions.items() if others is not None else ():
            for version in versions:
                remote = others.remote.get((group, version)) if others is not None else None
                for one in remote.resources if remote is not None else ():
                    if registry.storage(f"{one['resource']}.{group}") is None:
                        found.setdefault((group, one["resource"]), foreign_resource(group, version, one))
        return list(found.values())

    def undiscovered(self) -> Sequence[str]:
        others = self._discovery.others(self._registry())
        if others is None:
            return ()
        return sorted(f"{group}/{version}" for (group, version), one in others.remote.items() if not one.fresh)

    async def list(self, resource: ForeignResource, namespace: str) -> list[ReadOnlyObject]:
        found: list[ReadOnlyObject] = []
        token = ""
        for _ in range(MOST_PAGES):
            query = f"?limit={PAGE}" + (f"&continue={quote(token, safe='')}" if token else "")
            accept = METADATA.format(kind="PartialObjectMetadataList")
            page = await self._ask("list", resource, resource.path(namespace) + query, accept=accept)
            found += [one for one in page.get("items") or () if isinstance(one, dict)]
            metadata = page.get("metadata")
            token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
            if not token:
                break
        return found

    async def get(self, resource: ForeignResource, namespace: str, name: str) -> ReadOnlyObject:
        accept = METADATA.format(kind="PartialObjectMetadata")
        return await self._ask("get", resource, resource.path(namespace, quote(name, safe="")), accept=accept)

    async def delete_collection(self, resource: ForeignResource, namespace: str) -> None:
        options = {"propagationPolicy": "Background"}
        await self._ask("deletecollection", resource, resource.path(namespace), body=_delete_options(options))

    async def delete(self, resource: ForeignResource, namespace: str, name: str, options: Object) -> None:
        path = resource.path(namespace, quote(name, safe=""))
        await self._ask("delete", resource, path, body=_delete_options(options))

    async def patch(self, resource: ForeignResource, namespace: str, name: str, change: Object) -> None:
        path = resource.path(namespace, quote(name, safe=""))
        await self._ask("patch", resource, path, body=orjson.dumps(change))

    async def _ask(
        self, verb: str, resource: ForeignResource, target: str, *, body: bytes = b"", accept: str = "application/json"
    ) -> Mapping[str, Any]:
        """Return the object in an answer; StatusError."""
        method = {"patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}.get(verb, "GET")
        kind = "application/merge-patch+json" if verb == "patch" else "application/json"
        headers = {**USER, "accept": accept, **({"content-type": kind} if body else {})}
        one = self._routes.remote().get((resource.group, resource.version))
        if one is None or one.service is None:
            raise _refused(404, verb, resource)
        if not one.available:
            raise _refused(503, verb, resource)
        try:
            url = await self._backends.url(one.service)
        except ValueError:
            raise _refused(503, verb, resource) from None
        try:
            client = await self._backends.client(one, url)
            answer = await client.ask(method, f"{url}{target}", body=body, headers=headers, timeout=TIMEOUT)
        except AskError as error:
            self._backends.failed(one.service, url)
            raise StatusError(503, "ServiceUnavailable", f"error trying to reach service: {error.why}") from None
        return _object(answer, verb, resource)


def _delete_options(options: Object) -> bytes:
    return orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", **options})


def _refused(code: int, verb: str, resource: ForeignResource, answer: Answer | None = None) -> StatusError:
    """Return the error of an answer that is no Status, as client-go words it."""
    why = failure(answer if answer is not None else Answer(code, {}, b""))
    return StatusError(code, "", f"{why} ({verb} {resource.plural}.{resource.group})")


def _object(answer: Answer, verb: str, resource: ForeignResource) -> Mapping[str, Any]:
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict) and value.get("kind") == "Status" and value.get("status") == "Failure":
        raise StatusError(answer.status, str(value.get("reason") or ""), str(value.get("message") or ""))
    if not 200 <= answer.status <= 206:
        raise _refused(answer.status, verb, resource, answer)
    if not isinstance(value, dict):
        raise StatusError(500, "InternalError", f"the answer to {verb} {resource.plural}.{resource.group} is no object")
    return value

"""The kubelet of a node, for the handlers of logs, exec and proxies."""

from __future__ import annotations

from kubechronicle.api.errors import status
from kubechronicle.api.values.objects import Object
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.proxying.kubelets import KubeletAddress, NoAddress


async def read_object(backend: Backend, resource: str, namespace: str, name: str) -> Object:
    """Return a core object. StatusError 404."""
    rt = backend.store.registry.builtin("", "v1", resource)
    entry = await backend.store.reads.get(rt, namespace, name)
    if entry is None:
        raise status.not_found(rt, name)
    return entry.object()


async def kubelet_of(backend: Backend, node_name: str) -> KubeletAddress:
    """Return the address of a node's kubelet. StatusError 404 without the node, 500 if it has no address."""
    node = await read_object(backend, "nodes", "", node_name)
    try:
        return backend.kubelets.address_of(node)
    except NoAddress as error:
        raise status.unknown(str(error)) from None

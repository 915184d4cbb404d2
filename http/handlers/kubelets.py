"""The objects that handlers of logs, exec, proxies and tokens read, and the kubelet of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.http.context import Context
from kubechronicle.http.handlers.backend import Backend
from kubechronicle.http.proxying.kubelets import KubeletAddress, NoAddress

T = TypeVar("T")


async def read_object(
    backend: Backend,
    context: Context,
    resource: str,
    namespace: str,
    name: str,
    look: Callable[[Object], T],
    *,
    revision: int | None = None,
    missing: ResourceType | None = None,
) -> T:
    """Return what ``look`` finds in a core object (Turn.read). StatusError 404, of the resource ``missing`` if given.

    ``revision``: 0 for the object as this replica has it; None for the newest one.
    """
    rt = backend.store.registry.builtin("", "v1", resource)
    entry = await backend.store.reads.get(rt, namespace if rt.namespaced else "", name, revision=revision)
    if entry is None:
        raise status.not_found(missing or rt, name)
    return await context.turn.read(entry, look)


async def kubelet_of(
    backend: Backend, context: Context, node: str, *, revision: int | None = None, missing: ResourceType | None = None
) -> KubeletAddress:
    """Return the address of a node's kubelet. StatusError as ``read_object``; 500 if the node has no address."""
    try:
        return await read_object(
            backend, context, "nodes", "", node, backend.kubelets.address_of, revision=revision, missing=missing
        )
    except NoAddress as error:
        raise status.unknown(str(error)) from None

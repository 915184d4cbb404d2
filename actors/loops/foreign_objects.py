"""The objects of extension API servers, as control loops deal with them: by discovery, lists, deletions and patches.

kube-controller-manager meets them through its discovery client and metadata client. Here the interface is given by
http/aggregation/foreign_objects.py, which asks the other servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kubechronicle.api.registry.api_services import ForeignResource
from kubechronicle.api.values.objects import Object, ReadOnlyObject


class ForeignObjects(Protocol):
    """The API groups behind APIServices with a Service.

    Calls raise StatusError: what the other server has answered, or 503 if it gave no answer.
    """

    def resources(self) -> Sequence[ForeignResource]:
        """Return the discovered resources, each in the preferred version of its group that has it."""
        ...

    def undiscovered(self) -> Sequence[str]:
        """Return the group versions whose resources are unknown now, such as "metrics.k8s.io/v1beta1", sorted."""
        ...

    async def list(self, resource: ForeignResource, namespace: str) -> list[ReadOnlyObject]:
        """Return the objects of a namespace ("": of all), perhaps with their metadata alone."""
        ...

    async def get(self, resource: ForeignResource, namespace: str, name: str) -> ReadOnlyObject:
        """Return an object, perhaps with its metadata alone."""
        ...

    async def delete_collection(self, resource: ForeignResource, namespace: str) -> None:
        """Delete all objects of a namespace in the background."""
        ...

    async def delete(self, resource: ForeignResource, namespace: str, name: str, options: Object) -> None:
        """Delete an object. ``options``: the fields of the DeleteOptions."""
        ...

    async def patch(self, resource: ForeignResource, namespace: str, name: str, change: Object) -> None:
        """Change an object by a merge patch."""
        ...


class NoForeignObjects:
    """No objects, as a server without extension API servers has. No resource exists to make the other calls with."""

    def resources(self) -> Sequence[ForeignResource]:
        return ()

    def undiscovered(self) -> Sequence[str]:
        return ()

    async def list(self, resource: ForeignResource, namespace: str) -> list[ReadOnlyObject]:
        raise NotImplementedError

    async def get(self, resource: ForeignResource, namespace: str, name: str) -> ReadOnlyObject:
        raise NotImplementedError

    async def delete_collection(self, resource: ForeignResource, namespace: str) -> None:
        raise NotImplementedError

    async def delete(self, resource: ForeignResource, namespace: str, name: str, options: Object) -> None:
        raise NotImplementedError

    async def patch(self, resource: ForeignResource, namespace: str, name: str, change: Object) -> None:
        raise NotImplementedError

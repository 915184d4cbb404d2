"""Writes of control loops that accept another writer's result: the object was created or deleted in the meantime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubechronicle.actors.loops.causes import deletion_of
from kubechronicle.actors.store import Store, system_caller
from kubechronicle.actors.writing.writes import Target
from kubechronicle.api.errors.status import StatusError
from kubechronicle.api.meta.options import DeleteOptions
from kubechronicle.api.values.objects import Object

NAMESPACE_ENDS: Final = "NamespaceTerminating"
"""The cause of a rejection. One without it comes from admission: a quota, a policy, a webhook."""


async def create_unless_exists(
    store: Store,
    component: str,
    target: Target,
    obj: Object,
    *,
    cause: int | None = None,
    unless_namespace_ends: bool = False,
) -> None:
    """Create the object; ``obj`` may lack apiVersion and kind. StatusError.

    ``cause``: as in causes.py; None: the object's deletion, if there was one.
    ``unless_namespace_ends``: also accept that the namespace is gone or terminating.
    """
    body = {"apiVersion": target.rt.api_version, "kind": target.rt.kind, **obj}
    if cause is None:
        cause = deletion_of(store.reads, target.rt.resource, target.namespace, target.name)
    try:
        await store.writes.create(system_caller(component, "create", cause=cause), target, body)
    except StatusError as error:
        if error.reason != "AlreadyExists" and not (unless_namespace_ends and _namespace_ends(error)):
            raise


def _namespace_ends(error: StatusError) -> bool:
    causes = (error.details or {}).get("causes") or ()
    return error.code == 404 or any(cause.get("reason") == NAMESPACE_ENDS for cause in causes)


async def edit_if_exists(
    store: Store, component: str, target: Target, change: Callable[[Object], Object], *, cause: int
) -> None:
    """Change the object as ``Writes.edit`` does, if it still exists."""
    try:
        await store.writes.edit(system_caller(component, "update", cause=cause), target, change)
    except StatusError as error:
        if error.code != 404:
            raise


async def delete_if_exists(store: Store, component: str, target: Target, options: DeleteOptions, *, cause: int) -> None:
    """Delete the object, if it still exists."""
    try:
        await store.writes.delete(system_caller(component, "delete", cause=cause), target, options)
    except StatusError as error:
        if error.code != 404:
            raise

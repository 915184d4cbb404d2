"""The creation of namespaces on behalf of admission (NamespaceAutoProvision)."""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.loops.edits import create_unless_exists
from kubechronicle.actors.store import Store
from kubechronicle.actors.writing.writes import Target

COMPONENT: Final = "kube-apiserver"


async def create_namespace(store: Store, name: str) -> None:
    """Create a namespace unless it exists. StatusError."""
    rt = store.registry.builtin("", "v1", "namespaces")
    target = Target(rt=rt, name=name, manager=COMPONENT)
    await create_unless_exists(store, COMPONENT, target, {"metadata": {"name": name}})

"""Table columns of ReplicaSets and ControllerRevisions, merged with those of the kinds' folders.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.apps.daemonset import columns as daemonset
from kubechronicle.api.builtin.apps.deployment import columns as deployment
from kubechronicle.api.builtin.apps.statefulset import columns as statefulset
from kubechronicle.api.builtin.common.cell_text import Since, selector_text
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Column,
    Printer,
    age_of,
    at,
    field,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.podtemplate.columns import template_containers
from kubechronicle.api.values.objects import ReadOnlyObject


def _replica_set(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    return [
        name_of(obj),
        at(obj, "spec", "replicas", default=0),
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        age_of(obj, since),
        *template_containers(obj),
        selector_text(at(obj, "spec", "selector")),
    ]


def _controller_revision(obj: ReadOnlyObject, since: Since) -> list[Any]:
    owner = next((owner for owner in obj["metadata"].get("ownerReferences") or () if owner.get("controller")), None)
    controller = "<none>"
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner.get('kind', '')}.{group}" if group else owner.get("kind", "")
        controller = f"{kind.lower()}/{owner.get('name', '')}"
    return [name_of(obj), controller, obj.get("revision") or 0, age_of(obj, since)]


PRINTERS: Final[Mapping[str, Printer]] = {
    **daemonset.PRINTERS,
    **deployment.PRINTERS,
    **statefulset.PRINTERS,
    "replicasets.apps": Printer(
        (
            NAME,
            field("Desired", "apps.v1.ReplicaSetSpec.replicas", "integer"),
            field("Current", "apps.v1.ReplicaSetStatus.replicas", "integer"),
            field("Ready", "apps.v1.ReplicaSetStatus.readyReplicas", "integer"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "apps.v1.ReplicaSetSpec.selector"),
        ),
        _replica_set,
    ),
    "controllerrevisions.apps": Printer(
        (
            NAME,
            Column("Controller", text="Controller of the object"),
            field("Revision", "apps.v1.ControllerRevision.revision"),
            AGE,
        ),
        _controller_revision,
    ),
}

"""ReplicationController: a number of equal pods, the form before ReplicaSets.

Source: Kubernetes' ``registry/core/replicationcontroller``, ``apis/core`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, containers_text, labels_text
from kubechronicle.api.builtin.common.checks import sorted_labels
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    Printer,
    age_of,
    at,
    field_column,
    name_of,
    wide_field,
)
from kubechronicle.api.builtin.core.pod.options import USUAL, PodOptions
from kubechronicle.api.builtin.core.podtemplate import (
    MISMATCH,
    long_running,
    named_template_warnings,
    pod_template,
    replica_set_status,
)
from kubechronicle.api.errors.field_errors import Cause, invalid_value, required
from kubechronicle.api.strategy.strategy import ORPHAN, Check, Strategy, status_update
from kubechronicle.api.values.names import any_name
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def default_replication_controller(obj: Object) -> None:
    """Copy the template's labels to the selector and to the object's labels."""
    labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not obj["spec"].get("selector"):
            obj["spec"]["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


def validate_replication_controller(obj: Object, options: PodOptions = USUAL) -> list[Cause]:
    """Check the selector and template of a ReplicationController."""
    spec = obj["spec"]
    selector = spec.get("selector") or {}
    causes = [] if selector else [required("spec.selector")]
    template = spec.get("template")
    if template is None:
        return [*causes, required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels")
    if selector and any((labels or {}).get(key) != value for key, value in selector.items()):
        causes.append(invalid_value("spec.template.metadata.labels", sorted_labels(labels), MISMATCH))
    causes += pod_template(template, "spec.template", options)
    return causes + long_running(template, "spec.template", "ReplicationController")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    names, images = containers_text(at(obj, "spec", "template", "spec", "containers"))
    return [
        name_of(obj),
        at(obj, "spec", "replicas", default=0),
        at(obj, "status", "replicas", default=0),
        at(obj, "status", "readyReplicas", default=0),
        age_of(obj, since),
        names,
        images,
        labels_text(at(obj, "spec", "selector")),
    ]


KIND: Final = BuiltinKind(
    resource="replicationcontrollers",
    strategy=Strategy(
        pod_spec="spec.template.spec",
        check_name=any_name,  # a tag has the rule
        defaults_again=True,
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        generation=True,
        dependents=ORPHAN,
        validate=validate_replication_controller,
        warnings=named_template_warnings,
        subresources=MappingProxyType({"status": status_update("spec", validate_update=replica_set_status)}),
    ),
    default_functions={"core.v1.ReplicationController": default_replication_controller},
    printer=Printer(
        (
            NAME,
            field_column("Desired", "core.v1.ReplicationControllerSpec.replicas", "integer"),
            field_column("Current", "core.v1.ReplicationControllerStatus.replicas", "integer"),
            field_column("Ready", "core.v1.ReplicationControllerStatus.readyReplicas", "integer"),
            AGE,
            CONTAINERS,
            IMAGES,
            wide_field("Selector", "core.v1.ReplicationControllerSpec.selector"),
        ),
        _cells,
    ),
)

"""The strategies of flowcontrol.apiserver.k8s.io.

Sources are the ``strategy.go`` files of Kubernetes' ``registry/flowcontrol``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.builtin.flowcontrol import validation
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object


def keep_all_metadata(new: Object, old: Object) -> None:
    """Keep all metadata but the managed fields, which record the update of the status."""
    metadata = new["metadata"]
    entries = metadata.get("managedFields")
    metadata.clear()
    metadata.update(old["metadata"])
    metadata.pop("managedFields", None)
    if entries is not None:
        metadata["managedFields"] = entries


_STATUS: Final = only_status(validation.conditions_update, keep_all_metadata, (Check.CHANGE,))

STRATEGIES: Final[Mapping[str, Strategy]] = {
    "flowschemas.flowcontrol.apiserver.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        generation=True,
        validate=validation.flow_schema,
        subresources=_STATUS,
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.OBJECT),
        generation=True,
        validate=validation.priority_level,
        subresources=_STATUS,
    ),
}

"""The data source of a claim, in its older field (dataSource) and its newer one (dataSourceRef).

Source: Kubernetes' ``pkg/api/persistentvolumeclaim/util.go``.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.values.objects import Object

_IN_OLD_FIELD: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
_SHARED: Final = ("apiGroup", "kind", "name")


def drop_unusable(spec: Object, held: Object) -> None:
    """Drop a source that the older field alone can't have. A claim whose old spec (``held``) has one keeps its own."""
    source = spec.get("dataSource")
    if source is None or spec.get("dataSourceRef") is not None or held.get("dataSource") is not None:
        return
    if (source.get("apiGroup") or "", source.get("kind")) not in _IN_OLD_FIELD:
        del spec["dataSource"]


def copy_between_fields(spec: Object) -> None:
    """Copy the source from the field that has it to the one that lacks it."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = _shared(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = _shared(reference)


def _shared(reference: Object) -> Object:
    return {name: reference[name] for name in _SHARED if name in reference}

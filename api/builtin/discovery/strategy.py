"""The strategy of EndpointSlice.

Source: ``registry/discovery/endpointslice/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.discovery import validation, warnings
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values import names
from kubechronicle.api.values.objects import Object

HOSTNAME: Final = "kubernetes.io/hostname"


def count_slice_change(new: Object, old: Object) -> None:
    """Increment the generation when labels or any field outside of metadata change."""
    parts = [{name: part for name, part in each.items() if name != "metadata"} for each in (new, old)]
    labels = [each["metadata"].get("labels") for each in (new, old)]
    if parts[0] != parts[1] or labels[0] != labels[1]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def drop_topology(api_version: str, new: Object, old: Object | None) -> None:
    """Drop the deprecated topology when a request uses a newer version.

    A host name that the old object's topology already holds is moved to nodeName.
    """
    before = (old or {}).get("endpoints")
    if api_version.endswith("/v1beta1") or (old is not None and new.get("endpoints") == before):
        return
    known = {(one.get("deprecatedTopology") or {}).get(HOSTNAME) for one in before or ()} - {None, ""}
    for endpoint in new.get("endpoints") or ():
        node = (endpoint.pop("deprecatedTopology", None) or {}).get(HOSTNAME)
        if node and endpoint.get("nodeName") is None and node in known and not names.dns_subdomain(node):
            endpoint["nodeName"] = node


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "endpointslices.discovery.k8s.io": Strategy(
        update_checks=(Check.METADATA, Check.CHANGE),
        status=False,
        generation=True,
        generation_fields=(),
        prepare_update=count_slice_change,
        prepare_as=drop_topology,
        validate=validation.endpoint_slice,
        validate_update=validation.endpoint_slice_update,
        warnings=warnings.endpoint_slice_warnings,
    ),
}

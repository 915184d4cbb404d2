"""The strategy of APIService.

Source: kube-aggregator's ``registry/apiservice/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.apiregistration import validation
from kubechronicle.api.builtin.common.status_strategies import only_status
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import Object


def prepare_new_api_service(new: Object) -> None:
    """Clear the status; mark an APIService without a service (served by this server) as available."""
    new["status"] = {}
    if (new.get("spec") or {}).get("service") is None:
        new["status"]["conditions"] = [
            {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": new["metadata"]["creationTimestamp"],
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
        ]


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "apiservices.apiregistration.k8s.io": Strategy(
        unconditional_update=False,
        subresources=only_status(validation.api_service_status),
        kube_finalizers=False,
        names="segment",
        prepare_create=prepare_new_api_service,
        validate=validation.api_service,
    ),
}

"""FlowSchemas and PriorityLevelConfigurations that every cluster has from its first start (api/kinds).

Two of each kind, ``exempt`` and ``catch-all``, are mandatory: their specs are fixed. The others are suggestions, which
an administrator may change.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.features.gates import FeatureGates
from kubechronicle.api.kinds import bootstrap
from kubechronicle.api.values.objects import Object

GROUP: Final = "flowcontrol.apiserver.k8s.io"
AUTOUPDATE: Final = "apf.kubernetes.io/autoupdate-spec"
EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"
MANDATORY: Final = (EXEMPT, CATCH_ALL)


def level_specs() -> dict[str, Object]:
    """Return the specs of the priority levels by name, with all defaults."""
    return _specs("prioritylevelconfigurations")


def schema_specs() -> dict[str, Object]:
    """Return the specs of the flow schemas by name, with all defaults."""
    return _specs("flowschemas")


def _specs(resource: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each["spec"] for each in bootstrap.objects(resource, FeatureGates().enabled)}

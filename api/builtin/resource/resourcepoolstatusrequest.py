"""ResourcePoolStatusRequest: a question about the devices of pools that are in use (KEP-5677).

Source: ``registry/resource/resourcepoolstatusrequest``. Its validation is that of the tags of its fields.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Strategy

KIND: Final = BuiltinKind(
    resource="resourcepoolstatusrequests.resource.k8s.io",
    strategy=Strategy(unconditional_update=False, subresources=only_status()),
    gated_fields={
        "": (GatedField(gate="DRAPartitionableDevicesType", since=37, fields=("spec.defaultPartitionTypeAttribute",)),),
    },
)

"""CSIDriver: the abilities of a volume driver.

Source: Kubernetes' ``registry/storage/csidriver``, ``apis/storage`` and ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since
from kubechronicle.api.builtin.common.checks import immutable, one_of_if_set
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value, not_supported, required
from kubechronicle.api.strategy.gated_fields import GatedField
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object, ReadOnlyObject


def prepare_csi_driver_update(new: Object, old: Object) -> None:
    """Count changes of the spec in the generation."""
    if new["spec"] != old["spec"]:
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def default_scheduling(new: Object, now: str) -> None:
    """Let pods be scheduled where the driver is missing."""
    new["spec"].setdefault("preventPodSchedulingIfMissing", False)


FS_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
LIFECYCLES: Final = ("Persistent", "Ephemeral")


def validate_csi_driver(obj: Object) -> list[Cause]:
    """Check the flags, token requests and volume modes of a CSIDriver."""
    spec = obj["spec"]
    flags = (("attachRequired", "attachedRequired"), ("podInfoOnMount",) * 2, ("storageCapacity",) * 2)
    causes = [required(f"spec.{shown}") for name, shown in flags if spec.get(name) is None]
    causes += one_of_if_set(spec.get("fsGroupPolicy"), FS_GROUP_POLICIES, "spec.fsGroupPolicy")
    seen: set[str] = set()
    for index, token in enumerate(spec.get("tokenRequests") or ()):
        path, audience = f"spec.tokenRequests[{index}]", token.get("audience", "")
        if audience in seen:
            causes.append(duplicate(f"{path}.audience", audience))
            continue
        seen.add(audience)
        seconds = token.get("expirationSeconds")
        if seconds is not None and seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            causes.append(invalid_value(f"{path}.expirationSeconds", seconds, detail))
        elif seconds is not None and seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            causes.append(invalid_value(f"{path}.expirationSeconds", seconds, detail))
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in LIFECYCLES:
            causes.append(not_supported("spec.volumeLifecycleModes", mode, LIFECYCLES))
    secret = spec.get("serviceAccountTokenInSecrets")
    if secret is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        causes.append(invalid_value("spec.serviceAccountTokenInSecrets", secret, detail))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < 10:
        path = "spec.nodeAllocatableUpdatePeriodSeconds"
        causes.append(invalid_value(path, period, "must be greater than or equal to 10 seconds"))
    return causes


def validate_csi_driver_update(new: Object, old: Object) -> list[Cause]:
    """Reject a changed attachment flag or volume lifecycle mode."""
    spec, held = new["spec"], old["spec"]
    causes = immutable("spec.attachedRequired", spec.get("attachRequired"), held.get("attachRequired"))
    modes = "volumeLifecycleModes"
    return causes + immutable(f"spec.{modes}", spec.get(modes), held.get(modes))


_TOKENS_IN_SECRETS: Final = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def csi_driver_warnings(new: Object, old: Object | None) -> list[str]:
    """Return a warning if a driver newly requests tokens and doesn't say where it gets them."""
    spec, held = new["spec"], (old or {}).get("spec") or {}
    requests = spec.get("tokenRequests")
    if not requests or requests == held.get("tokenRequests") or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    return [_TOKENS_IN_SECRETS]


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    spec = obj.get("spec") or {}
    requests = spec.get("tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(request.get("audience", "") for request in requests)
    return [
        name_of(obj),
        spec.get("attachRequired") is not False,
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        audiences,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, since),
    ]


_DRIVER: Final = "storage.v1.CSIDriverSpec"


KIND: Final = BuiltinKind(
    resource="csidrivers.storage.k8s.io",
    strategy=Strategy(
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT, Check.CHANGE),
        returns_deleted=True,
        status=False,
        unconditional_update=False,
        prepare_update=prepare_csi_driver_update,
        without_gates={"CSIServiceAccountTokenSecrets": {"warnings": None}},
        with_gates={"VolumeLimitScaling": {"defaults": default_scheduling}},
        validate=validate_csi_driver,
        validate_update=validate_csi_driver_update,
        warnings=csi_driver_warnings,
    ),
    gated_fields={
        "": (
            GatedField(gate="SELinuxMountReadWriteOncePod", fields=("spec.seLinuxMount",)),
            GatedField(gate="MutableCSINodeAllocatableCount", fields=("spec.nodeAllocatableUpdatePeriodSeconds",)),
            GatedField(gate="CSIServiceAccountTokenSecrets", fields=("spec.serviceAccountTokenInSecrets",)),
            GatedField(gate="VolumeLimitScaling", fields=("spec.preventPodSchedulingIfMissing",)),
        ),
    },
    default_values={
        "storage.v1.CSIDriverSpec": {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent"],
            "requiresRepublish": False,
            "seLinuxMount": False,
        }
    },
    printer=Printer(
        (
            NAME,
            field_column("AttachRequired", f"{_DRIVER}.attachRequired", "boolean"),
            field_column("PodInfoOnMount", f"{_DRIVER}.podInfoOnMount", "boolean"),
            field_column("StorageCapacity", f"{_DRIVER}.storageCapacity", "boolean"),
            field_column("TokenRequests", f"{_DRIVER}.tokenRequests"),
            field_column("RequiresRepublish", f"{_DRIVER}.requiresRepublish", "boolean"),
            field_column("Modes", f"{_DRIVER}.volumeLifecycleModes"),
            AGE,
        ),
        _cells,
    ),
)

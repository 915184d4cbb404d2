"""Types of former versions, which are no longer published, as differences from the published ones.

A former version has the present version's definitions under another name, with a table of differences: fields that
did not exist yet, had another name, or were written although they are omitted today.

    autoscaling/v2beta2   no tolerance; conditions and currentReplicas always written, conditions owned as a whole
    autoscaling/v2beta1   as v2beta2, no behavior, and metrics in a form of their own (``_METRICS``)
    batch/v1beta1         the same fields
    policy/v1beta1        the same fields; its empty selector means something else (builtin/policy)
    discovery.k8s.io/v1beta1  a topology map instead of zone and deprecatedTopology

Source: the types of k8s.io/api 0.20 to 0.25. For the form of definitions and presence codes see types.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Definition = dict[str, Any]
Definitions = Mapping[str, Definition]

API: Final = "io.k8s.api."
_LABEL_SELECTOR: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_MARKS: Final = (
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The differences of one definition.

    ``without``: fields to remove.
    ``fields``: fields to add or replace.
    ``unmarked``: fields that lose their merge markers (`_MARKS`).
    ``presence``: codes added to those of the present version.
    """

    without: tuple[str, ...] = ()
    fields: Mapping[str, Definition] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    presence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A former version, as changes of the present one of its group.

    ``kinds``: the definitions derived from those of the present version.
    ``own``: definitions that are unlike those of the same name today.
    """

    package: str
    present: str
    kinds: tuple[str, ...]
    changes: Mapping[str, Change] = field(default_factory=dict)
    own: tuple[str, ...] = ()


# -- the metrics of autoscaling/v2beta1 -------------------------------------------------------------------------------

# Source of a metric -> its fields: "!" is required, "*" a pointer with a kept zero. The words for types are below.
_METRICS: Final[Mapping[str, str]] = {
    "ObjectMetricSource": "target! ref; metricName! string; targetValue! quantity; selector labels; "
    "averageValue quantity",
    "ObjectMetricStatus": "target! ref; metricName! string; currentValue! quantity; selector labels; "
    "averageValue quantity",
    "PodsMetricSource": "metricName! string; targetAverageValue! quantity; selector labels",
    "PodsMetricStatus": "metricName! string; currentAverageValue! quantity; selector labels",
    "ResourceMetricSource": "name! resource; targetAverageUtilization* int32; targetAverageValue quantity",
    "ResourceMetricStatus": "name! resource; currentAverageUtilization* int32; currentAverageValue! quantity",
    "ContainerResourceMetricSource": "container! string; name! resource; targetAverageUtilization* int32; "
    "targetAverageValue quantity",
    "ContainerResourceMetricStatus": "container! string; name! resource; currentAverageUtilization* int32; "
    "currentAverageValue! quantity",
    "ExternalMetricSource": "metricName! string; metricSelector labels; targetValue quantity; "
    "targetAverageValue quantity",
    "ExternalMetricStatus": "metricName! string; metricSelector labels; currentValue! quantity; "
    "currentAverageValue quantity",
}
_WORDS: Final[Mapping[str, Definition]] = {
    "string": {"type": "string"},
    "resource": {"type": "string"},
    "int32": {"type": "integer", "format": "int32"},
    "quantity": {"$ref": f"#/$defs/{_QUANTITY}"},
    "labels": {"$ref": f"#/$defs/{_LABEL_SELECTOR}"},
    "ref": {"$ref": f"#/$defs/{API}autoscaling.v2beta1.CrossVersionObjectReference"},
}
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "averageValue": "The value averaged over all pods; replaces the total if set.",
    "container": "The name of the container in the scaled pods.",
    "currentAverageUtilization": "Average use of the pods, in percent of their requests.",
    "currentAverageValue": "The value averaged over all pods.",
    "currentValue": "The value of the metric.",
    "metricName": "The name of the metric.",
    "metricSelector": "Selects a series of the metric by its labels.",
    "name": "The name of the resource, cpu or memory.",
    "selector": "Selects a series of the metric by its labels.",
    "target": "The object that the metric describes.",
    "targetAverageUtilization": "Target for the average use of the pods, in percent of their requests.",
    "targetAverageValue": "The value to reach, averaged over all pods.",
    "targetValue": "The value to reach.",
}


def _metric(text: str) -> tuple[Definition, dict[str, str]]:
    """Return (the definition of a metric's source, its presence codes)."""
    properties: Definition = {}
    required: list[str] = []
    presence: dict[str, str] = {}
    for part in text.split("; "):
        marked, word = part.split(" ")
        name = marked.rstrip("!*")
        properties[name] = {"description": _DESCRIPTIONS[name], **_WORDS[word]}
        if marked.endswith("!"):
            required.append(name)
        code = {"quantity!": "q", "int32*": "p"}.get(word + marked[len(name) :], "")
        if code or word == "resource":
            presence[name] = code + (":v1.ResourceName" if word == "resource" else "")
    return {"type": "object", "properties": properties, "required": required}, presence


# -- the versions -----------------------------------------------------------------------------------------------------

_SCALER: Final = (
    "HorizontalPodAutoscaler",
    "HorizontalPodAutoscalerList",
    "HorizontalPodAutoscalerSpec",
    "HorizontalPodAutoscalerStatus",
    "HorizontalPodAutoscalerCondition",
    "CrossVersionObjectReference",
    "MetricSpec",
    "MetricStatus",
)
_BEHAVIOR: Final = ("HorizontalPodAutoscalerBehavior", "HPAScalingRules", "HPAScalingPolicy")
_VALUES: Final = ("MetricIdentifier", "MetricTarget", "MetricValueStatus")
_SCALER_STATUS: Final = Change(
    required=("currentReplicas", "desiredReplicas"),
    unmarked=("conditions", "currentMetrics"),
    presence={"conditions": "a"},
)
_UNMARKED_METRICS: Final = Change(unmarked=("metrics",))

VERSIONS: Final[tuple[Version, ...]] = (
    Version(
        package="autoscaling.v2beta1",
        present="autoscaling.v2",
        kinds=_SCALER,
        changes={
            "HorizontalPodAutoscalerSpec": Change(without=("behavior",), unmarked=("metrics",)),
            "HorizontalPodAutoscalerStatus": _SCALER_STATUS,
        },
        own=tuple(_METRICS),
    ),
    Version(
        package="autoscaling.v2beta2",
        present="autoscaling.v2",
        kinds=(*_SCALER, *_BEHAVIOR, *_VALUES, *_METRICS),
        changes={
            "HPAScalingRules": Change(without=("tolerance",), unmarked=("policies",)),
            "HorizontalPodAutoscalerSpec": _UNMARKED_METRICS,
            "HorizontalPodAutoscalerStatus": _SCALER_STATUS,
        },
    ),
    Version(
        package="batch.v1beta1",
        present="batch.v1",
        kinds=("CronJob", "CronJobList", "CronJobSpec", "CronJobStatus", "JobTemplateSpec"),
    ),
    Version(
        package="policy.v1beta1",
        present="policy.v1",
        kinds=(
            "Eviction",
            "PodDisruptionBudget",
            "PodDisruptionBudgetList",
            "PodDisruptionBudgetSpec",
            "PodDisruptionBudgetStatus",
        ),
        changes={
            "PodDisruptionBudgetSpec": Change(
                fields={
                    "selector": {
                        "description": "Selects the pods of the budget. Neither a null nor an empty selector ({}) "
                        "selects any pods; in policy/v1 an empty one selects all pods of the namespace.",
                        "$ref": f"#/$defs/{_LABEL_SELECTOR}",
                    }
                },
            )
        },
    ),
    Version(
        package="discovery.v1beta1",
        present="discovery.v1",
        kinds=(
            "Endpoint",
            "EndpointConditions",
            "EndpointHints",
            "EndpointPort",
            "EndpointSlice",
            "EndpointSliceList",
            "ForNode",
            "ForZone",
        ),
        changes={
            "Endpoint": Change(
                without=("deprecatedTopology", "zone"),
                fields={
                    "topology": {
                        "description": "Location of the endpoint: kubernetes.io/hostname names its node, "
                        "topology.kubernetes.io/zone its zone, topology.kubernetes.io/region its region.",
                        "type": ["object", "null"],
                        "additionalProperties": {"type": ["string", "null"]},
                    }
                },
            )
        },
    ),
)


# -- derivation -------------------------------------------------------------------------------------------------------


def definitions(published: Definitions) -> dict[str, Definition]:
    """Return the definitions of all versions of the past, by name."""
    found: dict[str, Definition] = {}
    for version in VERSIONS:
        for kind in version.kinds:
            source = published[f"{API}{version.present}.{kind}"]
            found[f"{API}{version.package}.{kind}"] = _derived(source, version, version.changes.get(kind) or Change())
        for kind in version.own:
            found[f"{API}{version.package}.{kind}"] = _metric(_METRICS[kind])[0]
    return found


def _derived(source: Definition, version: Version, change: Change) -> Definition:
    made = {key: value for key, value in source.items() if key not in ("properties", "required")}
    properties = {
        name: _moved(change.fields.get(name) or schema, version, unmarked=name in change.unmarked)
        for name, schema in source.get("properties", {}).items()
        if name not in change.without
    }
    properties |= {name: dict(schema) for name, schema in change.fields.items() if name not in properties}
    made["properties"] = properties
    if required := change.required or source.get("required"):
        made["required"] = list(required)
    kinds = made.get("x-kubernetes-group-version-kind")
    if kinds:
        number = version.package.rpartition(".")[2]
        made["x-kubernetes-group-version-kind"] = [{**each, "version": number} for each in kinds]
    return made


def _moved(schema: Definition, version: Version, *, unmarked: bool = False) -> Definition:
    """Return a property with references to the version's own definitions."""
    made = {key: value for key, value in schema.items() if not (unmarked and key in _MARKS)}
    reference = made.get("$ref")
    if reference is not None:
        package, _, kind = reference.rpartition(".")
        if package.endswith(f"{API}{version.present}") and kind in (*version.kinds, *version.own):
            made["$ref"] = f"#/$defs/{API}{version.package}.{kind}"
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _moved(made[key], version)
    # The package lists the present apiVersion there. The former version has another, and nothing reads it.
    made.pop("enum", None)
    return made


def presence(published: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the presence codes of all former versions, by the definition's short name."""
    found: dict[str, dict[str, str]] = {}
    for version in VERSIONS:
        for kind in version.kinds:
            change = version.changes.get(kind) or Change()
            codes = {
                name: _own_go_type(code, version)
                for name, code in published.get(f"{version.present}.{kind}", {}).items()
                if name not in change.without
            }
            found[f"{version.package}.{kind}"] = codes | dict(change.presence)
        for kind in version.own:
            found[f"{version.package}.{kind}"] = _metric(_METRICS[kind])[1]
    return found


_CORE_TYPES: Final = frozenset(("v1.ConditionStatus", "v1.Protocol", "v1.ResourceList", "v1.ResourceName"))


def _own_go_type(code: str, version: Version) -> str:
    """Return a presence code with its Go type in the version's own package; types of the core group stay."""
    letters, _, rest = code.partition(":")
    go_type, at, embedded = rest.partition("@")
    brackets, bracket, name = go_type.rpartition("]")
    if not name or name in _CORE_TYPES:
        return code
    own = f"{version.package.rpartition('.')[2]}.{name.rpartition('.')[2]}"
    return f"{letters}:{brackets}{bracket}{own}{at}{embedded}"

"""CustomResourceDefinitions of apiextensions.k8s.io/v1beta1, as kube-apiserver stores them in etcd, in the form of v1.

v1beta1 has the fields that all versions share beside ``versions``: schema, subresources, columns, selectable fields. In
v1 each version has them. Source: apiextensions-apiserver ``pkg/apis/apiextensions/v1/conversion.go``.
"""

from __future__ import annotations

from typing import Any, Final

from kubechronicle.api.meta.encoding import copy_object
from kubechronicle.api.values.objects import Object

API_VERSION: Final = "apiextensions.k8s.io/v1"
OLD_API_VERSION: Final = "apiextensions.k8s.io/v1beta1"
KIND: Final = "CustomResourceDefinition"
_SHARED: Final = (
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
)
"""Fields of the spec of v1beta1, and of the versions of v1."""


def is_old(obj: Object) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == (OLD_API_VERSION, KIND)


def to_v1(definition: Object) -> Object:
    """Return a definition in v1. KeyError, TypeError: it is malformed."""
    spec = dict(definition["spec"])
    single = spec.pop("version", None)
    versions = [dict(version) for version in spec.pop("versions", None) or ()]
    if not versions and single:
        versions = [{"name": single, "served": True, "storage": True}]
    for name, field in _SHARED:
        if (shared := spec.pop(name, None)) is not None:
            for version in versions:
                version[field] = copy_object(shared)
    for version in versions:
        if columns := version.get("additionalPrinterColumns"):
            version["additionalPrinterColumns"] = [_column(column) for column in columns]
    spec["versions"] = versions
    if "conversion" in spec:
        spec["conversion"] = _conversion(spec["conversion"])
    if not spec.get("preserveUnknownFields", True):
        del spec["preserveUnknownFields"]
    else:
        spec["preserveUnknownFields"] = True
    return {**definition, "apiVersion": API_VERSION, "spec": spec}


def _column(column: dict[str, Any]) -> dict[str, Any]:
    return {"jsonPath" if name == "JSONPath" else name: value for name, value in column.items()}


def _conversion(conversion: dict[str, Any]) -> dict[str, Any]:
    converted = dict(conversion)
    client, versions = converted.pop("webhookClientConfig", None), converted.pop("conversionReviewVersions", None)
    if client is not None or versions is not None:
        converted["webhook"] = {
            name: value
            for name, value in (("clientConfig", client), ("conversionReviewVersions", versions))
            if value is not None
        }
    return converted

"""The kinds of access reviews and rules reviews.

Reviews are not stored. Their field manager owns all fields that the client sent, the status included. Source:
Kubernetes' ``apis/authorization/validation/validation.go``.

TokenReview and SelfSubjectReview.

Reviews are not stored. Their field manager owns all fields that the client sent, the status included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.checks import HAS_NO_VALUES, NEEDS_VALUES, label_requirement
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.codecs.json_order import in_order_of
from kubechronicle.api.errors.field_errors import Cause, forbidden, invalid_value, required
from kubechronicle.api.strategy.strategy import Strategy
from kubechronicle.api.values.objects import ReadOnlyObject

ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_ATTRIBUTES: Final = "spec.resourceAttributes"


def validate_subject_access(obj: ReadOnlyObject) -> list[Cause]:
    return _spec_of_a_subject(obj["spec"]) + _metadata(obj["metadata"])


def validate_local_subject_access(obj: ReadOnlyObject) -> list[Cause]:
    spec, namespace = obj["spec"], obj["metadata"].get("namespace", "")
    causes = _spec_of_a_subject(spec) + _metadata(obj["metadata"], "namespace")
    attributes = spec.get("resourceAttributes")
    if attributes is not None and attributes.get("namespace", "") != namespace:
        shown = attributes.get("namespace", "")
        causes.append(invalid_value(f"{_ATTRIBUTES}.namespace", shown, "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        shown = _printed_path(spec["nonResourceAttributes"])
        causes.append(invalid_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    return causes


def validate_self_subject_access(obj: ReadOnlyObject) -> list[Cause]:
    spec = obj["spec"]
    return _one_of(spec) + _selectors(spec) + _metadata(obj["metadata"])


def _spec_of_a_subject(spec: Mapping[str, Any]) -> list[Cause]:
    causes = _one_of(spec)
    if not spec.get("user") and not spec.get("groups"):
        causes.append(invalid_value("spec.user", "", "at least one of user or group must be specified"))
    return causes + _selectors(spec)


def _one_of(spec: Mapping[str, Any]) -> list[Cause]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) is not (path is None):
        return []
    return [invalid_value("spec", None if path is None else _printed_path(path), ONE_OF)]


def _printed_path(path: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a path and its verb as messages print them."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def _selectors(spec: Mapping[str, Any]) -> list[Cause]:
    resource = spec.get("resourceAttributes") or {}
    causes: list[Cause] = []
    for name, check in (("fieldSelector", _field_requirement), ("labelSelector", _label_requirement)):
        selector, field = resource.get(name), f"{_ATTRIBUTES}.{name}"
        if selector is None:
            continue
        raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
        if raw and requirements:
            detail = "may not specified at the same time as requirements"
            causes.append(invalid_value(f"{field}.rawSelector", raw, detail))
        if not raw and not requirements:
            detail = f"when {field} is specified, requirements or rawSelector is required"
            causes.append(required(f"{field}.requirements", detail))
        for index, requirement in enumerate(requirements):
            causes += check(requirement, f"{field}.requirements[{index}]")
    return causes


def _field_requirement(requirement: Mapping[str, Any], path: str) -> list[Cause]:
    """Check a requirement. Newer clients may know more operators, so any operator is accepted."""
    causes: list[Cause] = []
    if not requirement.get("key"):
        causes.append(required(f"{path}.key", "must be specified"))
    operator = requirement.get("operator", "")
    if operator in ("In", "NotIn") and not requirement.get("values"):
        causes.append(required(f"{path}.values", NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist") and requirement.get("values"):
        causes.append(forbidden(f"{path}.values", HAS_NO_VALUES))
    return causes


def _label_requirement(requirement: Mapping[str, Any], path: str) -> list[Cause]:
    return label_requirement(requirement, path, any_operator=True)


def _metadata(metadata: Mapping[str, Any], *allowed: str) -> list[Cause]:
    """Reject metadata other than ``allowed``: a review is not stored, so it has no name or labels."""
    if all(name in ("managedFields", *allowed) or not value for name, value in metadata.items()):
        return []
    shown = in_order_of("meta/v1.ObjectMeta", dict(metadata))
    return [invalid_value("metadata", shown, "must be empty" + (" except for namespace" if allowed else ""))]


ACCESS_REVIEWS: Final = (
    BuiltinKind(
        resource="localsubjectaccessreviews.authorization.k8s.io",
        strategy=Strategy(status=False, validate=validate_local_subject_access),
    ),
    BuiltinKind(
        resource="selfsubjectaccessreviews.authorization.k8s.io",
        strategy=Strategy(status=False, validate=validate_self_subject_access),
    ),
    BuiltinKind(resource="selfsubjectrulesreviews.authorization.k8s.io", strategy=Strategy(status=False)),
    BuiltinKind(
        resource="subjectaccessreviews.authorization.k8s.io",
        strategy=Strategy(status=False, validate=validate_subject_access),
    ),
)


REVIEWS: Final = (
    BuiltinKind(resource="selfsubjectreviews.authentication.k8s.io", strategy=Strategy(status=False)),
    BuiltinKind(resource="tokenreviews.authentication.k8s.io", strategy=Strategy(status=False)),
)

KINDS: Final = (
    *ACCESS_REVIEWS,
    *REVIEWS,
)

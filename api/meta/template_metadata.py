"""Validation of the metadata in templates of claims: only labels and annotations can be set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.errors.field_errors import Cause, forbidden
from kubechronicle.api.meta.metadata import validate_annotations, validate_labels

_NOT_IN_TEMPLATES: Final = (
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
)
"""Fields that the metadata in a template lacks, with their names in messages, in Kubernetes' order."""

_SET_IF_EMPTY: Final = frozenset(
    ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields")
)
"""Those for which 0 and an empty list count as set."""


IN_TEMPLATES_OF_PODS: Final = (
    *(f"*.volumeClaimTemplate.metadata.{name}" for name in ("finalizers", "managedFields", "ownerReferences")),
    "*spec.resources.claims",
    *(f"*.ephemeralContainers*.{name}" for name in ("ports", "resizePolicy", "restartPolicyRules")),
    *(f"*.ephemeralContainers*.resources.{name}" for name in ("claims", "limits", "requests")),
)
"""The lists and maps that count as set if a request sends them empty, in the pods of any kind."""


def validate_template_metadata(metadata: Mapping[str, Any], field: str) -> list[Cause]:
    """Return the problems of the metadata in a template."""
    causes = validate_annotations(metadata.get("annotations") or {}, f"{field}.annotations")
    causes += validate_labels(metadata.get("labels") or {}, f"{field}.labels")
    return causes + [
        forbidden(f"{field}.{printed}", "cannot be set")
        for name, printed in _NOT_IN_TEMPLATES
        if metadata.get(name) or (name in _SET_IF_EMPTY and metadata.get(name) is not None)
    ]

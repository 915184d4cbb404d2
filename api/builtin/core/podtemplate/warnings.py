"""Warnings of the kinds that make pods of a template.

An update is told of its template if it has changed the object's generation.
"""

from __future__ import annotations

from typing import Any

from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings, spec_warnings

Object = dict[str, Any]


def same_generation(new: Object, old: Object | None) -> bool:
    """Whether an update has left the object's generation as it was."""
    return old is not None and new["metadata"].get("generation", 0) == old["metadata"].get("generation", 0)


def warnings_in_template(template: Object | None, field: str) -> list[str]:
    """What to tell of a template that stands in this field."""
    return spec_warnings(template.get("metadata"), template.get("spec") or {}, field) if template else []


def pod_template_warnings(new: Object, old: Object | None) -> list[str]:
    """A template that stands alone."""
    return [] if same_generation(new, old) else warnings_in_template(new.get("template"), "template")


def template_warnings(new: Object, old: Object | None) -> list[str]:
    """A kind that names its pods so that its own name is no host's."""
    return (
        []
        if same_generation(new, old)
        else warnings_in_template((new.get("spec") or {}).get("template"), "spec.template")
    )


def named_template_warnings(new: Object, old: Object | None) -> list[str]:
    """A kind whose pods are named after it."""
    warnings = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return warnings + template_warnings(new, old)

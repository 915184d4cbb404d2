"""Warnings of the kinds with a pod template.

An update gets warnings about its template if the object's generation has changed.
"""

from __future__ import annotations

from kubechronicle.api.builtin.core.pod.warnings import OWNER_NAME, name_warnings, spec_warnings
from kubechronicle.api.values.objects import Object


def same_generation(new: Object, old: Object | None) -> bool:
    """Return whether an update has left the object's generation unchanged."""
    return old is not None and new["metadata"].get("generation", 0) == old["metadata"].get("generation", 0)


def warnings_in_template(template: Object | None, field: str) -> list[str]:
    """Return warnings about a pod template at ``field``."""
    return spec_warnings(template.get("metadata"), template.get("spec") or {}, field) if template else []


def pod_template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about a PodTemplate."""
    return [] if same_generation(new, old) else warnings_in_template(new.get("template"), "template")


def template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the template of a kind; its name is no part of a host name."""
    return (
        []
        if same_generation(new, old)
        else warnings_in_template((new.get("spec") or {}).get("template"), "spec.template")
    )


def named_template_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the name and the template of a kind that names its pods after itself."""
    warnings = name_warnings(new["metadata"], OWNER_NAME) if old is None else []
    return warnings + template_warnings(new, old)

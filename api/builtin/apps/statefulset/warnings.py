"""Warnings about StatefulSets: template, claim templates and revision history."""

from __future__ import annotations

from typing import Final

from kubechronicle.api.builtin.core.persistentvolumeclaim.warnings import storage_warnings
from kubechronicle.api.builtin.core.podtemplate.warnings import same_generation, warnings_in_template
from kubechronicle.api.values.objects import Object

_NEGATIVE_HISTORY: Final = "a negative value retains all historical revisions; a value >= 0 is recommended"


def stateful_set_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about the template, the claim templates and the revision history limit."""
    spec = new["spec"]
    warnings = [] if same_generation(new, old) else warnings_in_template(spec.get("template"), "spec.template")
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        field = f"spec.volumeClaimTemplates[{index}]"
        warnings += storage_warnings(claim.get("spec") or {}, field if old is None else f"{field}.Spec")
    if (spec.get("revisionHistoryLimit") or 0) < 0:
        warnings.append(f"spec.revisionHistoryLimit: {_NEGATIVE_HISTORY}")
    return warnings

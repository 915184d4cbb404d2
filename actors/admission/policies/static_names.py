"""Admission configurations from files (KEP-5793), beside those of the API.

Those of files come first, and apply to all objects: to policies, bindings and webhook configurations, too, which those
of the API leave out so that nobody can lock themselves out. The API refuses their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubechronicle.actors.admission.chain import CREATE, Attributes, State
from kubechronicle.actors.companion_changes import CompanionChange
from kubechronicle.api.admission.matching import EXEMPT_GROUP, EXEMPT_KINDS
from kubechronicle.api.builtin.admissionregistration.webhooks import STATIC_RESERVED, STATIC_SUFFIX
from kubechronicle.api.errors.field_errors import invalid_value
from kubechronicle.eventlog.entries import Entry


class StaticNames:
    """A StorageHook that refuses new configurations with the names of those from files."""

    resources = frozenset(
        f"{plural}.{EXEMPT_GROUP}"
        for plural in (
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        )
    )

    def release(self, entry: Entry, state: State) -> Sequence[CompanionChange]:
        """Return nothing: a check holds nothing."""
        return ()

    def begin_write(self, attributes: Attributes, state: State) -> None:
        """Note the problem of a creation: 422."""
        obj, rt = attributes.object, attributes.rt
        if attributes.operation != CREATE or obj is None or rt.kind not in EXEMPT_KINDS:
            return
        name = obj["metadata"].get("name") or ""
        if name.endswith(STATIC_SUFFIX):
            attributes.causes.append(invalid_value("metadata.name", name, STATIC_RESERVED))

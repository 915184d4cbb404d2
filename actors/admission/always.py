"""AlwaysAdmit and AlwaysDeny (plugin/pkg/admission/{admit,deny} of kube-apiserver). Both are deprecated there."""

from __future__ import annotations

from kubechronicle.actors.admission.chain import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionPlugin,
    Attributes,
    State,
    forbidden,
)

EVERYTHING = frozenset({CREATE, UPDATE, DELETE, CONNECT})


class AlwaysAdmit(AdmissionPlugin):
    """Does nothing."""

    name = "AlwaysAdmit"
    operations = EVERYTHING


class AlwaysDeny(AdmissionPlugin):
    """Rejects every write, after all other plugins that may change its object."""

    name = "AlwaysDeny"
    operations = EVERYTHING

    def admit(self, attributes: Attributes, state: State) -> None:
        raise forbidden(attributes, "admission control is denying all modifications")

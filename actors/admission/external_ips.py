"""DenyServiceExternalIPs: reject new external IPs of Services
(plugin/pkg/admission/network/denyserviceexternalips of kube-apiserver). Disabled by default."""

from __future__ import annotations

from kubechronicle.actors.admission.chain import AdmissionPlugin, Attributes, State, forbidden


class DenyServiceExternalIPs(AdmissionPlugin):
    name = "DenyServiceExternalIPs"
    resources = frozenset({"services"})

    def validate(self, attributes: Attributes, state: State) -> None:
        service = attributes.object
        if service is None or attributes.subresource:
            return
        wanted = set((service.get("spec") or {}).get("externalIPs") or [])
        held = attributes.before if wanted else {}
        if wanted - set((held.get("spec") or {}).get("externalIPs") or []):
            raise forbidden(attributes, "Use of external IPs is denied by admission control.")

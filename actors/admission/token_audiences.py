"""The audiences of tokens that a kubelet may request for a pod: those of the pod's volumes, or by a right of its own
(ServiceAccountNodeAudienceRestriction, KEP-4412; kube-apiserver's ``noderestriction``, ``podReferencesAudience``).

    volume → token projected into it
    volume → CSI driver, inline or of the volume of its claim → token requests of the CSIDriver

A volume of a former in-tree driver counts as one of the CSI driver that has replaced it. A missing object on the way is
an error only if no other volume has the audience.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import AdmissionState, Attributes, forbidden
from kubechronicle.api.access.pod_references import CLAIMS
from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values.objects import Object

AUDIENCE_VERB: Final = "request-serviceaccounts-token-audience"
"""The verb that allows tokens for an audience that no volume of the pod has. The audience is the resource."""

CSI_DRIVERS: Final = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "azureDisk": "disk.csi.azure.com",
    "azureFile": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "portworxVolume": "pxd.portworx.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}
"""In-tree volume source -> the CSI driver that has replaced it (k8s.io/csi-translation-lib ``plugins``)."""


class _NotFound(Exception):
    """An object that does not exist; the text is the error of Kubernetes' listers."""


def check_audience(attributes: Attributes, pod: Object, state: AdmissionState) -> None:
    """Raise 403 for an audience that no volume of the pod has, unless the kubelet has the right."""
    audiences = ((attributes.object or {}).get("spec") or {}).get("audiences") or []
    if len(audiences) > 1:
        raise forbidden(attributes, "node may only request 0 or 1 audiences")
    audience = audiences[0] if audiences else ""
    missing: dict[str, None] = {}
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        try:
            if audience in _audiences_of(volume, pod["metadata"], state):
                return
        except _NotFound as error:
            missing[str(error)] = None
    if missing:
        why = f"[{', '.join(missing)}]" if len(missing) > 1 else next(iter(missing))
        raise forbidden(attributes, f"error validating audience {go_quote(audience)}: {why}")
    who = attributes.who
    if not state.permits(who, AUDIENCE_VERB, "", audience, attributes.name, attributes.namespace):
        why = f"{who.user} is not authorized to request tokens for audience {go_quote(audience)}"
        raise forbidden(attributes, why)


def _audiences_of(volume: Object, metadata: Object, state: AdmissionState) -> set[str]:
    """Return the audiences of a volume's tokens, and of those for its CSI driver. ``metadata``: the pod's."""
    found = {
        source["serviceAccountToken"].get("audience", "")
        for source in (volume.get("projected") or {}).get("sources") or ()
        if source.get("serviceAccountToken") is not None
    }
    if name := _driver_of(volume, metadata, state):
        driver = _get(state, "csidrivers.storage.k8s.io", "", name, "csidriver.storage.k8s.io")
        requests = (driver.get("spec") or {}).get("tokenRequests") or ()
        found.update(request.get("audience", "") for request in requests)
    return found


def _driver_of(volume: Object, metadata: Object, state: AdmissionState) -> str:
    """Return the CSI driver of a pod's volume: inline, or of its claim's or generated claim's volume; "": none."""
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
    if (volume.get("ephemeral") or {}).get("volumeClaimTemplate"):
        claim = f"{metadata['name']}-{volume['name']}"
    if not claim:
        return _driver_in(volume)
    bound = _get(state, CLAIMS, metadata["namespace"], claim, "persistentvolumeclaim")
    name = (bound.get("spec") or {}).get("volumeName", "")
    return _driver_in(_get(state, "persistentvolumes", "", name, "persistentvolume").get("spec") or {})


def _driver_in(source: Object) -> str:
    """Return the driver that a volume of a pod, or the spec of a PersistentVolume, names."""
    if (csi := source.get("csi")) is not None:
        driver: str = csi.get("driver", "")
        return driver
    return next((driver for name, driver in CSI_DRIVERS.items() if source.get(name) is not None), "")


def _get(state: AdmissionState, resource: str, namespace: str, name: str, kind: str) -> Object:
    entry = state.peek(resource, namespace, name)
    if entry is None:
        raise _NotFound(f"{kind} {go_quote(name)} not found")
    found: Object = entry.object()
    return found

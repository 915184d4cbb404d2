"""ImagePolicyWebhook: another server allows or denies the images of pods (plugin/pkg/admission/imagepolicy).

The plugin asks about the containers and init containers of each new or updated pod, and about ephemeral containers
when they are added. The answer serves all pods with the same images, annotations and namespace for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kubechronicle.actors.admission.chain import AdmissionPlugin, AdmissionState, Attributes, forbidden
from kubechronicle.actors.admission.state import ImageReviews
from kubechronicle.actors.external_answers import NeedsExternalAnswer, recall_answer, remember_answer
from kubechronicle.api.admission.rejections import ImageVerdict
from kubechronicle.api.values.names import qualified_name
from kubechronicle.api.values.objects import Object

EPHEMERAL: Final = "ephemeralcontainers"
ANNOTATION: Final = ".image-policy.k8s.io/"
"""Annotations of pods with this text in their key are sent to the webhook."""
AUDIT_PREFIX: Final = "imagepolicywebhook.image-policy.k8s.io/"


class ImagePolicyWebhook(AdmissionPlugin):
    name = "ImagePolicyWebhook"
    resources = frozenset({"pods"})

    def validate(self, attributes: Attributes, state: AdmissionState) -> None:
        """Reject a pod with an image that the webhook denies. NeedsExternalAnswer, StatusError 403."""
        pod, images = attributes.object, state.image_reviews
        if attributes.subresource not in ("", EPHEMERAL) or pod is None:
            return
        if images is None:
            raise forbidden(attributes, "this server has no webhook for images")
        spec = spec_of(pod, attributes.namespace, ephemeral=attributes.subresource == EPHEMERAL)
        verdict = recall_answer((self.name, spec))
        if not isinstance(verdict, ImageVerdict):
            verdict = images.known(spec)
        if verdict is None:
            raise _NeedsVerdict(images, spec)
        _apply(verdict, attributes, default_allow=images.default_allow)


def spec_of(pod: Object, namespace: str, *, ephemeral: bool) -> bytes:
    """Return the ImageReviewSpec of a pod as JSON, without empty fields."""
    given = pod.get("spec") or {}
    names: Sequence[str] = ("ephemeralContainers",) if ephemeral else ("containers", "initContainers")
    images = [each.get("image") or "" for name in names for each in given.get(name) or ()]
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    spec: dict[str, Any] = {
        "containers": [{"image": image} if image else {} for image in images],
        "annotations": {key: value for key, value in annotations.items() if ANNOTATION in key},
        "namespace": namespace,
    }
    return orjson.dumps({key: value for key, value in spec.items() if value}, option=orjson.OPT_SORT_KEYS)


def _apply(verdict: ImageVerdict, attributes: Attributes, *, default_allow: bool) -> None:
    if verdict.failure:
        if not default_allow:
            raise forbidden(attributes, verdict.failure)
        attributes.annotations[f"{AUDIT_PREFIX}failed-open"] = "true"
        return
    for key, value in verdict.annotations.items():
        name = f"{AUDIT_PREFIX}{key}"
        if not qualified_name(name):  # others are dropped, as in kube-apiserver
            attributes.annotations[name] = value
    if not verdict.allowed:
        reason = f"image policy webhook backend denied one or more images: {verdict.reason}"
        raise forbidden(attributes, reason if verdict.reason else "one or more images rejected by webhook backend")


class _NeedsVerdict(NeedsExternalAnswer):
    """The webhook must be asked about the images of a pod."""

    def __init__(self, images: ImageReviews, spec: bytes) -> None:
        super().__init__("images of a pod")
        self._images = images
        self._spec = spec

    async def resolve(self) -> None:
        remember_answer((ImagePolicyWebhook.name, self._spec), await self._images.ask(self._spec))

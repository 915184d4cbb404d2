"""AlwaysPullImages: pull the images of new pods at every start, so that nobody uses an image without its credentials
(plugin/pkg/admission/alwayspullimages of kube-apiserver). Disabled by default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kubechronicle.actors.admission.chain import AdmissionPlugin, Attributes, State, forbidden
from kubechronicle.api.builtin.core.pod.validation_security import containers_of
from kubechronicle.api.errors import status
from kubechronicle.api.errors.field_errors import not_supported

ALWAYS: Final = "Always"


class AlwaysPullImages(AdmissionPlugin):
    name = "AlwaysPullImages"
    resources = frozenset({"pods"})

    def admit(self, attributes: Attributes, state: State) -> None:
        for holder, member, _ in _pull_policies(attributes):
            holder[member] = ALWAYS

    def validate(self, attributes: Attributes, state: State) -> None:
        """Reject another policy, which a later plugin has set. The error is no Status in kube-apiserver: code 500."""
        messages: dict[str, None] = {}
        for holder, member, field in _pull_policies(attributes):
            policy = holder.get(member, "")
            if policy != ALWAYS:
                problem = not_supported(field, policy, [ALWAYS])
                messages[forbidden(attributes, str(problem)).message] = None
        if messages:
            found = list(messages)
            raise status.unknown(found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _pull_policies(attributes: Attributes) -> Iterator[tuple[Any, str, str]]:
    """Yield the holder, member and field path of each pull policy. An update without new images has none."""
    pod = attributes.object
    if pod is None or attributes.subresource:
        return
    spec = pod.setdefault("spec", {})
    if attributes.old is not None:
        old = attributes.before.get("spec") or {}
        known = {container.get("image", "") for container, _ in containers_of(old, "spec")}
        if all(container.get("image", "") in known for container, _ in containers_of(spec, "spec")):
            return
    for container, field in containers_of(spec, "spec"):
        yield container, "imagePullPolicy", f"{field}.imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("image") is not None:
            yield volume["image"], "pullPolicy", f"spec.volumes[{index}].image.pullPolicy"

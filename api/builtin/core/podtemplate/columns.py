"""Table columns of PodTemplates, and those shared by all kinds with a pod template.

Source: Kubernetes' ``pkg/printers/internalversion``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import Since, containers_text, labels_text
from kubechronicle.api.builtin.common.printer import CONTAINERS, IMAGES, NAME, Column, Printer, at, name_of
from kubechronicle.api.values.objects import ReadOnlyObject


def _pod_template(obj: ReadOnlyObject, since: Since) -> list[Any]:
    template = obj.get("template") or {}
    names, images = containers_text(at(template, "spec", "containers"))
    return [name_of(obj), names, images, labels_text(at(template, "metadata", "labels"))]


def template_containers(obj: ReadOnlyObject) -> tuple[str, str]:
    """Return (names, images) of the containers in an object's pod template."""
    return containers_text(at(obj, "spec", "template", "spec", "containers"))


READY: Final = Column("Ready", text="Number of the pod with ready state")

PRINTERS: Final[Mapping[str, Printer]] = {
    "podtemplates": Printer(
        (
            NAME,
            Column("Containers", text=CONTAINERS.text),
            Column("Images", text=IMAGES.text),
            Column("Pod Labels", text="The labels for the pod template."),
        ),
        _pod_template,
    ),
}

"""The strategy of DaemonSet.

Source: ``registry/apps/daemonset/strategy.go``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kubechronicle.api.builtin.apps.daemonset import validation
from kubechronicle.api.builtin.apps.daemonset.defaults import TEMPLATE_GENERATION
from kubechronicle.api.builtin.core.podtemplate.warnings import warnings_in_template
from kubechronicle.api.strategy.strategy import Check, Strategy, status_update
from kubechronicle.api.values.objects import Object


def prepare_new_daemon_set(new: Object) -> None:
    """Start the template generation in its annotation: at 1, or a higher number given."""
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(max(_template_generation(new), 1))


def prepare_daemon_set_update(new: Object, old: Object) -> None:
    """Increment the template generation when the template has changed."""
    generation = _template_generation(old)
    if new["spec"].get("template") != old["spec"].get("template"):
        generation += 1
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(generation)


def keep_template_generation(new: Object, old: Object) -> None:
    """Keep the template generation, which is a part of the spec in Kubernetes, in an update of the status."""
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(_template_generation(old))


def _template_generation(obj: Object) -> int:
    return int((obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0"))


def daemon_set_warnings(new: Object, old: Object | None) -> list[str]:
    """Return warnings about a new or changed template."""
    template = new["spec"].get("template")
    if old is not None and template == old["spec"].get("template"):
        return []
    return warnings_in_template(template, "spec.template")


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "daemonsets.apps": Strategy(
        pod_spec="spec.template.spec",
        update_checks=(Check.METADATA_CHANGE, Check.CHANGE),
        generation=True,
        prepare_create=prepare_new_daemon_set,
        prepare_update=prepare_daemon_set_update,
        validate=validation.daemon_set,
        validate_update=validation.daemon_set_update,
        warnings=daemon_set_warnings,
        subresources=MappingProxyType(
            {
                "status": status_update(
                    "spec", validate_update=validation.daemon_set_status, prepare=keep_template_generation
                )
            }
        ),
    ),
}

"""Workload: the templates of the groups of pods that a controller makes (KEP-4671).

Source: Kubernetes' ``registry/scheduling/workload`` and ``apis/scheduling/validation``. A template is of a PodGroup, or
of a CompositePodGroup, which has templates in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, aged
from kubechronicle.api.errors.field_errors import Cause, duplicate, invalid_value
from kubechronicle.api.strategy.gated_fields import GatedField, Pair
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.objects import Object

GROUPS: Final = "podGroupTemplates"
COMPOSITES: Final = "compositePodGroupTemplates"
CONSTRAINTS: Final = "schedulingConstraints"
POLICY: Final = "preemptionPolicy"
MAX_DEPTH: Final = 4
"""The depth at which there are only templates of PodGroups."""


def _composites(holder: Object) -> list[Object]:
    found: list[Object] = holder.get(COMPOSITES) or []
    return found


def _groups(holder: Object) -> list[Object]:
    found: list[Object] = holder.get(GROUPS) or []
    return found


# -- validation -------------------------------------------------------------------------------------------------------


def validate_workload(obj: Object) -> list[Cause]:
    """Check the templates as a tree: their names, depth and priorities, and that no composite one is empty."""
    spec, causes = obj.get("spec") or {}, list[Cause]()
    _repeated_names(spec, "spec", {each.get("name", "") for each in _groups(spec)}, causes)
    for index, template in enumerate(_composites(spec)):
        if _depth(template) >= MAX_DEPTH:
            below = [record(each, "CompositePodGroupTemplate") for each in _composites(template)]
            detail = f"maximum template hierarchy depth is {MAX_DEPTH}"
            causes.append(invalid_value(f"spec.{COMPOSITES}[{index}]", below, detail))
    causes += _priorities(spec)
    _childless(spec, "spec", causes)
    return causes


def _repeated_names(holder: Object, path: str, seen: set[str], causes: list[Cause]) -> None:
    """Report each name below a holder that another list has, too. Tags report names that one list has twice."""
    composites = [(each, f"{path}.{COMPOSITES}[{index}]") for index, each in enumerate(_composites(holder))]
    _report(composites, seen, causes)
    for template, place in composites:
        _report([(each, f"{place}.{GROUPS}[{index}]") for index, each in enumerate(_groups(template))], seen, causes)
        _repeated_names(template, place, seen, causes)


def _report(listed: Iterable[tuple[Object, str]], seen: set[str], causes: list[Cause]) -> None:
    named = [(each.get("name", ""), place) for each, place in listed]
    causes += [duplicate(f"{place}.name", name) for name, place in named if name in seen]
    seen.update(name for name, _ in named)


def _depth(template: Object) -> int:
    return 1 + max(map(_depth, _composites(template)), default=0)


def _priorities(spec: Object) -> list[Cause]:
    """Require the same priority of all templates. The first that has another one decides the text."""
    first: tuple[str, int | None] | None = None
    for template, composite in _templates(spec):
        found = template.get("priorityClassName", ""), template.get("priority")
        if first is not None and found != first:
            detail = "detected multiple priority configurations"
            if composite:
                detail = "all priority and priorityClassName values must be identical, detected multiple values"
            return [invalid_value("spec", None, detail)]
        first = found
    return []


def _templates(spec: Object) -> Iterator[tuple[Object, bool]]:
    """Yield all templates, and whether they are composite ones or below one."""
    yield from ((each, False) for each in _groups(spec))
    for composite in _all_composites(spec):
        yield composite, True
        yield from ((each, True) for each in _groups(composite))


def _all_composites(holder: Object) -> Iterator[Object]:
    for template in _composites(holder):
        yield template
        yield from _all_composites(template)


def _childless(holder: Object, path: str, causes: list[Cause]) -> None:
    for index, template in enumerate(_composites(holder)):
        place = f"{path}.{COMPOSITES}[{index}]"
        if not _groups(template) and not _composites(template):
            detail = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
            causes.append(invalid_value(place, template.get("name", ""), detail))
        _childless(template, place, causes)


# -- fields of feature gates ------------------------------------------------------------------------------------------


def _holders(new: Object, old: Object | None) -> Iterator[Pair]:
    """Yield the spec and each composite template, with the one of the same place and name in the old object."""
    return _holders_below(new.get("spec") or {}, None if old is None else old.get("spec") or {})


def _holders_below(holder: Object, old: Object | None) -> Iterator[Pair]:
    yield holder, old
    held = {} if old is None else {each.get("name", ""): each for each in _composites(old)}
    for template in _composites(holder):
        yield from _holders_below(template, held.get(template.get("name", "")))


def _composite_templates(new: Object, old: Object | None) -> Iterator[Pair]:
    pairs = _holders(new, old)
    next(pairs)  # the spec
    return pairs


def _templates_of_groups(new: Object, old: Object | None) -> Iterator[Pair]:
    """Yield each template of a PodGroup with the one at the same index of the old list."""
    for holder, held in _holders(new, old):
        before = [] if held is None else _groups(held)
        for index, template in enumerate(_groups(holder)):
            yield template, before[index] if index < len(before) else None


KIND: Final = BuiltinKind(
    resource="workloads.scheduling.k8s.io",
    strategy=Strategy(
        status=False,
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE, Check.OBJECT),
        validate=validate_workload,
        reset=(),
    ),
    gated_fields={
        "": (
            GatedField(gate="CompositePodGroup", parts=_holders, fields=(COMPOSITES,)),
            GatedField(
                gate="TopologyAwareWorkloadScheduling", parts=_templates_of_groups, fields=(CONSTRAINTS,), null=True
            ),
            GatedField(gate="DRAWorkloadResourceClaims", parts=_templates_of_groups, fields=("resourceClaims",)),
            GatedField(gate="PodGroupPreemptionPolicy", parts=_templates_of_groups, fields=(POLICY,)),
            GatedField(gate="PodGroupPreemptionPolicy", parts=_composite_templates, fields=(POLICY,)),
        )
    },
    printer=Printer((NAME, AGE), aged),
)

"""Losses: the objects that a restore or a revert does not bring back, with reasons. Then the exit code is LOST."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubechronicle.api.history.restore_plan import Step
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.steps import Result, object_name
from kubechronicle.ops.terminal import Painted

LOST: Final = 3
"""The exit code of a command that leaves something lost."""


def losses(
    plan: Sequence[Step],
    results: Iterable[Result],
    *,
    replace: bool,
    unread: Mapping[str, str],
    more: Iterable[str] = (),
) -> list[tuple[str, str]]:
    """Return the losses with their reasons. ``replace``: objects may be deleted and created again.

    ``unread``: resources that could not be read. ``more``: further reasons.
    """
    done = list(results)
    found = {(_name(each.step), each.outcome.removeprefix("failed: ")): None for each in done if each.failed}
    for each in done:
        found |= {(_name(each.step), reason): None for reason in each.lost}
    for step in plan:
        if step.problem and not done:
            found[_name(step), f"would be rejected: {step.problem}"] = None
        elif step.action == "replace" and not replace:
            found[_name(step), "it cannot be changed in place; --replace deletes and creates it"] = None
        if step.differs:
            found[_name(step), step.differs] = None
    found |= {(resource, f"not read: {reason}"): None for resource, reason in unread.items()}
    found |= {("", reason): None for reason in more}
    return list(found)


def _name(step: Step) -> str:
    return object_name(step.key) + (f" -n {step.key[2]}" if step.key[2] else "")


def print_losses(screen: Screen, found: Sequence[tuple[str, str]], title: str = "What stays lost:") -> None:
    if found:
        screen.line(Painted(title, "strong"))
    for name, reason in found:
        screen.line("  ", Painted(f"{name}: " if name else "", "old"), reason)


def losses_document(found: Sequence[tuple[str, str]]) -> list[Object]:
    return [{"object": name, "reason": reason} for name, reason in found]

"""Plans of three-way merges, of reverts and of branches, as text and as JSON; and the steps of them, carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from kubechronicle.api.history.restore_plan import Action
from kubechronicle.api.history.reverting import Conflict
from kubechronicle.api.values.objects import Object
from kubechronicle.ops.client.output import Screen
from kubechronicle.ops.client.restoring.execution import Execution, execution_document, step_document
from kubechronicle.ops.client.restoring.steps import Restorer, object_name
from kubechronicle.ops.client.restoring.trial import tried
from kubechronicle.ops.client.restoring.user_changes import Reversal
from kubechronicle.ops.client.revision_texts import change_lines, mask_changes
from kubechronicle.ops.terminal import Painted

SIGNS: Final[Mapping[Action, tuple[str, str]]] = {
    "create": ("+", "new"),
    "update": ("~", "who"),
    "replace": ("±", "old"),
    "delete": ("-", "old"),
    "leave": ("·", "dim"),
    "rebind": ("~", "who"),
}


def name_of(reversal: Reversal) -> str:
    """Return the name of the object in a list: ``deployment.apps/web -n shop``."""
    return object_name(reversal.key) + (f" -n {reversal.key[2]}" if reversal.key[2] else "")


def kept(plan: Sequence[Reversal]) -> list[tuple[str, str]]:
    """Return the objects that stay in part or in whole as they are, with the reasons, each once."""
    found = [(name_of(each), f"{_field(conflict)}{conflict.why}") for each in plan for conflict, _ in each.conflicts]
    return list(dict.fromkeys(found))


def _field(conflict: Conflict) -> str:
    return f"{conflict.field}: " if conflict.field else ""


def print_plan(
    screen: Screen, plan: Sequence[Reversal], words: Mapping[str, str], *, nothing: str, show_secrets: bool
) -> None:
    """Print each object, and their number by action. ``words``: by action. ``nothing``: if there is none."""
    for reversal in plan:
        _print_reversal(screen, reversal, words, show_secrets=show_secrets)
    counts = Counter(each.step.action for each in plan if each.step is not None and not each.conflicts)
    parts = [
        f"{counts[action]} to {words[action]}" for action in ("create", "update", "replace", "delete") if counts[action]
    ]
    in_part = sum(each.step is not None and bool(each.conflicts) for each in plan)
    kept = sum(each.step is None for each in plan)
    parts += [f"{in_part} to {words['update']} in part"] if in_part else []
    parts += [f"{kept} to keep"] if kept else []
    screen.line(", ".join(parts) if parts else nothing)
    rejected = sum(bool(each.step and each.step.problem) for each in plan)
    if rejected:
        screen.line(Painted(f"{rejected} would be rejected by the server as of now", "old"))


def _print_reversal(screen: Screen, reversal: Reversal, words: Mapping[str, str], *, show_secrets: bool) -> None:
    step, kind = reversal.step, reversal.key[1]
    sign, colour = SIGNS[step.action] if step is not None else ("!", "warning")
    word = words[step.action] if step is not None else "keep"
    where = Painted(f" -n {reversal.key[2]}" if reversal.key[2] else "", "dim")
    why = Painted(f"  ({step.why})" if step is not None and step.why else "", "dim")
    screen.line("  ", Painted(f"{sign} {word:<8}  {object_name(reversal.key)}", colour), where, why)
    if step is not None and step.action == "create" and reversal.key[:2] == ("", "Namespace"):
        screen.line("               ", f"its objects: kubectl chronicle restore -n {reversal.key[3]}")
    if step is not None and step.problem:
        screen.line("               ", Painted(f"would be rejected: {step.problem}", "old"))
    changes = list(step.changes) if step is not None else []
    for parts in change_lines(changes if show_secrets else mask_changes(changes, kind)):
        screen.line("               ", *parts)
    for conflict, later in reversal.conflicts:
        place = f"{conflict.field}: " if conflict.field else ""
        sign = ": " if conflict.others else " "
        text = f"{place}kept, {conflict.why}{f'{sign}{later}' if later else ''} (revision {conflict.revision})"
        screen.line("               ", Painted(text, "warning"))


def plan_document(plan: Sequence[Reversal], done: Execution) -> Object:
    entries = []
    for reversal in plan:
        group, kind, namespace, name = reversal.key
        entry: Object = {"group": group, "kind": kind, "namespace": namespace, "name": name, "action": "keep"}
        if reversal.step is not None:
            entry |= step_document(reversal.step)
        entry["conflicts"] = [
            {"field": each.field, "why": each.why, "revision": str(each.revision), "later": later}
            | ({"others": list(each.others)} if each.others else {})
            for each, later in reversal.conflicts
        ]
        entries.append(entry)
    return {"plan": entries} | execution_document(done)


def tried_plan(trial: Restorer, plan: Sequence[Reversal]) -> list[Reversal]:
    """Return the plan with the server's objections. An object that the user has replaced may be replaced again."""
    steps = [each.step for each in plan if each.step is not None]
    done = {step.key: step for step in tried(trial, steps, replaceable=lambda step: bool(step.why))}
    return [each if each.step is None else replace(each, step=done[each.key]) for each in plan]

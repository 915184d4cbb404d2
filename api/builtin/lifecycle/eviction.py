"""Eviction: the eviction of a pod that requesters want, and the responders that carry it out (KEP-4563).

Source: Kubernetes' ``registry/lifecycle/eviction`` and ``pkg/printers/internalversion``. The rules of its spec are tags
of its fields, those of its responders stand in responders.py.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import AROUND, Since, condition, is_true, joined
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, field_column, name_of, wide_field
from kubechronicle.api.builtin.lifecycle.evictionrequest import EVICTED, FAILED, UNSET, state_cell, target_cells
from kubechronicle.api.builtin.lifecycle.responders import ACTIVE, ENDS, ResponderMoment, responder_problems
from kubechronicle.api.errors.field_errors import Cause, invalid_value
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import any_name
from kubechronicle.api.values.objects import Object, ReadOnlyObject

_CONDITIONS: Final = "status.conditions"
_TYPES: Final = "lifecycle.v1alpha1"


def eviction_status(new: Object, old: Object, now: str) -> list[Cause]:
    """Check a change of the status: its ends stay, and each responder has its turn."""
    status, held = new.get("status") or {}, old.get("status") or {}
    given = status.get("conditions") or []
    causes = conditions(given, _CONDITIONS)
    ended = {kind for kind in (EVICTED, FAILED) if is_true(given, kind)}
    for before in held.get("conditions") or ():
        kind = before.get("type")
        if kind not in (EVICTED, FAILED) or before.get("status") != "True":
            continue
        after = condition(given, kind)
        if after is None or after.get("status") == "False" or after.get("reason") != before.get("reason"):
            causes.append(invalid_value(_CONDITIONS, given, f"{kind} condition status cannot be reverted"))
            ended.add(kind)
    return causes + responder_problems(status, held, ResponderMoment(datetime.fromisoformat(now), ended=bool(ended)))


# -- table columns ----------------------------------------------------------------------------------------------------


def _present(status: ReadOnlyObject) -> tuple[ReadOnlyObject | None, int]:
    """Return the responder whose turn it is, or the last one that had it, and the number of those that had a turn."""
    targets = status.get("targetResponders") or ()
    active = [each for each in targets if each.get("state") == ACTIVE]
    ended = [each for each in targets if each.get("state") in ENDS]
    return next(reversed(active or ended), None), len(active) + len(ended)


def _progress(responder: ReadOnlyObject, state: str, since: Since) -> tuple[str, str]:
    """Return the cells of a responder's status, and of the time when it expects to be done."""
    if state in ENDS:
        done = responder.get("completionTime") if state == "Completed" else None
        return (f"{state} ({since(done)} ago)" if done else state), "-"
    if state != ACTIVE or not responder.get("startTime"):
        return state, "<unknown>"
    started, expected = f"Started ({since(responder['startTime'])} ago)", responder.get("expectedCompletionTime")
    return started, since(AROUND + expected) if expected else "<unknown>"


def _requesters(status: ReadOnlyObject) -> str:
    requesters = status.get("requesters") or ()
    names = sorted(each.get("name", "") for each in requesters if each.get("intent") != "Withdrawn")
    return joined(names, 1, empty="<withdrawn>" if requesters else "<none>")


def _cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    status = obj.get("status") or {}
    present, turns = _present(status)
    name = UNSET if present is None else present.get("name", "")
    shown, finish, heartbeat, message = UNSET, "<unknown>", UNSET, UNSET
    for responder in status.get("responders") or () if present is not None else ():
        if present is not None and responder.get("name") == present.get("name"):
            shown, finish = _progress(responder, present.get("state", ""), since)
            heartbeat = f"{since(responder['heartbeatTime'])} ago" if responder.get("heartbeatTime") else UNSET
            message = (responder.get("message") or "").strip() or UNSET
            break
    turn = f"{name} ({turns}/{len(status.get('targetResponders') or ())})"
    cells = [name_of(obj), *target_cells(obj), state_cell(obj), turn, shown, finish, _requesters(status)]
    return [*cells, age_of(obj, since), heartbeat, message]


KIND: Final = BuiltinKind(
    resource="evictions.lifecycle.k8s.io",
    strategy=Strategy(
        check_name=any_name,  # a tag has the rule
        generation=True,
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        subresources=only_status(validate_now=eviction_status),
    ),
    printer=Printer(
        (
            NAME,
            field_column("Target", f"{_TYPES}.EvictionSpec.target"),
            field_column("Target Type", f"{_TYPES}.EvictionSpec.target"),
            field_column("Status", f"{_TYPES}.EvictionStatus.conditions"),
            field_column("Active Responder", f"{_TYPES}.TargetResponder.state"),
            field_column("Responder Status", f"{_TYPES}.ResponderStatus."),
            field_column("Responder Expected Finish", f"{_TYPES}.ResponderStatus.expectedCompletionTime"),
            field_column("Requesters", f"{_TYPES}.EvictionStatus.requesters"),
            AGE,
            wide_field("Responder Heartbeat", f"{_TYPES}.ResponderStatus.heartbeatTime"),
            wide_field("Responder Status Message", f"{_TYPES}.ResponderStatus.message"),
        ),
        _cells,
    ),
)

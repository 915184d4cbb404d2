"""Eviction: the eviction of a pod that requesters want, and the responders that carry it out (KEP-4563).

Source: Kubernetes' ``registry/lifecycle/eviction`` and ``pkg/printers/internalversion``. The rules of its spec are tags
of its fields, those of its responders stand in responders.py.

The responders of an Eviction: their turns by priority, and the times that they report.

Many write the status: a controller sets ``targetResponders``, and each responder its entry of ``responders``. These
rules keep the turns in order, whoever writes:

    1. The responder of the highest priority is Active first. All others are Inactive.
    2. It ends as Completed, Canceled or Interrupted. In the same write the next one becomes Active.
    3. Completed needs a completion time. The others need one, too, or a heartbeat that is too old.
    4. An end stays. Once the eviction itself has ended, no responder becomes Active.

Source: Kubernetes' ``apis/lifecycle/validation``. Not here: the rules that tags of the fields express.

EvictionRequest: the wish of a requester that a pod leaves its node (KEP-4563).

Source: Kubernetes' ``registry/lifecycle/evictionrequest``, ``apis/lifecycle`` and ``pkg/printers/internalversion``. The
rules of the spec are tags of its fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from kubechronicle.api.builtin.common.cell_text import AROUND, Since, condition, is_true, joined
from kubechronicle.api.builtin.common.checks import conditions
from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.builtin.common.kind import BuiltinKind, only_status
from kubechronicle.api.builtin.common.printer import AGE, NAME, Printer, age_of, at, field_column, name_of, wide_field
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.strategy.strategy import Check, Strategy
from kubechronicle.api.values.names import any_name
from kubechronicle.api.values.objects import Object, ReadOnlyObject

EVICTED: Final = "TargetEvicted"
FAILED: Final = "Failed"
"""The conditions that end an eviction."""
UNSET: Final = "<unset>"
_SPEC: Final = "lifecycle.v1alpha1.EvictionRequestSpec"


def _status(new: Object, _: Object) -> list[Cause]:
    return conditions((new.get("status") or {}).get("conditions") or [], "status.conditions")


def target_cells(obj: ReadOnlyObject) -> list[str]:
    """Return the cells of the target: its name and its type."""
    pod = at(obj, "spec", "target", "pod")
    return [UNSET, UNSET] if pod is None else [pod.get("name", ""), "Pod"]


def state_cell(obj: ReadOnlyObject) -> str:
    """Return the cell of the status: "Pending", "Progressing", or the condition that ends it with its reason."""
    status = obj.get("status") or {}
    for kind in (EVICTED, FAILED):
        found = condition(status.get("conditions"), kind)
        if found is not None and found.get("status") == "True":
            return f"{kind} ({found.get('reason', '')})"
    return "Progressing" if (status.get("observedGeneration") or 0) > 0 else "Pending"


def _evictionrequest_cells(obj: ReadOnlyObject, since: Since) -> list[Any]:
    given = [at(obj, "spec", name, default="") for name in ("requester", "intent")]
    return [name_of(obj), *target_cells(obj), state_cell(obj), *given, age_of(obj, since)]


EVICTIONREQUEST: Final = BuiltinKind(
    resource="evictionrequests.lifecycle.k8s.io",
    strategy=Strategy(
        check_name=any_name,  # a tag has the rule
        generation=True,
        unconditional_update=False,
        update_checks=(Check.METADATA_CHANGE,),
        subresources=only_status(_status),
    ),
    printer=Printer(
        (
            NAME,
            field_column("Target", f"{_SPEC}.target"),
            field_column("Target Type", f"{_SPEC}.target"),
            field_column("Status", "lifecycle.v1alpha1.EvictionRequestStatus.conditions"),
            field_column("Requester", f"{_SPEC}.requester"),
            field_column("Intent", f"{_SPEC}.intent"),
            AGE,
        ),
        _evictionrequest_cells,
    ),
)


ACTIVE: Final = "Active"
INACTIVE: Final = "Inactive"
COMPLETED: Final = "Completed"
ENDS: Final = ("Canceled", COMPLETED, "Interrupted")
MOST: Final = 11
"""The most responders, by a tag: ten of a pod's own, and Kubernetes'."""
FIXED_PRIORITIES: Final[Mapping[str, int]] = {"imperative-eviction.k8s.io/evictor": 100}
"""Responders of Kubernetes itself, and their priorities."""
RESERVED: Final = 1000
"""Others have at least this priority."""
HEARTBEAT: Final = timedelta(minutes=20)
SKEW: Final = timedelta(seconds=30)
FARTHEST: Final = timedelta(days=10 * 365)
_PRESENT: Final = "must be set to the present time"
_TARGETS: Final = "status.targetResponders"
_STATUSES: Final = "status.responders"


@dataclass(frozen=True, slots=True)
class ResponderMoment:
    """The time of a write, and whether the eviction has ended by then."""

    now: datetime
    ended: bool

    def is_now(self, text: str) -> bool:
        """Tell whether a time is that of the write, but for different clocks."""
        return abs(datetime.fromisoformat(text) - self.now) < SKEW


def responder_problems(status: Object, held: Object, moment: ResponderMoment) -> list[Cause]:
    """Return the problems of a status with all its responders."""
    targets, responders = (status.get(name) or [] for name in ("targetResponders", "responders"))
    causes = _targets(targets, held.get("targetResponders") or [], responders, moment)
    return causes + _responders(responders, held.get("responders") or [], targets, moment)


def _names(items: Sequence[Object]) -> set[str]:
    return {each.get("name", "") for each in items}


def _shown(items: Sequence[Object], kind: str) -> list[Object | None] | None:
    return [record(each, kind) for each in items] or None


# -- turns ------------------------------------------------------------------------------------------------------------


def _place(target: Object) -> tuple[bool, int, list[str], str]:
    """Return the sort key of a responder's turn: its priority, then its domain from the top, then its name in it."""
    priority = target.get("priority")
    domain, _, name = target.get("name", "").partition("/")
    return priority is None, -(priority or 0), domain.split(".")[::-1], name


def _targets(
    targets: Sequence[Object], held: Sequence[Object], responders: Sequence[Object], moment: ResponderMoment
) -> list[Cause]:
    if held:
        if len(targets) != len(held):
            text = "must preserve the same length and the same keys"
            return [invalid_value(_TARGETS, _shown(targets, "TargetResponder"), text)]
        if not _names(held) <= _names(targets):
            return [invalid_value(_TARGETS, _shown(targets, "TargetResponder"), "must preserve the same keys")]
    if not targets or len(targets) > MOST or len(_names(targets)) < len(targets):
        return []  # not set yet, or wrong by a tag
    order = sorted(range(len(targets)), key=lambda index: _place(targets[index]))
    states = [each.get("state", "") for each in sorted(held, key=_place)]
    active = states.index(ACTIVE) if ACTIVE in states else None
    changes = active is not None and targets[order[active]].get("state") != ACTIVE
    by_name = {each.get("name", ""): each for each in responders}
    causes: list[Cause] = []
    for turn, index in enumerate(order):
        allowed, why = _allowed(turn, states, active, changes=changes, ended=moment.ended)
        responder = by_name.get(targets[index].get("name", ""))
        causes += _target(targets[index], f"{_TARGETS}[{index}]", responder, moment, allowed, why)
    return causes


def _allowed(
    turn: int, states: Sequence[str], active: int | None, *, changes: bool, ended: bool
) -> tuple[Sequence[str], str]:
    """Return the states that the responder of a turn may have, and why.

    ``states``: the former states by turn. ``active``: the turn of the one that was Active. ``changes``: it is no more.
    """
    over = ended or (states and states[-1] in ENDS)
    if (active is not None and turn < active) or (states and active is None and over):
        return states[turn : turn + 1], "final state is immutable"
    done = "the eviction request has finished processing"
    if turn == active:
        if changes:
            return ENDS, "this responder must reach a final state"
        return (ENDS, done) if ended else ((ACTIVE,), "the eviction request stays active")
    if (turn == 0 and not states) or (active is not None and changes and turn == active + 1):
        return ((INACTIVE,), done) if ended else ((ACTIVE,), "this responder is next in line")
    return (INACTIVE,), "the previously active has not finished processing"


def _target(
    target: Object, path: str, responder: Object | None, moment: ResponderMoment, allowed: Sequence[str], why: str
) -> list[Cause]:
    name, state = target.get("name", ""), target.get("state", "")
    if responder is None:
        text = f"{go_quote(name)} has to be tracked in {_STATUSES} first"
        return [invalid_value(path, record(target, "TargetResponder"), text)]
    causes = _priority(name, target.get("priority"), f"{path}.priority")
    if state not in allowed:
        text = f"must be one of: {', '.join(allowed)}, because {why}"
        return [*causes, invalid_value(f"{path}.state", state, text)]
    started, completed = responder.get("startTime"), responder.get("completionTime")
    if state != ACTIVE and started and not completed and not moment.ended:
        last = datetime.fromisoformat(responder.get("heartbeatTime") or started)
        if moment.now < last + HEARTBEAT - SKEW:
            reports = f"{_STATUSES}.heartbeatTime or {_STATUSES}.completionTime"
            text = f"must stay Active because the responder is in progress and it should report {reports}"
            causes.append(forbidden(f"{path}.state", text))
    if state == COMPLETED and not completed:
        text = f"cannot become Completed because the responder didn't report {_STATUSES}.completionTime"
        causes.append(invalid_value(f"{path}.state", state, text))
    return causes


def _priority(name: str, priority: int | None, path: str) -> list[Cause]:
    if priority is None or priority < 0:
        return []
    fixed = FIXED_PRIORITIES.get(name)
    if fixed is not None and priority != fixed:
        return [invalid_value(path, priority, f"core k8s responder is expected to have priority: {fixed}")]
    if fixed is None and priority < RESERVED:
        return [invalid_value(path, priority, "priorities 0-999 are reserved for responders with *.k8s.io suffix")]
    return []


# -- reports ----------------------------------------------------------------------------------------------------------


def _responders(
    responders: Sequence[Object], held: Sequence[Object], targets: Sequence[Object], moment: ResponderMoment
) -> list[Cause]:
    if len(targets) != len(responders):
        text = f"must be the same length as {_TARGETS} and contain the same keys"
        return [invalid_value(_STATUSES, _shown(responders, "ResponderStatus"), text)]
    if not _names(targets) <= _names(responders):
        text = f"must contain the same keys as {_TARGETS}"
        return [invalid_value(_STATUSES, _shown(responders, "ResponderStatus"), text)]
    if len(responders) > MOST or len(_names(responders)) < len(responders):
        return []  # wrong by a tag
    before = {each.get("name", ""): each for each in held}
    states = {each.get("name", ""): each.get("state", "") for each in targets}
    causes: list[Cause] = []
    for index, responder in enumerate(responders):
        name, path = responder.get("name", ""), f"{_STATUSES}[{index}]"
        old, active = before.get(name), states[name] == ACTIVE
        if old is not None and not active and not same_json(responder, old):
            causes.append(invalid_value(path, record(responder, "ResponderStatus"), IMMUTABLE))
        else:
            causes += _report(responder, old or {}, path, moment, active=active)
    return causes


def _report(new: Object, old: Object, path: str, moment: ResponderMoment, *, active: bool) -> list[Cause]:
    """Check the times that a responder reports. Tags say that its start and its completion stay once they are set."""
    started, causes = new.get("startTime"), list[Cause]()
    if not old.get("startTime"):
        if not started and active:
            causes.append(required(f"{path}.startTime", "is required for an active responder"))
        elif started and not moment.is_now(started):
            causes.append(invalid_value(f"{path}.startTime", started, _PRESENT))
    if old.get("heartbeatTime") and not new.get("heartbeatTime"):
        causes.append(required(f"{path}.heartbeatTime", "is required once set"))
    for name in ("heartbeatTime", "expectedCompletionTime", "completionTime"):
        value, changed = new.get(name), new.get(name) != old.get(name)
        checked = changed if name != "completionTime" else not (old.get(name) and changed)
        if value and checked and (problem := _time_problem(name, new, old, path, moment)):
            causes.append(invalid_value(f"{path}.{name}", value, problem))
    return causes


def _time_problem(name: str, new: Object, old: Object, path: str, moment: ResponderMoment) -> str:
    """Return why a responder cannot report this time, or ""."""
    parse = datetime.fromisoformat
    value, before, started = parse(new[name]), old.get(name), new.get("startTime")
    if not started:
        return f"cannot be set before {path}.startTime is set"
    if name == "heartbeatTime" and before and value < parse(before):
        return "cannot be decreased"
    if value < parse(started):
        return f"must occur after {path}.startTime"
    if name != "expectedCompletionTime":
        return "" if new[name] == before or moment.is_now(new[name]) else _PRESENT
    if value < moment.now - SKEW:
        return "cannot be set to the past time"
    return "must complete within 10 years" if value > moment.now + FARTHEST else ""


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


EVICTION: Final = BuiltinKind(
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

KINDS: Final = (
    EVICTION,
    EVICTIONREQUEST,
)

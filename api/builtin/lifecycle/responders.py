"""The responders of an Eviction: their turns by priority, and the times that they report.

Many write the status: a controller sets ``targetResponders``, and each responder its entry of ``responders``. These
rules keep the turns in order, whoever writes:

    1. The responder of the highest priority is Active first. All others are Inactive.
    2. It ends as Completed, Canceled or Interrupted. In the same write the next one becomes Active.
    3. Completed needs a completion time. The others need one, too, or a heartbeat that is too old.
    4. An end stays. Once the eviction itself has ended, no responder becomes Active.

Source: Kubernetes' ``apis/lifecycle/validation``. Not here: the rules that tags of the fields express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kubechronicle.api.builtin.common.go_shapes import record
from kubechronicle.api.errors.field_errors import Cause, forbidden, go_quote, invalid_value, required
from kubechronicle.api.meta.metadata import IMMUTABLE
from kubechronicle.api.schema.equality import same_json
from kubechronicle.api.values.objects import Object

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

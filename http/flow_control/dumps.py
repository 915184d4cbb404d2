"""The debug pages of priority and fairness, in the columns of kube-apiserver: levels, queues and requests as CSV.

/debug/api_priority_and_fairness/dump_priority_levels
/debug/api_priority_and_fairness/dump_queues
/debug/api_priority_and_fairness/dump_requests            ?includeRequestDetails=1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Final

import trio

from kubechronicle.api.flow_control.pace import Ticket
from kubechronicle.api.flow_control.queues import Level
from kubechronicle.api.meta.request_info import Query
from kubechronicle.http.context import Context
from kubechronicle.http.flow_control.control import FlowControl
from kubechronicle.http.messages import Response

DUMPS: Final = "/debug/api_priority_and_fairness/dump_"
_HEADERS: Final = [("content-type", "text/plain; charset=utf-8")]
_NEVER: Final = "0001-01-01T00:00:00Z"

_LEVELS: Final = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests",
    "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests",
)  # fmt: skip
_QUEUES: Final = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR",
    "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_REQUESTS: Final = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime",
    "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
_DETAILS: Final = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")


def dump(control: FlowControl, path: str, query: Query) -> Response | None:
    """Return the page of a path below DUMPS; None: there is no such page."""
    match path[len(DUMPS) :]:
        case "priority_levels":
            rows = [_LEVELS, *(_level(level) for _, level in sorted(control.levels.items()))]
        case "queues":
            rows = [_QUEUES, *(row for level in control.levels.values() for row in _queues(level))]
        case "requests":
            details = bool(query.get("includeRequestDetails"))
            rows = [(*_REQUESTS, *_DETAILS) if details else _REQUESTS]
            for level in control.levels.values():
                rows += _requests(level, details=details)
        case _:
            return None
    return Response(200, list(_HEADERS), _aligned(rows))


def _level(level: Level) -> tuple[str, ...]:
    counts = (level.waiting, level.executing, level.dispatched, level.rejected, 0, level.timed_out)
    states = (str(level.idle).lower(), str(level.retiring).lower())
    return (level.spec.name, str(level.active_queues), *states, *map(str, counts))


def _queues(level: Level) -> Iterator[tuple[str, ...]]:
    for queue in level.queues:
        waiting = queue.waiting
        numbers = (queue.index, len(waiting), len(queue.executing), queue.seats)
        seats = (sum(ticket.seats for ticket in waiting), sum(ticket.width for ticket in waiting))
        yield (level.spec.name, *map(str, numbers), _work(queue.next_r), *map(str, seats), _work(queue.work))


def _work(seat_seconds: float) -> str:
    return f"{seat_seconds:.8f}ss"


def _requests(level: Level, *, details: bool) -> Iterator[tuple[str, ...]]:
    for queue in level.queues:
        for index, ticket in enumerate(queue.waiting):
            yield _request(level, queue.index, index, ticket, details=details)
        for ticket in queue.executing:
            yield _request(level, queue.index, -1, ticket, details=details)
    for ticket in level.without_queue:
        yield _request(level, -1, -1, ticket, details=details)


def _request(level: Level, queue: int, index: int, ticket: Ticket, *, details: bool) -> tuple[str, ...]:
    context: Context = ticket.about
    now = trio.current_time()
    started = _time(now - ticket.started) if ticket.running else _NEVER
    row = (
        level.spec.name, ticket.flow.schema, str(queue), str(index), ticket.flow.distinguisher,
        _time(now - ticket.arrived), str(ticket.seats), str(ticket.final_seats), f"{ticket.extra:g}s", started,
    )  # fmt: skip
    if not details:
        return row
    info = context.info
    version = f"{info.group}/{info.version}" if info.group else info.version
    return (
        *row, context.user.name, info.verb, info.path, info.namespace, info.name, version, info.resource,
        info.subresource,
    )  # fmt: skip


def _time(ago: float) -> str:
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() - ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _aligned(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows of cells, separated by commas and padded so that the columns stand below each other."""
    # A line break in a name would make a row of its own.
    cells = [[" ".join(cell.split()) + "," * (index < len(row) - 1) for index, cell in enumerate(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
    lines = ("".join(cell.ljust(width + 1) for cell, width in zip(row, widths, strict=False)).rstrip() for row in cells)
    return ("\n".join(lines) + "\n").encode()

"""The seats of a request: how much work it is, before it is done (k8s.io/apiserver, package flowcontrol/request).

get                                  1
list, watch from the beginning       1 for each BYTES_A_SEAT of the objects it returns, within the level's limit
create, update, patch, delete        1, and for AFTER seconds 1 for each WATCHERS_A_SEAT watchers of the object
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Final

import trio

from kubechronicle.api.meta.request_info import Query, RequestInfo
from kubechronicle.eventlog.views.views import View

BYTES_A_SEAT: Final = 100_000
WATCHERS_A_SEAT: Final = 10
AFTER: Final = 0.005
"""Seconds for which the events of a write keep seats."""
MOST_OF_A_LIST: Final = 100
MOST_OF_A_WRITE: Final = 10
MUTATING: Final = frozenset({"create", "update", "patch", "delete"})
SAMPLE: Final = 16
"""Objects whose size stands for that of all."""
SAMPLE_KEPT: Final = 60.0
"""Seconds for which it does."""

Work = tuple[int, int, float]
"""Seats while it runs, seats after its end, seconds of the latter."""

ONE: Final[Work] = (1, 0, 0.0)


FindView = Callable[[str], View | None]
"""Return the view of a resource, if it has been used."""


class Estimates:
    """Estimates from the present views."""

    def __init__(self, find: FindView) -> None:
        self._find = find
        self._sizes: dict[str, tuple[float, int]] = {}  # resource -> when it was measured, average bytes

    def work(self, info: RequestInfo, query: Query, most: int, watchers: defaultdict[int, int]) -> Work:
        """Return the work of a request.

        ``most``: the seats that one request of its level may take; 0: unlimited.
        ``watchers``: a write is counted here by the number of its object's watchers.
        """
        verb = info.verb
        if not info.is_resource or verb == "get":
            return ONE
        if verb in MUTATING:
            return self._of_write(info, most, watchers)
        if verb == "list" or (verb == "watch" and _begins_with_state(query)):
            return self._of_list(info, query, most)
        return ONE

    def _of_write(self, info: RequestInfo, most: int, counts: defaultdict[int, int]) -> Work:
        view = self._find(info.group_resource)
        if view is None or (info.subresource == "token" and info.resource == "serviceaccounts"):
            return ONE
        watchers = view.watchers.concerned(info.namespace, info.name)
        counts[watchers] += 1
        if watchers < WATCHERS_A_SEAT:
            return ONE
        seats = math.ceil(watchers / WATCHERS_A_SEAT)
        final = min(seats, most or MOST_OF_A_WRITE, MOST_OF_A_WRITE)
        return 1, final, AFTER * seats / final

    def _of_list(self, info: RequestInfo, query: Query, most: int) -> Work:
        view = self._find(info.group_resource)
        if view is None or info.name:
            return ONE
        count = view.count(info.namespace)
        limit = query.get("limit")
        if limit and limit.isdecimal() and 0 < int(limit[:9]) < count:
            count = int(limit[:9])
        seats = math.ceil(count * self._size(view) / BYTES_A_SEAT)
        return max(1, min(seats, most or MOST_OF_A_LIST, MOST_OF_A_LIST)), 0, 0.0

    def _size(self, view: View) -> int:
        """Return the average bytes of an object, measured on a few."""
        now = trio.current_time()
        known = self._sizes.get(view.resource)
        if known is None or now - known[0] > SAMPLE_KEPT:
            some = view.page("", None, SAMPLE)
            known = self._sizes[view.resource] = (now, sum(len(one.json) for one in some) // max(len(some), 1))
        return known[1]


def _begins_with_state(query: Query) -> bool:
    """Tell whether a watch begins with the present objects."""
    return query.get("resourceVersion") in ("", "0") or query.flag("sendInitialEvents")

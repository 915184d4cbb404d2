"""Fixed limits of the requests in flight, for reads and for writes: those of a server without priority and fairness."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, MutableMapping

from kubechronicle.http.authentication.user import GROUP_MASTERS
from kubechronicle.http.context import Context, Step
from kubechronicle.http.flow_control.control import READ_VERBS
from kubechronicle.http.flow_control.measures import READS, WRITES
from kubechronicle.http.messages import Request, Response
from kubechronicle.http.representation.answers import too_many_requests


def with_limits(limits: Mapping[str, int], counts: MutableMapping[str, int], following: Step) -> Step:
    """Return the step that rejects requests above a limit with 429. Watches and masters are not limited.

    ``limits``: of "readOnly" and "mutating" requests; 0: none. ``counts``: the present numbers.
    """

    def filtered(request: Request, context: Context) -> Awaitable[Response]:
        if context.long_running:
            return following(request, context)
        return counted(request, context, READS if context.info.verb in READ_VERBS else WRITES)

    async def counted(request: Request, context: Context, kind: str) -> Response:
        limit = limits[kind]
        if limit and counts[kind] >= limit and GROUP_MASTERS not in context.user.groups:
            context.terminated = True
            return too_many_requests(1)
        counts[kind] += 1
        try:
            return await following(request, context)
        finally:
            counts[kind] -= 1

    return filtered

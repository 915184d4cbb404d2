"""The check of another server: a request for its resource list, several times at once.

One success of ATTEMPTS is enough: a Service may have endpoints that do not answer. Source: kube-aggregator
``pkg/controllers/status/remote``.
"""

from __future__ import annotations

from typing import Final

import trio

from kubechronicle.api.registry.api_services import ApiService
from kubechronicle.http.aggregation.backends import Backends
from kubechronicle.http.outgoing.client import AskError
from kubechronicle.http.outgoing.webhooks import go_error

ATTEMPTS: Final = 5
TIMEOUT: Final = 5.0
"""Seconds for one request."""
AGGREGATOR: Final = {"x-remote-user": "system:kube-aggregator", "x-remote-group": "system:masters"}
"""The user in whose name this server asks others."""


class DiscoveryCheck:
    """Requests resource lists. ``backends``: addresses and clients of the other servers."""

    def __init__(self, backends: Backends) -> None:
        self._backends = backends

    async def __call__(self, one: ApiService) -> str:
        """Return "" if a request succeeds, else the reason of the last failure."""
        failures: list[str] = []
        async with trio.open_nursery() as nursery:

            async def attempt() -> None:
                problem = await self._attempt(one)
                if problem:
                    failures.append(problem)
                else:
                    nursery.cancel_scope.cancel()

            for _ in range(ATTEMPTS):
                nursery.start_soon(attempt)
        return failures[-1] if len(failures) == ATTEMPTS else ""

    async def _attempt(self, one: ApiService) -> str:
        assert one.service is not None
        try:
            server = await self._backends.url(one.service)
        except ValueError as error:
            return str(error)
        url = server + one.path
        failing = f"failing or missing response from {url}: "
        try:  # as kube-aggregator, it accepts anything: a server may have aggregated discovery alone
            client = await self._backends.client(one, server)
            answer = await client.ask("GET", url, headers={**AGGREGATOR, "accept": ""}, timeout=TIMEOUT)
        except AskError as error:
            self._backends.failed(one.service, server)
            why = "context deadline exceeded" if error.timed_out else go_error(error.why, url)
            return f'{failing}Get "{url}": {why}'
        if not 200 <= answer.status < 300:
            return f"{failing}bad status from {url}: {answer.status}"
        return ""

"""The hourly tokens of outside witnesses (--witness), and the metrics of them.

Servers that share a database share the tokens: a server asks a service only if the newest token is an hour old.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.actors.supervisor import ChildSpec
from kubechronicle.eventlog.errors import LogError
from kubechronicle.eventlog.postgres_log import PostgresLog
from kubechronicle.eventlog.restarts import plain
from kubechronicle.http.outgoing.client import Outgoing
from kubechronicle.ops.server.plan import Plan
from kubechronicle.ops.settings.settings import Settings

if TYPE_CHECKING:
    from kubechronicle.ops.server.outside.time_stamping import Service

log = logging.getLogger(__name__)

INTERVAL: Final = timedelta(hours=1)
FIRST: Final = 60.0
"""Seconds after the start: clients have reconnected."""
RETRY: Final = 300.0
"""Seconds after a failure."""


class Witness:
    """One service that signs the state of one log."""

    def __init__(self, service: Service, revision_log: PostgresLog, database: str) -> None:
        self.url, self.database = service.url, database
        self.failures = 0
        self._service = service
        self._log = revision_log
        self._stamped: float | None = None  # time.monotonic

    @property
    def age(self) -> float | None:
        """The seconds since the newest token; None: unknown."""
        return None if self._stamped is None else time.monotonic() - self._stamped

    async def run(self, leading: trio.Event | None) -> None:
        if leading is not None:
            await leading.wait()
        await trio.sleep(FIRST)
        while True:
            wait = await self._renew()
            await trio.sleep(wait)

    async def _renew(self) -> float:
        """Renew the token if it is due. Return the seconds to wait."""
        from kubechronicle.ops.server.outside.time_stamping import NoToken

        try:
            age, revision = await self._log.witness(self.url, self._service.token, after=INTERVAL)
        except (NoToken, LogError) as error:
            self.failures += 1
            log.warning("An outside witness did not sign the log, trying again later", extra={"err": str(error)})
            return RETRY
        self._stamped = time.monotonic() - age.total_seconds()
        if revision:
            log.info("An outside witness signed the log", extra={"witness": self.url, "revision": revision})
        return max((INTERVAL - age).total_seconds(), 1.0)


class WitnessCollector(Collector):
    """Metrics of witnesses, read at each request for /metrics."""

    def __init__(self, witnesses: Sequence[Witness]) -> None:
        self._witnesses = witnesses

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        labels = ["witness", "database"]
        ages = GaugeMetricFamily(
            "kubechronicle_witness_token_age_seconds", "Seconds since an outside witness signed the log.", labels=labels
        )
        failures = CounterMetricFamily(
            "kubechronicle_witness_failures", "Attempts to have the log signed that failed.", labels=labels
        )
        for each in self._witnesses:
            if (age := each.age) is not None:
                ages.add_metric([each.url, each.database], age)
            failures.add_metric([each.url, each.database], each.failures)
        yield from (ages, failures)


def witness_urls(settings: Settings) -> tuple[str, ...]:
    """Return the URLs of --witness. OperatorError: one is none, or the package is missing."""
    urls = settings.witness or ()
    if urls:
        from kubechronicle.ops.server.outside.time_stamping import services_of

        services_of(urls, Outgoing())
    return urls


def witnesses_of(plan: Plan, outgoing: Outgoing, logs: Sequence[tuple[str, PostgresLog]]) -> list[Witness]:
    """Return the witnesses of each log, by the name of its database."""
    if not plan.witnesses:
        return []
    from kubechronicle.ops.server.outside.time_stamping import services_of

    services = services_of(plan.witnesses, outgoing)
    return [Witness(service, each, name) for name, each in logs for service in services]


def tasks_of(witnesses: Sequence[Witness], leading: trio.Event | None) -> list[ChildSpec]:
    return [
        ChildSpec(name=f"witness-{number}", run=plain(partial(each.run, leading)))
        for number, each in enumerate(witnesses)
    ]

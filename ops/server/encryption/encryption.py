"""Encryption: the providers of a running server, their key services, and the reload of their configuration.

start     each key service is asked once, then the log is loaded; one that does not answer is tried in the background
reload    new key services start beside the old ones; if all are healthy, new contents are read and written by them,
          and the old ones end when no call to them can be under way any more
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import trio
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.http.health import HealthCheck, Unhealthy
from kubechronicle.http.reloading import NotLoadedYet, ReloadedFile, ReloadMetrics, Unusable
from kubechronicle.ops.server.collectors.encryption import EncryptionCollector
from kubechronicle.ops.server.encryption.chains import Built, EncryptionPlan, Plugin, build

log = logging.getLogger(__name__)

# Seconds in which the key services of a changed configuration must become healthy, and between looks at them.
PATIENCE: Final = 10.0
POLL: Final = 0.1


class Encryption:
    """``plan`` None: nothing is encrypted. ``contents``: for the log. ``server``: the name of this server in metrics.

    ``run`` must have started before the log is loaded.
    """

    def __init__(self, plan: EncryptionPlan | None, *, server: str = "") -> None:
        self._plan = plan
        self.contents = EncryptedContents()
        self._statistics = self.contents.statistics
        self._current = Built({}, ())
        self._scope = trio.CancelScope()  # of the current key services
        if plan is not None:
            self._current = build(plan.configuration, self._statistics)
            self.contents.use(self._current.chains)
        self._server = server
        self._kms_v1 = plan is not None and plan.kms_v1
        self._reloads = ReloadMetrics("apiserver_encryption_config_controller", "encryption configuration", server)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the key services and follow the file, until cancelled."""
        if self._plan is None:
            task_status.started()
            await trio.sleep_forever()
            return
        self._scope = trio.CancelScope()  # another one after a failure
        async with trio.open_nursery() as nursery:
            await nursery.start(self._serve, self._current.plugins, self._scope)
            async with trio.open_nursery() as first:
                for plugin in self._current.plugins:
                    first.start_soon(self._check_first, plugin)
            file = ReloadedFile(
                self._plan.file,
                lambda content: self._apply(content, nursery),
                applied=self._plan.content,
                metrics=self._reloads,
            )
            task_status.started()
            if self._plan.reload:
                await file.run()

    def over(self, log: RevisionLog) -> EncryptedLog:
        """Return the log that encrypts and decrypts over the stored one."""
        return EncryptedLog(log, self.contents)

    def checks(self) -> list[HealthCheck]:
        """Return the health checks of the key services: one for all, or one for each if there are some of KMS v1.

        One for all where they may change: with reloads.
        """
        if self._plan is None or not (self._plan.reload or self._current.plugins):
            return []
        if self._plan.reload or not any(plugin.is_v1 for plugin in self._current.plugins):
            return [HealthCheck("kms-providers", self._check_health, live=False, healthz=True)]
        return [
            HealthCheck(f"kms-provider-{number}", partial(_check, plugin), live=False, healthz=True)
            for number, plugin in enumerate(self._current.plugins)
        ]

    def collectors(self) -> list[Collector]:
        if self._plan is None:
            return [EncryptionCollector(self._statistics, self._server)]
        return [EncryptionCollector(self._statistics, self._server), _Reloads(self._reloads)]

    # -- key services -------------------------------------------------------------------------------------------------

    async def _serve(
        self, plugins: Sequence[Plugin], scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]
    ) -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for plugin in plugins:
                    await nursery.start(plugin.service.channel.run)
                    await nursery.start(plugin.provider.health.run)
                task_status.started()

    async def _check_first(self, plugin: Plugin) -> None:
        if problem := await plugin.provider.health.check():
            log.error("A key service is not healthy", extra={"provider": plugin.provider.name, "err": problem})

    def _check_health(self) -> None:
        problems = []
        for number, plugin in enumerate(self._current.plugins):
            try:
                _check(plugin)
            except Unhealthy as problem:
                problems.append(f"kms-provider-{number}: {problem}")
        if problems:
            raise Unhealthy(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")

    # -- reloading ----------------------------------------------------------------------------------------------------

    async def _apply(self, content: bytes, nursery: trio.Nursery) -> None:
        """Use a changed file. Unusable; NotYet: a key service is not healthy."""
        if not content:
            raise Unusable("it is empty")
        try:
            configuration = encryption.load(content, kms_v1=self._kms_v1)
        except ConfigFileError as error:
            raise Unusable(str(error)) from None
        new, scope = build(configuration, self._statistics), trio.CancelScope()
        await nursery.start(self._serve, new.plugins, scope)
        try:
            await self._wait_healthy(new.plugins)
        except BaseException:
            scope.cancel()
            raise
        old, old_scope = self._current, self._scope
        self._current, self._scope = new, scope
        self.contents.use(new.chains)
        nursery.start_soon(_retire, old.plugins, old_scope)

    async def _wait_healthy(self, plugins: Sequence[Plugin]) -> None:
        problems: list[str] = []
        with trio.move_on_after(max(PATIENCE, 2 * sum(plugin.timeout for plugin in plugins))):
            while True:
                problems = [problem for plugin in plugins if (problem := await plugin.provider.health.check())]
                if not problems:
                    return
                await trio.sleep(POLL)
        raise NotLoadedYet(f"a key service is not healthy: {problems[0] if problems else 'it does not answer'}")


def _check(plugin: Plugin) -> None:
    """Raise Unhealthy with the problem that the last check has found. Let another one be made soon."""
    plugin.provider.health.request_check()
    if problem := plugin.provider.health.last_problem:
        raise Unhealthy(problem)


async def _retire(plugins: Sequence[Plugin], scope: trio.CancelScope) -> None:
    """End key services when calls of reads under way have ended."""
    await trio.sleep(2 * sum(plugin.timeout for plugin in plugins))
    scope.cancel()


class _Reloads(Collector):
    """The metrics of reloads."""

    def __init__(self, metrics: ReloadMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()

"""Encryption: the providers of a running server, their key services, and the reload of their configuration.

start     each key service is asked once, then the log is loaded; one that does not answer is tried in the background
reload    new key services start beside the old ones; if all are healthy, new contents are read and written by them,
          and the old ones end when no call to them can be under way any more

Metrics of encryption at rest, with kube-apiserver's names, read at each request for /metrics.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.log import RevisionLog
from kubechronicle.eventlog.measures import histogram_family
from kubechronicle.http.health import HealthCheck, Unhealthy
from kubechronicle.http.reloading import NotLoadedYet, ReloadedFile, ReloadMetrics, Unusable, sha256_label
from kubechronicle.ops.server.encryption.chains import Built, EncryptionPlan, Plugin, build

STORAGE, ENVELOPE = "apiserver_storage", "apiserver_envelope_encryption"


@dataclass(slots=True, eq=False)
class EncryptionCollector(Collector):
    """``server``: the name of this server among those that share the cluster."""

    statistics: EncryptionStatistics
    server: str = ""

    def collect(self) -> Iterable[Metric]:
        found = self.statistics
        operations = CounterMetricFamily(
            f"{STORAGE}_transformation_operations",
            "Total number of transformations. Successful ones have the status OK.",
            labels=["resource", "transformation_type", "transformer_prefix", "status"],
        )
        for labels, number in found.operations.items():
            operations.add_metric(labels, number)
        yield operations
        yield histogram_family(
            f"{STORAGE}_transformation_duration_seconds",
            "Latencies in seconds of value transformation operations.",
            ["transformation_type", "transformer_prefix"],
            found.seconds,
        )
        yield histogram_family(
            f"{STORAGE}_data_key_generation_duration_seconds",
            "Latencies in seconds of data encryption key (DEK) generation operations.",
            [],
            {(): found.generations},
        )
        misses = CounterMetricFamily(
            f"{STORAGE}_envelope_transformation_cache_misses",
            "Total number of data encryption keys that had to be decrypted by a key service.",
        )
        misses.add_metric([], found.misses)
        yield misses
        yield from self._envelope()

    def _envelope(self) -> Iterable[Metric]:
        found, server = self.statistics, sha256_label(self.server)
        yield histogram_family(
            f"{ENVELOPE}_kms_operations_latency_seconds",
            "KMS operation duration with gRPC error code status total.",
            ["provider_name", "method_name", "grpc_status_code"],
            found.calls,
        )
        yield from self._grpc()
        labels = ["transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"]
        uses = CounterMetricFamily(
            f"{ENVELOPE}_key_id_hash",
            "Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
            labels=labels,
        )
        last = GaugeMetricFamily(
            f"{ENVELOPE}_key_id_hash_last_timestamp_seconds",
            "The last time in seconds when a keyID was used.",
            labels=labels,
        )
        for (kind, provider, key_id), use in found.key_uses.items():
            values = [kind, provider, sha256_label(key_id), server]
            uses.add_metric(values, use.count)
            last.add_metric(values, use.last)
        yield from (uses, last)
        told = GaugeMetricFamily(
            f"{ENVELOPE}_key_id_hash_status_last_timestamp_seconds",
            "The last time in seconds when a keyID was returned by the Status RPC call.",
            labels=["provider_name", "key_id_hash", "apiserver_id_hash"],
        )
        for (provider, key_id), when in found.keys_told.items():
            told.add_metric([provider, sha256_label(key_id), server], when)
        invalid = CounterMetricFamily(
            f"{ENVELOPE}_invalid_key_id_from_status",
            "Number of times an invalid keyID is returned by the Status RPC call split by error.",
            labels=["provider_name", "error"],
        )
        for each, number in found.bad_key_ids.items():
            invalid.add_metric(each, number)
        cached = GaugeMetricFamily(
            f"{ENVELOPE}_dek_source_cache_size",
            "Number of records in the cache of data encryption keys (DEK source).",
            labels=["provider_name"],
        )
        for provider, number in found.cached_keys.items():
            cached.add_metric([provider], number)
        yield from (told, invalid, cached)
        fill = GaugeMetricFamily(
            f"{ENVELOPE}_dek_cache_fill_percent", "Percent of the cache slots currently occupied by cached DEKs."
        )
        fill.add_metric([], found.key_cache_fill)
        yield fill
        yield histogram_family(
            f"{ENVELOPE}_dek_cache_inter_arrival_time_seconds",
            "Time (in seconds) of inter arrival of transformation requests.",
            ["transformation_type"],
            found.arrivals,
        )

    def _grpc(self) -> Iterable[Metric]:
        """Yield the calls to key services, one message each way, by the names of the Go library."""
        ended = Counter[tuple[str, ...]]()
        for (_, path, code), durations in self.statistics.calls.items():
            _, service, method = path.split("/")
            ended["unary", service, method, code] += int(durations.number)
        calls, answers = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for (*about, code), number in ended.items():
            calls[tuple(about)] += number
            answers[tuple(about)] += number if code == "OK" else 0
        labels = ["grpc_type", "grpc_service", "grpc_method"]
        kinds = (
            ("started", "RPCs started on the client.", labels, calls),
            ("msg_sent", "gRPC stream messages sent by the client.", labels, calls),
            ("msg_received", "RPC stream messages received by the client.", labels, answers),
            ("handled", "RPCs completed by the client, whatever their result.", [*labels, "grpc_code"], ended),
        )
        for name, of, names, found in kinds:
            family = CounterMetricFamily(f"grpc_client_{name}", f"Total number of {of}", labels=names)
            for values, number in found.items():
                family.add_metric(values, number)
            yield family


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

"""Metrics of encryption at rest, with kube-apiserver's names, read at each request for /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.measures import histogram_family
from kubechronicle.http.reloading import sha256_label

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

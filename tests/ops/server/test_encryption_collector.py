"""Metrics of encryption: the calls to key services as those of a gRPC client."""

from __future__ import annotations

from kubechronicle.eventlog.encryption.errors import KeyServiceError
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.ops.server.encryption.encryption import EncryptionCollector

PATH = "/v2.KeyManagementService/{}"


def test_calls_of_all_key_services_are_counted_together() -> None:
    statistics = EncryptionStatistics()
    for provider in ("one", "two"):
        statistics.count_call(provider, PATH.format("Encrypt"), 0.001, None)
    statistics.count_call("one", PATH.format("Encrypt"), 3.0, KeyServiceError("DeadlineExceeded", "it is late"))
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in EncryptionCollector(statistics).collect()
        for sample in family.samples
        if sample.name.startswith("grpc_client")
    }
    call = ("unary", "v2.KeyManagementService", "Encrypt")
    assert found == {
        ("grpc_client_started_total", *call): 3,
        ("grpc_client_msg_sent_total", *call): 3,
        ("grpc_client_msg_received_total", *call): 2,
        ("grpc_client_handled_total", *call, "OK"): 2,
        ("grpc_client_handled_total", *call, "DeadlineExceeded"): 1,
    }

"""Envelope encryption with a key service: seeds, rotation, expiry, failures, and what is asked how often."""

from __future__ import annotations

import pytest
import trio

from kubechronicle.eventlog.encryption import key_services, kms, protobuf
from kubechronicle.eventlog.encryption.contents import EncryptedContents, decode
from kubechronicle.eventlog.encryption.errors import KeyServiceError, TransformError
from kubechronicle.eventlog.encryption.kms import KmsProvider, hash_of, key_id_of
from kubechronicle.eventlog.encryption.providers import ProviderChain
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.records import Key
from tests.support.encryption.providers import MemoryKeyService

KEY = Key("secrets", "default", "a")
BODY = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"x":"cGxhbnRlZA=="}}'
PREFIX = b"k8s:enc:kms:v2:vault:"
UNAVAILABLE = KeyServiceError("Unavailable", "rpc error: code = Unavailable desc = gone")


class Bench:
    """A provider with its service and a clock, and contents that use it."""

    def __init__(self, service: MemoryKeyService | None = None) -> None:
        self.service = service or MemoryKeyService()
        self.now = 1_000_000.0
        self.statistics = EncryptionStatistics()
        self.provider = KmsProvider("vault", self.service, self.statistics, clock=lambda: self.now)
        self.contents = EncryptedContents({"*.*": ProviderChain([(PREFIX, self.provider)], statistics=self.statistics)})

    async def check(self) -> str:
        self.now += key_services.HEALTHY_TTL
        return await self.provider.health.check()

    def encrypted(self) -> bytes:
        return self.contents.encrypted(KEY, BODY)


async def test_one_seed_encrypts_until_the_key_changes() -> None:
    bench = Bench()
    assert await bench.check() == ""
    first = bench.encrypted()
    assert await bench.check() == ""
    assert await bench.contents.decrypted(KEY, first) == (BODY, False)
    assert bench.service.calls == ["status", "encrypt", "status"]
    bench.service.key = "2"
    assert await bench.check() == ""
    second = bench.encrypted()
    ids = [key_id_of(decode(each).removeprefix(PREFIX)) for each in (first, second)]
    assert ids == ["1", "2"]
    assert await bench.contents.decrypted(KEY, first) == (BODY, True)
    assert await bench.contents.decrypted(KEY, second) == (BODY, False)
    assert "decrypt" not in bench.service.calls


async def test_another_server_asks_for_each_seed_once() -> None:
    bench = Bench()
    await bench.check()
    stored = [bench.encrypted() for _ in range(3)]
    other = Bench(bench.service)
    bench.service.calls.clear()
    async with trio.open_nursery() as nursery:
        for each in stored:
            nursery.start_soon(other.contents.decrypted, KEY, each)
    assert bench.service.calls == ["decrypt"]
    assert other.statistics.cached_keys == {"vault": 1}
    assert (await other.contents.decrypted(KEY, stored[0])).data == BODY


async def test_seeds_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kms, "SEEDS", 2)
    bench = Bench()
    stored = []
    for number in range(4):
        bench.service.key = str(number)
        await bench.check()
        stored.append(bench.encrypted())
    assert bench.statistics.cached_keys == {"vault": 2}
    for each in stored:
        assert (await bench.contents.decrypted(KEY, each)).data == BODY
    assert bench.service.calls.count("decrypt") == 4


async def test_writes_fail_when_the_key_was_not_confirmed_in_time_and_reads_go_on() -> None:
    bench = Bench()
    await bench.check()
    stored = bench.encrypted()
    bench.service.fails["status"] = UNAVAILABLE
    assert await bench.check() == (
        "failed to perform status section of the healthz check for KMS Provider vault, error: rpc error: "
        "code = Unavailable desc = gone"
    )
    bench.now += kms.WRITE_TTL - 2 * key_services.HEALTHY_TTL
    assert bench.encrypted()
    bench.now += 2 * key_services.HEALTHY_TTL
    with pytest.raises(
        TransformError, match=r'encryptedDEKSource with keyID hash "sha256:6b86.*" expired at 1970-01-12T'
    ):
        bench.encrypted()
    assert (await bench.contents.decrypted(KEY, stored)).data == BODY
    del bench.service.fails["status"]
    assert await bench.check() == ""
    assert bench.encrypted()
    assert bench.service.calls.count("encrypt") == 1


async def test_without_a_first_status_nothing_is_written() -> None:
    bench = Bench()
    bench.service.fails["status"] = UNAVAILABLE
    await bench.check()
    with pytest.raises(TransformError, match="got unexpected nil transformer"):
        bench.encrypted()


async def test_a_service_that_disagrees_with_itself_is_unhealthy_and_keeps_the_old_seed() -> None:
    bench = Bench()
    await bench.check()
    bench.service.key, bench.service.encrypts_with = "2", "3"
    problem = await bench.check()
    assert problem.startswith("kmsv2 Provider vault is not healthy, error: failed to rotate DEK uid=")
    for key in ("1", "2", "3"):
        assert hash_of(key) in problem
    assert key_id_of(decode(bench.encrypted()).removeprefix(PREFIX)) == "1"


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("healthz", "sealed", "got unexpected healthz status: sealed"),
        ("version", "v3", "expected KMSv2 API version v2, got v3"),
        ("key", "", 'got invalid KMSv2 KeyID hash "": keyID is empty'),
        ("key", "x" * 1025, "keyID is 1025 bytes, which exceeds the max size of 1024"),
        ("annotations", {"a": b""}, 'annotations: Invalid value: "a": should be a domain with at least two segments'),
        (
            "annotations",
            {"a.b": bytes(33000)},
            "total size of annotations is 33003, which exceeds the max size of 32768",
        ),
    ],
)
async def test_unhealthy_answers_are_told(field: str, value: object, problem: str) -> None:
    bench = Bench()
    setattr(bench.service, field, value)
    found = await bench.check()
    assert found.startswith("kmsv2 Provider vault is not healthy, error: ")
    assert problem in found


async def test_a_failed_decryption_names_its_reason_and_is_not_repeated_for_every_value() -> None:
    bench = Bench()
    await bench.check()
    stored = [bench.encrypted()]
    bench.service.key = "2"
    await bench.check()
    stored.append(bench.encrypted())
    other = Bench(bench.service)
    bench.service.fails["decrypt"] = UNAVAILABLE
    bench.service.calls.clear()
    for each in stored * 3:
        with pytest.raises(TransformError) as raised:
            await other.contents.decrypted(KEY, each)
        assert str(raised.value) == "failed to decrypt DEK, error: rpc error: code = Unavailable desc = gone"
        assert raised.value.code == "Unavailable"
    assert bench.service.calls == ["decrypt"]  # the second seed waits, as the service is unreachable
    other.now += key_services.PAUSE
    del bench.service.fails["decrypt"]
    for each in stored:
        assert (await other.contents.decrypted(KEY, each)).data == BODY


async def test_a_refused_seed_does_not_keep_others_from_being_asked() -> None:
    bench = Bench()
    await bench.check()
    refused = bench.encrypted()
    other = Bench(bench.service)
    bench.service.fails["decrypt"] = KeyServiceError("Unknown", "rpc error: code = Unknown desc = no such key")
    with pytest.raises(TransformError, match="no such key"):
        await other.contents.decrypted(KEY, refused)
    bench.service.key = "2"
    await bench.check()
    del bench.service.fails["decrypt"]
    assert (await other.contents.decrypted(KEY, bench.encrypted())).data == BODY


async def test_annotations_are_stored_and_returned() -> None:
    bench = Bench()
    bench.service.annotations = {"version.example.com": b"7", "a.example.com": b"\x00"}
    await bench.check()
    other = Bench(bench.service)
    assert (await other.contents.decrypted(KEY, bench.encrypted())).data == BODY


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "encrypted data is empty"),
        (b"\xff\xff", "proto: cannot parse invalid wire-format data"),
        (protobuf.field(1, b"x") + protobuf.field(5, 2), "unknown encryptedDEKSourceType: 2"),
        (protobuf.field(1, b"x"), "failed to validate encrypted DEK source: encrypted DEK source is empty"),
        (protobuf.field(1, b"x") + protobuf.field(3, bytes(1025)), "which exceeds the max size of 1024"),
        (protobuf.field(1, b"x") + protobuf.field(3, b"y"), "failed to validate key id: keyID is empty"),
    ],
)
async def test_mangled_values_are_errors(data: bytes, problem: str) -> None:
    with pytest.raises(TransformError, match=problem):
        Bench().provider.decrypt("secrets", data, b"")


def test_messages_keep_their_fields() -> None:
    encoded = protobuf.field(1, "ü" * 200) + protobuf.field(2, 300) + protobuf.map_field(4, {"b": b"2", "a": b"1"})
    message = protobuf.parse(encoded + b"\x31" + bytes(8))  # field 6: eight bytes
    assert (protobuf.text_of(message, 1), protobuf.number_of(message, 2)) == ("ü" * 200, 300)
    assert protobuf.map_of(message, 4) == {"a": b"1", "b": b"2"}
    assert (protobuf.bytes_of(message, 9), protobuf.number_of(message, 9)) == (b"", 0)
    for end in range(1, len(encoded)):
        try:
            protobuf.parse(encoded[:end])
        except ValueError:
            continue

"""KMS v1: a key for each value, keys in memory, old values, failures, and batches of a log."""

from __future__ import annotations

import os

import pytest
import trio

from kubechronicle.eventlog.encryption import key_services
from kubechronicle.eventlog.encryption.ciphers import AesCbc
from kubechronicle.eventlog.encryption.contents import EncryptedContents, decode, encode, path_of
from kubechronicle.eventlog.encryption.errors import KeyServiceError, TransformError
from kubechronicle.eventlog.encryption.kms_v1 import PARALLEL, KmsV1Provider
from kubechronicle.eventlog.encryption.providers import ProviderChain, Value
from kubechronicle.eventlog.encryption.statistics import EncryptionStatistics
from kubechronicle.eventlog.records import Key

KEY = Key("secrets", "default", "a")
BODY = b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"x":"cGxhbnRlZA=="}}'
PREFIX = b"k8s:enc:kms:v1:old:"
GONE = KeyServiceError("Unavailable", "rpc error: code = Unavailable desc = gone")


class MemoryService:
    """A key service that reverses keys. ``fails``: calls that fail. ``most``: calls at once so far."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, KeyServiceError] = {}
        self.most = self._now = 0

    async def encrypt(self, plain: bytes) -> bytes:
        return await self._call("encrypt", plain)

    async def decrypt(self, cipher: bytes) -> bytes:
        return await self._call("decrypt", cipher)

    async def _call(self, name: str, data: bytes) -> bytes:
        self.calls.append(name)
        self._now += 1
        self.most = max(self.most, self._now)
        await trio.lowlevel.checkpoint()
        self._now -= 1
        if name in self.fails:
            raise self.fails[name]
        return data[::-1]


class Bench:
    def __init__(self, service: MemoryService | None = None, *, cache_size: int = 1000) -> None:
        self.service = service or MemoryService()
        self.now = 1_000_000.0
        self.statistics = EncryptionStatistics()
        self.provider = KmsV1Provider("old", self.service, self.statistics, cache_size, clock=lambda: self.now)
        self.contents = EncryptedContents({"*.*": ProviderChain([(PREFIX, self.provider)], statistics=self.statistics)})

    async def encrypted(self, key: Key = KEY) -> bytes:
        await self.contents.draw_keys([key.resource])
        return self.contents.encrypted(key, BODY)


async def test_each_value_has_a_key_of_its_own() -> None:
    bench = Bench()
    first, second = await bench.encrypted(), await bench.encrypted()
    values = [decode(each).removeprefix(PREFIX) for each in (first, second)]
    assert [value[:2] for value in values] == [b"\x00\x20"] * 2
    assert values[0][2:34] != values[1][2:34]
    for each in (first, second):
        assert await bench.contents.decrypted(KEY, each) == (BODY, False)
    assert bench.service.calls == ["encrypt", "encrypt"]
    assert bench.statistics.key_cache_fill == 2 / 1000
    assert bench.statistics.arrivals["to_storage",].number == 2


async def test_keys_of_others_are_decrypted_once_and_bounded() -> None:
    writer = Bench()
    stored = [await writer.encrypted() for _ in range(4)]
    reader = Bench(writer.service, cache_size=2)
    writer.service.calls.clear()
    for each in (*stored, *stored[-2:]):
        assert (await reader.contents.decrypted(KEY, each)).data == BODY
    assert writer.service.calls == ["decrypt"] * 4
    assert reader.statistics.key_cache_fill == 1.0
    assert reader.statistics.misses == 4


async def test_without_a_cache_each_read_asks_the_service() -> None:
    bench = Bench(cache_size=-1)
    stored = await bench.encrypted()
    for _ in range(3):
        assert (await bench.contents.decrypted(KEY, stored)).data == BODY
    assert bench.service.calls == ["encrypt", *["decrypt"] * 3]
    assert bench.statistics.misses == 0


async def test_a_value_of_another_object_or_a_cut_one_is_refused() -> None:
    bench = Bench()
    stored = await bench.encrypted()
    with pytest.raises(TransformError, match="message authentication failed"):
        await bench.contents.decrypted(Key("secrets", "default", "b"), stored)
    for size in (0, 1, 20):
        cut = encode(BODY, Value(PREFIX, decode(stored).removeprefix(PREFIX)[:size]))
        with pytest.raises(TransformError, match="failed to read uint16 length prefixed data"):
            await bench.contents.decrypted(KEY, cut)


async def test_values_of_kubernetes_before_1_25_are_read_and_stale() -> None:
    bench = Bench()
    key = os.urandom(32)
    data = b"\x00\x20" + key[::-1] + AesCbc(key).encrypt(BODY, path_of(KEY).encode())
    assert await bench.contents.decrypted(KEY, encode(BODY, Value(PREFIX, data))) == (BODY, True)


async def test_a_service_that_fails_refuses_writes_and_is_not_asked_for_each_value() -> None:
    bench = Bench()
    stored = [await bench.encrypted() for _ in range(3)]
    bench.service.fails = {"encrypt": GONE, "decrypt": GONE}
    with pytest.raises(TransformError, match=r"^rpc error: code = Unavailable desc = gone$"):
        await bench.encrypted()
    assert bench.statistics.operations["secrets", "to_storage", PREFIX.decode(), "Unavailable"] == 1
    other = Bench(bench.service)
    bench.service.calls.clear()
    for each in stored:
        with pytest.raises(TransformError, match="desc = gone"):
            await other.contents.decrypted(KEY, each)
    assert bench.service.calls == ["decrypt"]
    bench.service.fails.clear()
    other.now += key_services.PAUSE
    assert (await other.contents.decrypted(KEY, stored[0])).data == BODY


async def test_health_is_checked_when_it_is_wanted() -> None:
    bench = Bench()
    health = bench.provider.health
    assert await health.check() == ""
    assert bench.service.calls == ["encrypt", "decrypt"]
    bench.service.fails["decrypt"] = GONE
    assert await health.check() == ""  # the last result is recent
    bench.now += key_services.HEALTHY_TTL
    problem = "failed to perform decrypt section of the healthz check for KMS Provider old, error: rpc error: "
    assert await health.check() == problem + "code = Unavailable desc = gone"
    assert health.last_problem


async def test_the_keys_of_a_batch_are_drawn_at_once_within_a_bound() -> None:
    bench = Bench()
    keys = [named(number) for number in range(3 * PARALLEL)]
    await bench.contents.draw_keys(key.resource for key in keys)
    assert bench.service.most == PARALLEL
    stored = [bench.contents.encrypted(key, BODY) for key in keys]
    assert len({decode(each).removeprefix(PREFIX)[:34] for each in stored}) == len(keys)
    with pytest.raises(TransformError, match="no data key was drawn"):
        bench.contents.encrypted(KEY, BODY)


async def test_a_configuration_that_changes_while_keys_are_drawn() -> None:
    bench = Bench()
    later = KmsV1Provider("new", MemoryService(), bench.statistics, 10)
    chains = {"*.*": ProviderChain([(b"k8s:enc:kms:v1:new:", later)], statistics=bench.statistics)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.contents.draw_keys, ["secrets"])
        await trio.lowlevel.checkpoint()
        bench.contents.use(chains)
    assert decode(bench.contents.encrypted(KEY, BODY)).startswith(b"k8s:enc:kms:v1:new:")


def named(number: int) -> Key:
    return Key("secrets", "default", f"a-{number}")

"""EncryptedLog satisfies the contract of a log, and the log below never sees an object."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubechronicle.eventlog.encryption.contents import EncryptedContents
from kubechronicle.eventlog.encryption.encrypted_log import EncryptedLog
from kubechronicle.eventlog.encryption.providers import ProviderChain
from kubechronicle.eventlog.errors import TransformError
from kubechronicle.eventlog.memory.memory_log import MemoryLog
from kubechronicle.eventlog.memory.store import MemoryStore
from kubechronicle.eventlog.queries.changes import ChangeQuery
from kubechronicle.eventlog.records import Operation
from tests.eventlog.test_log_contract import LogContract, batch, change, committed, key
from tests.support.encryption.providers import chain, contents

Opener = Callable[[], Awaitable[Any]]


class TestOverMemory(LogContract):
    test_reads_end_after_a_number_of_bytes = None  # its figures are those of plaintext

    @pytest.fixture
    async def logs(self) -> Opener:
        store = MemoryStore()

        async def opened() -> Any:
            log = EncryptedLog(MemoryLog(store, poll_interval=0.1), contents("aesgcm:a", "identity"))
            log.store = store  # type: ignore[attr-defined]
            return log

        return opened

    @pytest.fixture
    async def log(self, logs: Opener) -> Any:
        return await logs()

    async def compact(self, log: Any, revision: int) -> None:
        log.store.compact(revision)


PLANTED = "planted-in-this-test"
SECRET = key("a", resource="secrets")


async def test_rows_of_every_operation_hold_ciphertext_and_still_verify(
    replicas: Opener, run_sql: Callable[..., str]
) -> None:
    below = await replicas()
    log = EncryptedLog(below, contents("aesgcm:a", resource="secrets"))
    (created,) = committed(await log.append(batch(change(SECRET, Operation.CREATE, text=PLANTED))))
    (updated,) = committed(await log.append(batch(change(SECRET, Operation.UPDATE, created.revision, text=PLANTED))))
    await log.append(
        batch(change(SECRET, Operation.DELETE, updated.revision, text=PLANTED), change(key("open"), Operation.CREATE))
    )
    assert PLANTED.encode() in created.body
    stored = run_sql("select object from kubechronicle.log where resource = 'secrets'").splitlines()
    assert [json.loads(each)["encrypted"] for each in stored] == ["k8s:enc:aesgcm:v1:a:"] * 3
    assert PLANTED not in run_sql("select * from kubechronicle.log")
    assert (await below.verify()).problem is None
    query = ChangeQuery(resources=("secrets",), until=10)
    assert all(PLANTED.encode() in record.body for record, _ in await log.changes(query, limit=10))
    # Ciphertext does not show whether it has a text, so it is never left out.
    states = await log.states([query], limit=10, texts=("another text",))
    assert [(state.body, before and before.body) for state, before in states] == [
        (record.body, before and before.body) for record, before in await log.changes(query, limit=10)
    ]
    assert [state.body for state, _ in await log.states([ChangeQuery()], limit=1, texts=("another text",))] == [b""]


async def test_a_lost_key_is_a_problem_of_its_records_alone() -> None:
    below = MemoryLog(MemoryStore())
    log = EncryptedLog(below, contents("aesgcm:a", "identity", resource="secrets"))
    first, second = committed(
        await log.append(batch(change(SECRET, Operation.CREATE, text=PLANTED), change(key("b"), Operation.CREATE)))
    )
    log.contents.use({"secrets": chain("aesgcm:b", "identity")})
    (update,) = committed(await log.append(batch(change(SECRET, Operation.UPDATE, first.revision, text="new"))))
    broken, fine, new = await log.read(after=0, limit=10)
    assert broken.problem == "no matching key was found for the provided AES transformer"
    assert json.loads(broken.body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
    }
    assert (fine.problem, fine.body) == ("", second.body)
    assert (new.problem, new.body) == ("", update.body)
    (_, (after, before)) = await log.read_resource("secrets", after=0, until=10, limit=10)
    assert (after.problem, before.problem if before else None) == ("", broken.problem)
    states = await log.states([ChangeQuery(newest_first=False)], limit=10)
    assert [state.problem for state, _ in states] == [broken.problem, "", ""]
    assert [before.problem for _, before in states if before is not None] == [broken.problem]
    log.contents.use({"secrets": chain("aesgcm:ba", "identity")})
    assert (await log.read(after=0, limit=1))[0].body == first.body


async def test_an_object_that_cannot_be_encrypted_is_not_appended() -> None:
    class Broken:
        def encrypt(self, resource: str, data: bytes, about: bytes) -> Any:
            raise TransformError("no key")

        def decrypt(self, resource: str, data: bytes, about: bytes) -> Any:
            raise AssertionError

    log = EncryptedLog(MemoryLog(MemoryStore()), contents("aesgcm:a", resource="secrets"))
    statistics = log.contents.statistics
    log.contents.use({"secrets": ProviderChain([(b"k8s:enc:x:", Broken())], statistics=statistics)})
    with pytest.raises(TransformError, match="no key"):
        await log.append(batch(change(SECRET, Operation.CREATE)))
    assert (await log.head()).revision == 0


async def test_stale_rows_are_those_that_would_be_written_otherwise_today() -> None:
    log = EncryptedLog(MemoryLog(MemoryStore()), contents("aesgcm:a", "identity", resource="secrets"))
    first, other = committed(
        await log.append(batch(change(SECRET, Operation.CREATE), change(key("b"), Operation.CREATE)))
    )
    assert not await log.is_stale(SECRET, first.revision)
    assert not await log.is_stale(key("b"), other.revision)
    log.contents.use({"secrets": chain("secretbox:c", "aesgcm:a")})
    assert await log.is_stale(SECRET, first.revision)
    log.contents.use({"secrets": chain("secretbox:c")})
    assert not await log.is_stale(SECRET, first.revision)  # unreadable


async def test_without_a_configuration_the_log_below_appends() -> None:
    below = MemoryLog(MemoryStore())
    log = EncryptedLog(below, EncryptedContents())
    assert log.append == below.append
    await EncryptedLog(below, contents("aesgcm:a")).append(batch(change(SECRET, Operation.CREATE, text=PLANTED)))
    (record,) = await log.read(after=0, limit=10)
    assert record.problem == "identity transformer tried to read encrypted data"

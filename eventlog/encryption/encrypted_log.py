"""EncryptedLog: a RevisionLog over another one that stores the contents of objects as ciphertext.

    append      object -> stored form -> the log below     digests, chain, archives and copies are over the stored form
    read        stored form -> object                      all above, the views in memory included, have plaintext

A record that cannot be decrypted is returned without contents, and with the reason (``Record.problem``): a log with one
lost key must still be followed. Readers turn the reason into the error of that object.

Rows without encryption pass unchanged, so that encryption can be configured at any time. Without a configuration
nothing is encrypted, ``append`` is that of the log below, and encrypted rows of former times are such problems.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, cast

from msgspec.structs import replace

from kubechronicle.eventlog.encryption.contents import ENCRYPTED_BODY, EncryptedContents
from kubechronicle.eventlog.encryption.errors import NeedsKey, TransformError
from kubechronicle.eventlog.log import Claim, RevisionLog
from kubechronicle.eventlog.positions import Position, RowIdentity
from kubechronicle.eventlog.queries.changes import ChangeQuery, Chunk
from kubechronicle.eventlog.queries.density import Count, DensityQuery
from kubechronicle.eventlog.queries.groups import ChangeGroup, GroupQuery
from kubechronicle.eventlog.queries.states import ObjectState, StatePair
from kubechronicle.eventlog.records import Batch, BatchResult, Change, Head, Key, Moment, Record

Pair = tuple[Record, Record | None]


class EncryptedLog:
    """See the head of this file. ``contents``: its providers may be replaced at any time."""

    def __init__(self, log: RevisionLog, contents: EncryptedContents) -> None:
        self._log = log
        self.contents = contents
        self.recorded = log.recorded
        self.branches = log.branches
        self.availability = log.availability
        if not contents.configured:
            # A configuration cannot appear later: the flag names the file when the server starts.
            vars(self)["append"] = log.append

    # Appending

    async def append(self, batch: Batch) -> BatchResult:
        """As RevisionLog's. TransformError: an object cannot be encrypted; nothing was committed."""
        await self.contents.draw_keys(
            change.key.resource for transaction in batch.transactions for change in transaction.changes
        )
        encrypted = self._encrypted(batch)
        return _with_plain_bodies(await self._log.append(encrypted), batch)

    async def settle(self, batch: Batch) -> BatchResult | None:
        result = await self._log.settle(batch)
        return None if result is None else _with_plain_bodies(result, batch)

    def _encrypted(self, batch: Batch) -> Batch:
        encrypted = self.contents.encrypted
        transactions = []
        for transaction in batch.transactions:
            changes: list[Change] = []
            for change in transaction.changes:
                body = encrypted(change.key, change.body)
                changes.append(change if body is change.body else replace(change, body=body))
            transactions.append(replace(transaction, changes=tuple(changes)))
        return Batch(id=batch.id, transactions=tuple(transactions))

    # Reading

    async def read(self, *, after: int, limit: int, position: Position | None = None) -> Chunk[Record]:
        records = await self._log.read(after=after, limit=limit, position=position)
        await self._decrypt(records)
        return records

    async def read_resource(
        self, resource: str, *, after: int, until: int, limit: int, namespace: str = "", name: str = ""
    ) -> Chunk[Pair]:
        scope = {"after": after, "until": until, "limit": limit}
        pairs = await self._log.read_resource(resource, **scope, namespace=namespace, name=name)
        await self._decrypt_pairs(pairs)
        return pairs

    async def changes(self, query: ChangeQuery, *, limit: int) -> Chunk[Pair]:
        pairs = await self._log.changes(query, limit=limit)
        await self._decrypt_pairs(pairs)
        return pairs

    async def states(
        self, queries: Sequence[ChangeQuery], *, limit: int, texts: Sequence[str] = ()
    ) -> Chunk[StatePair]:
        pairs = await self._log.states(queries, limit=limit, texts=texts)
        if not self.contents.configured and not any(map(_is_encrypted, pairs)):
            return pairs
        for index, (state, before) in enumerate(pairs):
            if self._concerns(state) or (before is not None and self._concerns(before)):
                previous = None if before is None else await self._plain_state(before)
                pairs[index] = await self._plain_state(state), previous
        return pairs

    async def get_at(self, key: Key, *, revision: int) -> Record | None:
        record = await self._log.get_at(key, revision=revision)
        return None if record is None else await self._plain(record)

    async def list_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None, limit: int
    ) -> Chunk[Record]:
        records = await self._log.list_at(resource, revision=revision, namespace=namespace, after=after, limit=limit)
        await self._decrypt(records)
        return records

    async def load(self) -> AsyncIterator[tuple[Head, Sequence[Record]]]:
        # The contract says AsyncIterator. All logs use a generator, which must be closed by its own task.
        async with aclosing(cast(Any, self._log.load())) as chunks:
            async for head, records in chunks:
                plain = list(records)
                await self._decrypt(plain)
                yield head, plain

    async def is_stale(self, key: Key, revision: int) -> bool:
        """Return whether the object's row of that revision would be stored in another form today.

        False as well if it cannot be decrypted, or is no longer the newest one.
        """
        if self.contents.chain_for(key.resource) is None:
            return False
        record = await self._log.get_at(key, revision=revision)
        if record is None or record.revision != revision:
            return False
        try:
            return (await self.contents.decrypted(key, record.body)).stale
        except TransformError:
            return False

    async def _decrypt(self, records: list[Record]) -> None:
        """Replace the encrypted records in a list by plain ones."""
        if not self.contents.configured and not any(record.body.startswith(ENCRYPTED_BODY) for record in records):
            return
        for index, record in enumerate(records):
            if self._concerns(record):
                records[index] = await self._plain(record)

    async def _decrypt_pairs(self, pairs: list[Pair]) -> None:
        if not self.contents.configured and not any(map(_is_encrypted, pairs)):
            return
        for index, (record, previous) in enumerate(pairs):
            if self._concerns(record) or (previous is not None and self._concerns(previous)):
                before = None if previous is None else await self._plain(previous)
                pairs[index] = await self._plain(record), before

    def _concerns(self, record: Record | ObjectState) -> bool:
        """Return whether the record is encrypted, or ought to be."""
        return record.body.startswith(ENCRYPTED_BODY) or self.contents.chain_for(record.key.resource) is not None

    async def _plain(self, record: Record) -> Record:
        try:
            body = await self._decrypted(record)
        except TransformError as error:
            body = self.contents.placeholder(record.key, record.uid, record.body)
            return replace(record, body=body, problem=str(error))
        return record if body is record.body else replace(record, body=body)

    async def _plain_state(self, state: ObjectState) -> ObjectState:
        if not state.body:
            return state
        try:
            return replace(state, body=await self._decrypted(state))
        except TransformError as error:
            return replace(state, body=b"", problem=str(error))

    async def _decrypted(self, record: Record | ObjectState) -> bytes:
        """Return the object in plaintext, the same one if it is stored so. TransformError."""
        try:
            return self.contents.decrypted_nowait(record.key, record.body).data
        except NeedsKey:
            return (await self.contents.decrypted(record.key, record.body)).data

    # Passed on

    def follow(self, position: Callable[[], Position | None]) -> None:
        self._log.follow(position)

    def restart(self, newest: int) -> None:
        self._log.restart(newest)

    async def identities(self, revisions: Sequence[int]) -> Sequence[RowIdentity]:
        return await self._log.identities(revisions)

    async def head(self) -> Head:
        return await self._log.head()

    async def density(self, query: DensityQuery) -> list[Count]:
        return await self._log.density(query)

    async def groups(self, query: GroupQuery) -> list[ChangeGroup]:
        return await self._log.groups(query)

    async def count_at(
        self, resource: str, *, revision: int, namespace: str = "", after: tuple[str, str] | None = None
    ) -> int:
        return await self._log.count_at(resource, revision=revision, namespace=namespace, after=after)

    async def revision_at(self, when: datetime | timedelta) -> Moment:
        return await self._log.revision_at(when)

    async def moment_of(self, revision: int) -> Moment:
        return await self._log.moment_of(revision)

    @property
    def newest_seen_revision(self) -> int:
        return self._log.newest_seen_revision

    async def claim(self) -> Claim | None:
        return await self._log.claim()

    async def wait_claim_in_doubt(self) -> None:
        await self._log.wait_claim_in_doubt()

    async def wait_notified(self) -> None:
        await self._log.wait_notified()


def _is_encrypted(pair: Pair | StatePair) -> bool:
    record, previous = pair
    return record.body.startswith(ENCRYPTED_BODY) or (previous is not None and previous.body.startswith(ENCRYPTED_BODY))


def _with_plain_bodies(result: BatchResult, batch: Batch) -> BatchResult:
    """Return the result with the bodies of the batch in the place of the stored ones."""
    outcomes = tuple(
        _plain_records(outcome, transaction.changes) if isinstance(outcome, tuple) else outcome
        for outcome, transaction in zip(result.outcomes, batch.transactions, strict=True)
    )
    return replace(result, outcomes=outcomes)


def _plain_records(records: tuple[Record, ...], changes: tuple[Change, ...]) -> tuple[Record, ...]:
    return tuple(
        record if record.body is change.body else replace(record, body=change.body)
        for record, change in zip(records, changes, strict=True)
    )

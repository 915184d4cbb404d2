"""The import of an etcd file: its objects as of the compacted revision, then its history, at their own revisions.

The file is read twice: the first pass finds the definitions of custom resources, and the newest value of each key as of
the compacted revision; the second writes. Memory grows with the number of keys, and with the bodies of the objects that
the history changes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from kubechronicle.api.registry.registry import known_registry
from kubechronicle.eventlog.encryption.contents import ATTEMPTS, EncryptedContents
from kubechronicle.eventlog.encryption.errors import NeedsKey, TransformError
from kubechronicle.eventlog.encryption.providers import ENCRYPTED_PREFIX
from kubechronicle.eventlog.records import Key, Operation
from kubechronicle.eventlog.transfer.founding import Founder, ImportedChange
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.migration.compare import Expected
from kubechronicle.ops.migration.etcd_file import EtcdFile, KeyValue
from kubechronicle.ops.migration.report import MigrationReport
from kubechronicle.ops.migration.storage_form import DEFINITIONS, NotStorable, StorageForm, StoredForm, decode

NOT_OBJECTS: Final = ("masterleases", "ranges", "peerserverleases", "health")
"""First parts of keys that kube-apiserver uses for itself. This server has Leases, IPAddresses and ports instead."""
FOLDERS: Final[Mapping[str, str]] = {
    "minions": "nodes",
    "services/specs": "services",
    "services/endpoints": "endpoints",
    "controllers": "replicationcontrollers",
    "ingress": "ingresses.networking.k8s.io",
    "apiregistration.k8s.io/apiservices": "apiservices.apiregistration.k8s.io",
    "apiextensions.k8s.io/customresourcedefinitions": DEFINITIONS,
}
"""Resources by the folder of their keys, where it is neither the plural nor GROUP/PLURAL."""
DEFINITION_FOLDER: Final = b"apiextensions.k8s.io/customresourcedefinitions/"
BREATH: Final = 200
"""Values after which other tasks may run."""


@dataclass(slots=True)
class _KnownKinds:
    """The state of a key that the history changes."""

    revision: int
    create_revision: int
    version: int
    stored: StoredForm


@dataclass(slots=True)
class EtcdImport:
    """One import. ``prefix``: of all keys, "/registry/". ``revision``: the newest of the file."""

    file: EtcdFile
    prefix: bytes
    contents: EncryptedContents
    report: MigrationReport = field(default_factory=MigrationReport)
    form: StorageForm = field(default_factory=StorageForm)
    revision: int = 0
    total: int = 0
    _newest: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _changed: set[bytes] = field(default_factory=set)
    _known: dict[bytes, _KnownKinds] = field(default_factory=dict)
    _folders: dict[str, str] = field(default_factory=dict)

    @property
    def compacted(self) -> int:
        """The revision of the founding rows."""
        return max(self.file.compacted, 1)

    async def survey(self) -> None:
        """Make the first pass."""
        self._folders = {**{rt.plural: rt.resource for rt in known_registry().stored()}, **FOLDERS}
        async for change in self.changes():
            self.total += 1
            self.revision = max(self.revision, change.revision)
            if not change.key.startswith(self.prefix):
                continue
            if change.revision > self.compacted:
                self._changed.add(change.key)
            elif change.deleted:
                self._newest.pop(change.key, None)
            else:
                self._newest[change.key] = (change.revision, change.sub)
            if change.key.startswith(self.prefix + DEFINITION_FOLDER) and not change.deleted:
                await self._define(change)
        if not self._newest and not self._changed:
            prefix = self.prefix.decode(errors="replace")
            raise OperatorError(f"the file has no key below {prefix}; --etcd-prefix names another prefix")

    async def write(self, founder: Founder, progress: Callable[[int, int], None]) -> None:
        """Make the second pass, and write all objects and changes."""
        done, founded = 0, False
        async for change in self.changes():
            done += 1
            progress(done, self.total)
            if change.revision > self.compacted and not founded:
                await founder.end_objects(self.compacted)
                founded = True
            if self.is_object(change):
                await self._write(founder, change)
        if not founded:
            await founder.end_objects(self.compacted)
        if self.revision > founder.revision:
            await founder.add_gap(self.revision)
        await founder.finish(self.compacted)

    def is_newest(self, change: KeyValue) -> bool:
        """Return whether a change made the value of its key as of the compacted revision."""
        return self._newest.get(change.key) == (change.revision, change.sub)

    def is_object(self, change: KeyValue) -> bool:
        """Return whether the key is one of an object; count it otherwise."""
        if not change.key.startswith(self.prefix):
            self.report.left["keys of others"] += 1
            return False
        folder = change.key[len(self.prefix) :].partition(b"/")[0].decode(errors="replace")
        if folder in NOT_OBJECTS:
            self.report.left[folder] += 1
            return False
        return True

    async def _write(self, founder: Founder, change: KeyValue) -> None:
        if change.revision <= self.compacted and not self.is_newest(change):
            return
        former = self._known.get(change.key)
        if change.deleted:
            if former is not None:
                await self._add(founder, change, Operation.DELETE, former.stored, former)
            self._known.pop(change.key, None)
            return
        try:
            stored = await self.stored(change)
        except NotStorable as error:
            self.report.add_problem(_shown(change.key), str(error))
            self._known.pop(change.key, None)
            return
        operation = Operation.CREATE if former is None else Operation.UPDATE
        await self._add(founder, change, operation, stored, former)
        if change.key in self._changed:
            self._known[change.key] = _KnownKinds(change.revision, change.create_revision, change.version, stored)

    async def _add(
        self, founder: Founder, change: KeyValue, operation: Operation, stored: StoredForm, former: _KnownKinds | None
    ) -> None:
        if change.sub and change.revision == founder.revision:
            raise OperatorError(
                f"revision {change.revision} changed several objects at once, which kube-apiserver never does"
            )
        await self.contents.draw_keys([stored.key.resource])
        body = self.contents.encrypted(stored.key, stored.body)
        created = change.create_revision or (former.create_revision if former is not None else change.revision)
        imported = ImportedChange(
            revision=change.revision,
            create_revision=created if change.revision <= self.compacted or former is not None else change.revision,
            version=change.version if former is None else former.version + 1,
            previous_revision=former.revision if former is not None else 0,
            operation=operation,
            key=stored.key,
            uid=stored.uid,
            body=body,
            at=stored.at,
            manager=stored.manager,
        )
        if change.revision <= self.compacted:
            self.report.imported[stored.key.resource] += 1
            await founder.add_object(imported)
            return
        self.report.imported[stored.key.resource] += {Operation.CREATE: 1, Operation.DELETE: -1}.get(operation, 0)
        await founder.add_change(imported)

    async def stored(self, change: KeyValue) -> StoredForm:
        """Return the object of a value as it is stored here, in plaintext. NotStorable."""
        stored = self.form.stored(decode(await self._decrypted(change)))
        key = change.key.decode(errors="replace").rstrip("/")
        name = f"{stored.key.namespace}/{stored.key.name}" if stored.key.namespace else stored.key.name
        if not key.endswith(f"/{name}"):
            raise NotStorable(f"its value is an object of another name, {name}")
        return stored

    async def _decrypted(self, change: KeyValue) -> bytes:
        if not change.value.startswith(ENCRYPTED_PREFIX):
            return change.value
        chain = self.contents.chain_for(self.resource_of(change.key))
        if chain is None:
            raise NotStorable("it is encrypted, and --encryption-provider-config has no key for it")
        try:
            for _ in range(ATTEMPTS):
                try:
                    return chain.decrypt("", change.value, change.key).data
                except NeedsKey as needed:
                    await needed.fetch()
        except TransformError as error:
            raise NotStorable(f"it cannot be decrypted: {error}") from None
        raise NotStorable("it cannot be decrypted: its key service drops the data key again and again")

    def resource_of(self, key: bytes) -> str:
        """Return the resource that a key belongs to, by its folder."""
        first, _, rest = key[len(self.prefix) :].decode(errors="replace").partition("/")
        second = rest.partition("/")[0]
        found = self._folders.get(f"{first}/{second}") or self._folders.get(first)
        return found or (f"{second}.{first}" if "." in first else first)

    async def _define(self, change: KeyValue) -> None:
        try:
            self.form.define(decode(await self._decrypted(change)))
        except (NotStorable, KeyError, TypeError) as error:
            self.report.add_problem(_shown(change.key), f"the definition cannot be read: {error}")

    async def changes(self) -> AsyncIterator[KeyValue]:
        """Yield all changes of the file."""
        for count, change in enumerate(self.file.changes()):
            if count % BREATH == 0:
                await trio.lowlevel.checkpoint()
            yield change


def _shown(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


async def expected_of(work: EtcdImport) -> Expected:
    """Return the state of the file, read once more. ``work`` has made its survey."""
    expected = Expected()
    known: dict[bytes, Key] = {}
    async for change in work.changes():
        founding = change.revision <= work.compacted
        if not work.is_object(change) or (founding and not work.is_newest(change)):
            continue
        key = known.get(change.key)
        if change.deleted:
            if key is not None:
                del known[change.key], expected.objects[key]
                expected.changes[change.revision] = (key, Operation.DELETE)
            continue
        try:
            stored = await work.stored(change)
        except NotStorable:
            continue
        known[change.key] = stored.key
        expected.put(stored.key, change.revision, stored.body)
        if not founding:
            expected.changes[change.revision] = (stored.key, Operation.UPDATE if key else Operation.CREATE)
    return expected

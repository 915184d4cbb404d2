"""BackupCheck: proves the contents of a backup against its hash chain, without a database. Sans-IO."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from kubechronicle.eventlog.integrity import drops, erasures
from kubechronicle.eventlog.integrity.chain import ChainCheck, ChainProblem, columns_of, kept_digests
from kubechronicle.eventlog.integrity.drops import DropCheck
from kubechronicle.eventlog.integrity.erasures import Remains, Tombstone
from kubechronicle.eventlog.integrity.verify import StoredJump, feed_jump
from kubechronicle.eventlog.records import Head
from kubechronicle.eventlog.transfer.backup_file import Digests, Header, Item, KeptHistory
from kubechronicle.eventlog.transfer.stored_rows import StoredRow

_NONE: Final[tuple[Tombstone, ...]] = ()


@dataclass(slots=True)
class BackupCheck:
    """Call ``add`` for every item in order, then ``finish``. Stop at the first problem.

    ``whole``: all items are added, so that the drops can be proved.
    """

    header: Header
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    whole: bool = True
    chain: ChainCheck = field(init=False)
    committed_at: datetime = field(init=False)
    marks: Head = field(init=False)
    _drops: DropCheck | None = None
    _kept: dict[int, Collection[bytes]] = field(default_factory=dict)
    _remains: dict[int, Remains] = field(default_factory=dict)
    _erased: dict[int, list[Tombstone]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seed = sha256(self.header.log_id.bytes).digest()
        header = self.header
        if header.drops is not None and self.whole:
            self._drops = DropCheck(
                drops.parse(body, revision=revision, dropped_at=at) for revision, at, body in header.drops
            )
        self.chain = ChainCheck(
            hash=seed, anchors=self.anchors, kept=self._kept, remains=self._remains, drops=self._drops
        )
        self.committed_at = header.committed_at
        self.marks = Head(revision=header.revision, compacted=header.compacted, compacted_of=header.compacted_of)

    def add(self, item: Item) -> ChainProblem | None:
        if isinstance(item, StoredRow):
            return self.chain.row(item, self._erased.pop(item["revision"], _NONE))
        if isinstance(item, StoredJump):
            return feed_jump(self.chain, item)
        if isinstance(item, Digests):
            for revision, digest, name in zip(item.revisions, item.digests, item.classes, strict=True):
                erased = self._erased.pop(revision, _NONE)
                if problem := self.chain.tombstone(revision, digest, erased, retention_class=name):
                    return problem
        elif isinstance(item, KeptHistory):
            return self._add_kept(item.row)
        elif isinstance(item, Tombstone):
            self._erased.setdefault(item.revision, []).append(item)
        return None

    def _add_kept(self, row: StoredRow) -> ChainProblem | None:
        self._kept[row["revision"]] = kept_digests(row)
        if self._drops is not None:
            self._drops.add_kept(row["revision"], row["digest"])
        if (rest := erasures.remains_of(columns_of(row))) is not None:
            self._remains[row["revision"]] = rest
        return self.chain.add_entry(row)

    def finish(self) -> ChainProblem | None:
        """Compare the end with the header."""
        if self._erased:
            revision = min(self._erased)
            return ChainProblem(revision=revision, message="it was erased, but there is no such revision")
        if problem := self.chain.finish(self.header.revision, self.header.hash, self.chain.current):
            return problem
        found = self._drops.finish(self.marks) if self._drops is not None else None
        return ChainProblem(revision=found[0], message=found[1]) if found is not None else None

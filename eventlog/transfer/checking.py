"""BackupCheck: proves the contents of a backup against its hash chain, without a database. Sans-IO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final

from kubechronicle.eventlog.integrity import erasures
from kubechronicle.eventlog.integrity.chain import ChainCheck, Problem, columns_of
from kubechronicle.eventlog.integrity.digests import digest_of
from kubechronicle.eventlog.integrity.erasures import Remains, Tombstone
from kubechronicle.eventlog.integrity.verify import StoredJump, feed_jump
from kubechronicle.eventlog.transfer.backup_file import Digests, Header, Item, Kept
from kubechronicle.eventlog.transfer.stored_rows import StoredRow

_NONE: Final[tuple[Tombstone, ...]] = ()


@dataclass(slots=True)
class BackupCheck:
    """Call ``add`` for every item in order, then ``finish``. Stop at the first problem."""

    header: Header
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    chain: ChainCheck = field(init=False)
    committed_at: datetime = field(init=False)
    _kept: dict[int, bytes] = field(default_factory=dict)
    _remains: dict[int, Remains] = field(default_factory=dict)
    _erased: dict[int, list[Tombstone]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seed = sha256(self.header.log_id.bytes).digest()
        self.chain = ChainCheck(hash=seed, anchors=self.anchors, kept=self._kept, remains=self._remains)
        self.committed_at = self.header.committed_at

    def add(self, item: Item) -> Problem | None:
        if isinstance(item, StoredRow):
            return self.chain.row(item, self._erased.pop(item["revision"], _NONE))
        if isinstance(item, StoredJump):
            return feed_jump(self.chain, item)
        if isinstance(item, Digests):
            for revision, digest in zip(item.revisions, item.digests, strict=True):
                if problem := self.chain.tombstone(revision, digest, self._erased.pop(revision, _NONE)):
                    return problem
        elif isinstance(item, Kept):
            return self._add_kept(item.row)
        elif isinstance(item, Tombstone):
            self._erased.setdefault(item.revision, []).append(item)
        return None

    def _add_kept(self, row: StoredRow) -> Problem | None:
        self._kept[row["revision"]] = digest_of(row)
        if (rest := erasures.remains_of(columns_of(row))) is not None:
            self._remains[row["revision"]] = rest
        return self.chain.add_entry(row) if row["resource"] == erasures.RESOURCE else None

    def finish(self) -> Problem | None:
        """Compare the end with the header."""
        if self._erased:
            revision = min(self._erased)
            return Problem(revision=revision, message="it was erased, but there is no such revision")
        return self.chain.finish(self.header.revision, self.header.hash, self.chain.current)

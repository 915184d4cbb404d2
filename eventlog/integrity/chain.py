"""ChainCheck: the check of the hash chain, fed with rows, tombstones and jumps. Sans-IO. verify.py explains the
chain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from kubechronicle.eventlog.integrity import drops, erasures
from kubechronicle.eventlog.integrity.digests import (
    COLUMNS,
    EPOCH,
    digest_among,
    digest_of,
    former_digest_of,
    usual_class,
)
from kubechronicle.eventlog.integrity.drops import DropCheck
from kubechronicle.eventlog.integrity.erasures import ErasureCheck, Remains, Tombstone
from kubechronicle.eventlog.integrity.jumps import FoundingCheck, Jump
from kubechronicle.eventlog.postgres.session import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProblem:
    """The first revision at which the log contradicts itself, and a message."""

    revision: int
    message: str


@dataclass(slots=True)
class ChainCheck:
    """Checks the chain: call ``row``, ``tombstone`` or ``jump`` for every revision in order, then ``finish``. A jump
    comes before the tombstones of its founding rows.

    Each call returns the problem it found, or None. Stop at the first problem.

    ``kept``: the digests (computed from content) of rows copied forward, by revision: in both versions, if it is not
    known which one counts.
    ``drops``: the check of drops; None: tombstones need no recorded drop.
    ``confidential``: the confidential resources by the newest entry; None: there is none.
    ``remains``: the rest of erased rows copied forward, by revision.
    ``digest``: of the newest revision. ``digests``: the same, and its digests after each erasure.
    ``current``: the revisions of existing objects.
    ``erased``: the tombstones of the newest revision.
    """

    hash: bytes
    anchors: Mapping[int, bytes] = field(default_factory=dict)
    kept: Mapping[int, Collection[bytes]] = field(default_factory=dict)
    remains: Mapping[int, Remains] = field(default_factory=dict)
    revision: int = 0
    rows: int = 0
    tombstones: int = 0
    digest: bytes = b""
    digests: list[bytes] = field(default_factory=list)
    current: set[int] = field(default_factory=set)
    erased: Sequence[Tombstone] = ()
    erasures: ErasureCheck = field(default_factory=ErasureCheck)
    jumps: list[Jump] = field(default_factory=list)
    drops: DropCheck | None = None
    confidential: tuple[str, ...] | None = None
    _founding: FoundingCheck | None = None
    _kept_order: list[int] = field(default_factory=list)
    _committed_at: datetime = EPOCH - timedelta(days=365 * 100)

    def row(self, row: Row, erased: Sequence[Tombstone] = ()) -> ChainProblem | None:
        revision: int = row["revision"]
        content = digest_among(row, [each.remains for each in erased] or (row["digest"],))
        digest = bytes(row["digest"]) if erased else content
        if problem := self._follows(revision):
            return problem
        if digest != row["digest"]:
            why = "its content does not have its digest"
            if erasures.is_tombstone(row["object"]):
                why = "its contents are gone, and no erasure records it"
            return ChainProblem(revision=revision, message=f"the row was edited: {why}")
        if problem := self._class_problem(row, content, digest):
            return problem
        if row["committed_at"] < self._committed_at:
            return ChainProblem(revision=revision, message="it was committed before the revision before it")
        self._committed_at = row["committed_at"]
        if problem := self._link(revision, digest, row["hash"], erased):
            return problem
        if content != self.digests[-1]:
            return ChainProblem(
                revision=revision, message="the row was edited: it is not the row that its erasure left"
            )
        if erased:
            self.erasures.add_remains(revision, erasures.remains_of(columns_of(row)), erased)
        if problem := self.add_entry(row):
            return problem
        self.rows += 1
        self.current.discard(row["previous_revision"])
        if row["operation"] != 3:
            self.current.add(revision)
        return None

    def _class_problem(self, row: Row, content: bytes, digest: bytes) -> ChainProblem | None:
        """Check the class of a row, and its place among the drops of its class."""
        name = row["class"]
        if name and name != usual_class(row["resource"]) and content == former_digest_of(row):
            return ChainProblem(revision=row["revision"], message=f"the row was edited: its class cannot be {name}")
        if self.drops is not None and (wrong := self.drops.add_row(name, row["revision"], digest)):
            return ChainProblem(revision=row["revision"], message=wrong)
        return None

    def tombstone(
        self, revision: int, digest: bytes, erased: Sequence[Tombstone] = (), *, retention_class: str = ""
    ) -> ChainProblem | None:
        if self._founding is not None and revision <= self.revision:
            problem = self._found(self._founding, revision, digest, erased)
        else:
            problem = self._follows(revision) or self._link(revision, digest, None, erased)
            if not problem and self.drops is not None:
                wrong = self.drops.add_tombstone(retention_class, revision, digest)
                problem = ChainProblem(revision=revision, message=wrong) if wrong else None
        if problem:
            return problem
        self.tombstones += 1
        if revision in self.kept:
            self.current.add(revision)
            self.erasures.add_remains(revision, self.remains.get(revision), erased)
        return None

    def jump(self, jump: Jump, stored: bytes) -> ChainProblem | None:
        """Check a jump. ``stored``: the hash of its last revision, as it is stored."""
        if problem := self._follows(jump.first):
            return problem
        if within := [revision for revision in self.anchors if jump.first <= revision < jump.last]:
            return ChainProblem(revision=min(within), message="its hash was noted, but there is a jump over it")
        self._founding = FoundingCheck(jump)
        self.jumps.append(jump)
        self.hash = sha256(self.hash + jump.link).digest()
        self.revision, self.digest, self.digests, self.erased = jump.last, jump.link, [jump.link], ()
        if stored != self.hash:
            return ChainProblem(
                revision=jump.first, message="the chain is broken: the jump does not follow the row before it"
            )
        if self.anchors.get(jump.last, self.hash) != self.hash:
            return ChainProblem(revision=jump.last, message="history up to here does not match the noted hash")
        return None

    def add_entry(self, row: Row) -> ChainProblem | None:
        """Check a row that records an act on the log, as any other row of its resource."""
        if row["resource"] == erasures.RESOURCE:
            return self._add_erasure(row)
        try:
            if row["resource"] == drops.CONFIDENTIAL and not erasures.is_tombstone(row["object"]):
                self.confidential = drops.parse_confidential(row["object"])
            elif row["resource"] == drops.RESOURCE and self.drops is not None:
                drop = drops.parse(row["object"], revision=row["revision"], dropped_at=row["committed_at"])
                if wrong := self.drops.prove(drop):
                    return ChainProblem(revision=row["revision"], message=wrong)
        except ValueError as error:
            return ChainProblem(revision=row["revision"], message=str(error))
        return None

    def _add_erasure(self, row: Row) -> ChainProblem | None:
        if row["operation"] == 1:
            try:
                erasure = erasures.parse(row["object"], revision=row["revision"], erased_at=row["committed_at"])
            except ValueError as error:
                return ChainProblem(revision=row["revision"], message=str(error))
            if erasure.id == row["name"]:
                wrong = self.erasures.add_entry(erasure)
            else:
                wrong = "it records another erasure than its name"
            if wrong:
                return ChainProblem(revision=row["revision"], message=wrong)
        return None

    def finish(self, head: int, head_hash: bytes, live: set[int]) -> ChainProblem | None:
        if problem := self._end_founding():
            return problem
        if head != self.revision:
            message = f"the newest row is {self.revision}, but the head says {head}"
            return ChainProblem(revision=min(head, self.revision) + 1, message=message)
        if beyond := [revision for revision in self.anchors if revision > head]:
            message = f"history ends before revision {max(beyond)}, whose hash was noted"
            return ChainProblem(revision=head + 1, message=message)
        if unknown := [revision for revision in self.kept if not 0 < revision <= head]:
            return ChainProblem(revision=min(unknown), message="a row was copied forward that was never appended")
        if head_hash != self.hash:
            return ChainProblem(revision=head, message="the head does not have the hash of the newest row")
        if different := live ^ self.current:
            message = "the table of live objects does not match the log"
            return ChainProblem(revision=min(different), message=message)
        if wrong := self.erasures.finish():
            return ChainProblem(revision=wrong[0], message=wrong[1])
        return None

    def _found(
        self, founding: FoundingCheck, revision: int, digest: bytes, erased: Sequence[Tombstone]
    ) -> ChainProblem | None:
        """Add the digest of a founding row."""
        if not founding.add(revision, digest):
            return ChainProblem(revision=revision, message="there is a row within a jump that does not belong to it")
        self.digest, self.erased = digest, erased
        self.digests, wrong = self.erasures.add_row(digest, erased)
        if wrong:
            return ChainProblem(revision=revision, message=wrong)
        founding.kept += revision in self.kept
        return self._compare_kept(revision)

    def _end_founding(self) -> ChainProblem | None:
        founding, self._founding = self._founding, None
        if founding is None:
            return None
        if not self._kept_order:
            self._kept_order = sorted(self.kept)
        inside = bisect_right(self._kept_order, founding.jump.last) - bisect_left(self._kept_order, founding.jump.first)
        wrong = founding.problem()
        if not wrong and inside != founding.kept:
            wrong = "a row was copied forward that was never appended"
        if not wrong and self.drops is not None and not self.drops.drops and founding.kept != founding.objects:
            wrong = "there are rows of the import missing, and nothing was ever dropped"
        return ChainProblem(revision=founding.jump.first, message=wrong) if wrong else None

    def _follows(self, revision: int) -> ChainProblem | None:
        if problem := self._end_founding():
            return problem
        if revision == self.revision + 1:
            return None
        if revision <= self.revision:
            return ChainProblem(revision=revision, message="the revision occurs twice")
        return ChainProblem(revision=self.revision + 1, message="the row is missing")

    def _link(
        self, revision: int, digest: bytes, stored: bytes | None, erased: Sequence[Tombstone]
    ) -> ChainProblem | None:
        self.hash = sha256(self.hash + digest).digest()
        self.digest, self.erased = digest, erased
        self.revision = revision
        self.digests, wrong = self.erasures.add_row(digest, erased)
        if stored is not None and stored != self.hash:
            return ChainProblem(
                revision=revision, message="the chain is broken: the row does not follow the one before it"
            )
        if wrong:
            return ChainProblem(revision=revision, message=wrong)
        if problem := self._compare_kept(revision):
            return problem
        if self.anchors.get(revision, self.hash) != self.hash:
            return ChainProblem(revision=revision, message="history up to here does not match the noted hash")
        return None

    def _compare_kept(self, revision: int) -> ChainProblem | None:
        if revision in self.kept and self.digests[-1] not in self.kept[revision]:
            return ChainProblem(revision=revision, message="the row copied forward is not the one that was appended")
        return None


def columns_of(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in COLUMNS}


def kept_digests(row: Row) -> Collection[bytes]:
    """Return the digests of a row copied forward. That of an erased row is compared with its erasure."""
    digest = digest_among(row, (row["digest"],))
    return (digest,) if digest == row["digest"] else (digest_of(row), former_digest_of(row))

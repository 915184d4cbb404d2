"""Jumps: ranges of revisions without changes of their own, passed over by one link of the hash chain. Sans-IO.

    hash(last) = sha256(hash(first - 1) || sha256(about))

``about`` is a JSON text, which states the range and its reason. So a jump is chained and covered by checkpoints as
every change. One that is added, removed or edited later breaks the chain.

    import    revisions 1 to C of another cluster, whose history is not here. The objects as of C are founding rows:
              rows copied forward (kubechronicle.kept) at their own revisions, proved by ``objects`` and ``digest``
    gap       revisions that another cluster gave to keys that are no objects
    restore   revisions that may have been given to changes after the restored revision, which are lost. Clients may
              still know them, so a watch that begins within such a range is answered with 410
    start     revisions of other logs: the log of another database begins behind them (eventlog/layout.py). Clients may
              know them of objects that were moved to it, so the same holds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import orjson

IMPORT: Final = "import"
GAP: Final = "gap"
RESTORE: Final = "restore"
START: Final = "start"
REASONS: Final = (IMPORT, GAP, RESTORE, START)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """One jump.

    ``about``: the text in the chain.
    ``objects``, ``digest``: the number of founding rows, and the SHA-256 of their digests in revision order; None:
    there are none.
    ``at``: the time of the jump. ``source``: of an import.
    """

    first: int
    last: int
    reason: str
    about: str
    at: datetime
    source: str = ""
    objects: int = 0
    digest: bytes | None = None

    @property
    def link(self) -> bytes:
        """Its digest in the chain."""
        return sha256(self.about.encode()).digest()

    def summary(self) -> str:
        """Return the jump in a few words."""
        when = self.at.strftime("%Y-%m-%dT%H:%M:%SZ")
        revisions = f"revisions {self.first} to {self.last}"
        if self.reason == IMPORT:
            return f"{revisions} stand for {self.objects} objects imported from {self.source} at {when}"
        if self.reason == START:
            return f"{revisions} belong to other logs: this one was begun behind them at {when}"
        return f"{revisions} were passed over by a {self.reason} at {when}"


def make(
    *, first: int, last: int, reason: str, at: datetime, source: str = "", objects: int = 0, digest: bytes | None = None
) -> Jump:
    """Return a jump over the revisions ``first`` to ``last``."""
    if not 0 < first <= last or reason not in REASONS:
        raise ValueError(f"no jump leads from {first} to {last} because of {reason!r}")
    at = at.astimezone(UTC)
    fields: dict[str, Any] = {"jump": reason, "first": first, "last": last, "at": at.isoformat()}
    if source:
        fields["source"] = source
    if digest is not None:
        fields |= {"objects": objects, "digest": digest.hex()}
    about = orjson.dumps(fields).decode()
    return Jump(
        first=first, last=last, reason=reason, about=about, at=at, source=source, objects=objects, digest=digest
    )


def parse(first: int, last: int, about: str) -> Jump:
    """Return a stored jump. ValueError: the text is not about this jump."""
    try:
        fields = orjson.loads(about)
        if (fields["first"], fields["last"]) != (first, last) or not 0 < first <= last:
            raise ValueError("it is about other revisions")
        if fields["jump"] not in REASONS:
            raise ValueError(f"the reason {fields['jump']!r} is unknown")
        digest = bytes.fromhex(fields["digest"]) if "digest" in fields else None
        return Jump(
            first=first,
            last=last,
            reason=fields["jump"],
            about=about,
            at=datetime.fromisoformat(fields["at"]),
            source=str(fields.get("source", "")),
            objects=int(fields.get("objects", 0)),
            digest=digest,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"this is no jump: {error}") from None


def summaries(jumps: Sequence[Jump]) -> list[str]:
    """Return a line for each jump, but only one for all gaps: an import may have thousands."""
    lines = [jump.summary() for jump in jumps if jump.reason != GAP]
    gaps = [jump for jump in jumps if jump.reason == GAP]
    if gaps:
        revisions = sum(jump.last - jump.first + 1 for jump in gaps)
        lines.append(f"{revisions} revisions belong to keys of {gaps[0].source} that are no objects")
    return lines


@dataclass(slots=True)
class FoundingCheck:
    """Compares the digests of founding rows with their jump. Call ``add`` in revision order, then ``problem``.

    ``kept``: the number of these rows that are still there; newer rows have replaced the others.
    """

    jump: Jump
    kept: int = 0
    revision: int = 0
    objects: int = 0
    _digests: Any = field(default_factory=sha256)

    def add(self, revision: int, digest: bytes) -> bool:
        """Add the digest of a row; return False if it does not belong here."""
        if self.jump.digest is None or not max(self.jump.first - 1, self.revision) < revision <= self.jump.last:
            return False
        self.revision = revision
        self.objects += 1
        self._digests.update(digest)
        return True

    def problem(self) -> str:
        """Return the problem of the whole, or ""."""
        if self.jump.digest is None:
            return ""
        if self.objects != self.jump.objects:
            return f"there are {self.objects} of the {self.jump.objects} objects of the import"
        if self._digests.digest() != self.jump.digest:
            return "the objects of the import are not those that were imported"
        return ""

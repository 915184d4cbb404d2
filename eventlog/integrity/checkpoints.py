"""Checkpoint: the state of a log at a time, in a few lines, to be signed and kept apart from the log.

    kubechronicle checkpoint v3
    log: 6b1c…                                  the log id
    revision: 4711                              its newest revision at that time
    hash: 5e88…                                 of that revision, and so of all before it (see verify.py)
    committed: 2026-03-02T14:12:00.000000Z      commit time of that revision
    noted: 2026-03-02T15:00:00.000000Z          time of the checkpoint, by the database's clock
    marks: *=300 events=900                     the compacted revisions, of all others and of single resources
    confidential: secrets                       resources whose contents SQL hides
    moves: 17 9c02…                             number and hash of the newest move of marks (marks.py)
    short: events leases.coordination.k8s.io    resources of the retention class short
    key: 0f3a…                                  SHA-256 of the public key (DER, SubjectPublicKeyInfo)
    signature: …                                Ed25519 over all bytes before this line, base64

Version 1 has neither marks nor confidential, version 2 neither moves nor short. ASCII, in this order, each line ended
by a line feed. Sans-IO: no keys here (ops/maintenance/checkpoints.py).

A statement for an outside witness has the lines before ``key`` alone (witnesses.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from kubechronicle.eventlog.records import Head

FIRST_LINE = "kubechronicle checkpoint v3"
LONGEST = 256 * 1024  # bytes of a file: a mark for each resource with a policy of its own

_STATE = r"""kubechronicle checkpoint v(?P<version>[123])
log: (?P<log>[0-9a-f-]{36})
revision: (?P<revision>\d{1,19})
hash: (?P<hash>[0-9a-f]{64})
committed: (?P<committed>[0-9T:.-]{26}Z)
noted: (?P<noted>[0-9T:.-]{26}Z)
(?:marks: \*=(?P<rest>\d{1,19})(?P<marks>(?: [a-z0-9.-]+=\d{1,19})*)
confidential:(?P<confidential>(?: [a-z0-9.-]+)*)
)?(?:moves: (?P<moves>\d{1,19}) (?P<moves_hash>[0-9a-f]{64})
short:(?P<short>(?: [a-z0-9.-]+)*)
)?"""
_STATEMENT = re.compile(_STATE)
_LINES = re.compile(_STATE + "key: (?P<key>[0-9a-f]{64})\n")
_NO_CHECKPOINT = "is no checkpoint as `kubechronicle checkpoint` writes it"
_SIGNATURE = re.compile(r"signature: ([A-Za-z0-9+/]{86}==)\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """See the head of this file."""

    log_id: UUID
    revision: int
    hash: bytes
    committed_at: datetime
    noted_at: datetime
    key: bytes = b""  # SHA-256 of the public key; none in a statement
    marks: Head | None = None  # None: of version 1
    confidential: tuple[str, ...] = ()
    moves: tuple[int, bytes] | None = None  # None: of version 1 or 2, as short
    short: tuple[str, ...] | None = None

    def signed_text(self) -> str:
        """Return the text to sign."""
        return f"{self.statement()}key: {self.key.hex()}\n"

    def statement(self) -> str:
        """Return the lines about the state of the log."""
        assert self.marks is not None
        assert self.moves is not None
        assert self.short is not None
        number, hash_ = self.moves
        marks = "".join(f" {name}={mark}" for name, mark in sorted(self.marks.compacted_of.items()))
        return (
            f"{FIRST_LINE}\nlog: {self.log_id}\nrevision: {self.revision}\nhash: {self.hash.hex()}\n"
            f"committed: {_written(self.committed_at)}\nnoted: {_written(self.noted_at)}\n"
            f"marks: *={self.marks.compacted}{marks}\n"
            f"confidential:{_words(self.confidential)}\nmoves: {number} {hash_.hex()}\nshort:{_words(self.short)}\n"
        )


def _words(names: tuple[str, ...]) -> str:
    return "".join(f" {name}" for name in names)


def parse(text: str) -> tuple[Checkpoint, str, str]:
    """Return the checkpoint, the signed text, and the signature in base64. ValueError: it is no checkpoint."""
    lines = _LINES.match(text)
    signature = _SIGNATURE.fullmatch(text, lines.end()) if lines else None
    if lines is not None and (lines["version"] == "3") is not (lines["moves"] is not None):
        raise ValueError(_NO_CHECKPOINT)
    if lines is None or signature is None or (lines["version"] >= "2") is not (lines["rest"] is not None):
        raise ValueError(_NO_CHECKPOINT)
    return _checkpoint(lines, bytes.fromhex(lines["key"])), lines[0], signature[1]


def parse_statement(text: str) -> Checkpoint:
    """Return the checkpoint in a statement. ValueError: it is none."""
    lines = _STATEMENT.fullmatch(text)
    if lines is None or lines["version"] != "3" or lines["moves"] is None or lines["rest"] is None:
        raise ValueError("it is no statement about a log")
    return _checkpoint(lines, b"")


def _checkpoint(lines: re.Match[str], key: bytes) -> Checkpoint:
    try:
        return Checkpoint(
            log_id=UUID(lines["log"]),
            revision=int(lines["revision"]),
            hash=bytes.fromhex(lines["hash"]),
            committed_at=_read(lines["committed"]),
            noted_at=_read(lines["noted"]),
            key=key,
            marks=_marks(lines) if lines["rest"] is not None else None,
            confidential=tuple((lines["confidential"] or "").split()),
            moves=(int(lines["moves"]), bytes.fromhex(lines["moves_hash"])) if lines["moves"] is not None else None,
            short=tuple(lines["short"].split()) if lines["short"] is not None else None,
        )
    except ValueError:  # not a time, or not an id
        raise ValueError(_NO_CHECKPOINT) from None


def _marks(lines: re.Match[str]) -> Head:
    of = (each.partition("=") for each in lines["marks"].split())
    return Head(
        revision=int(lines["revision"]),
        compacted=int(lines["rest"]),
        compacted_of={name: int(mark) for name, _, mark in of},
    )


def _written(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _read(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)

"""PresentSchema: stored custom objects as the present schema of their version shows them.

kube-apiserver cleans and defaults an object by the present schema at every read from its store. So fields that the
schema has lost are not shown, and its new defaults are, without a new resourceVersion. Here an object is cleaned and
defaulted when it is written, and its stored bytes are the answer as long as the present schema changes nothing in them.

No revision tells whether that is so: a write that another replica has prepared by the former schema may commit after
the change of the definition. Therefore the first reader of an entry looks, and marks the entry with the result. The
marks belong to one schema: after a change of the definition, each entry is looked at once more.

    schema 1   a@7 kept   b@8 kept        both are spliced
    schema 2   a@7 -      b@8 -           the first list cleans and defaults both: a would change, b would not
    schema 2   a@7 changed   b@8 kept     b is spliced; a is encoded anew, and cached (encoding_cache.py)

An object whose stored keys are not sorted counts as changed, too: one with a field that sorts before ``metadata``, or
one that was stored before keys were sorted, until it is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from kubechronicle.actors.large_work import LARGE_BYTES
from kubechronicle.actors.pauses import Pauses
from kubechronicle.api.codecs import unstructured
from kubechronicle.api.custom.schema.defaults import TooManyDefaultsError
from kubechronicle.api.pipeline.pipeline import to_request_version
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.eventlog.entries import Entry
from kubechronicle.http.representation.encoding_cache import LARGE_ENTRIES

_mark = attrgetter("mark")


class PresentSchema:
    """``rt``: a custom resource in the version of the request. ``stored``: that is the storage version.

    Entries in another version are changed, unless they were made for the request and marked (by a webhook's
    conversion, after which kube-apiserver sets no defaults).
    """

    __slots__ = ("_marks", "_rt", "_stored")

    def __init__(self, rt: ResourceType, *, stored: bool = True) -> None:
        self._rt: Final = rt
        self._stored: Final = stored
        self._marks: Final = rt.custom.marks

    def is_known_to_keep(self, entry: Entry) -> bool:
        """Tell whether an earlier look has found that the schema changes nothing in an entry."""
        return entry.mark in self._marks.keeping

    def size(self, entry: Entry) -> int:
        """Return the most bytes that an object may have by the present schema."""
        if entry.mark in self._marks.keeping:
            return len(entry.json)
        size: int = self._rt.custom.storage.schema.size_with_defaults(entry.json)
        return size

    def keeps(self, entry: Entry) -> bool:
        """Tell whether the schema changes nothing in an entry."""
        if entry.mark in self._marks.keeping:
            return True
        if entry.mark is self._marks.changed or not self._stored:
            return False
        kept = self._look(entry)
        entry.mark_as(self._marks.kept if kept else self._marks.changed)
        return kept

    async def keeps_all(self, entries: Sequence[Entry]) -> bool:
        """Tell whether the schema changes nothing in any of the entries. Large ones are looked at in a thread."""
        if {*map(_mark, entries)} <= self._marks.keeping:
            return True
        if not self._stored:
            return False
        pauses, kept = Pauses(), True
        for entry in entries:
            if not self.is_known_to_keep(entry) and self.size(entry) > LARGE_BYTES:
                kept &= await LARGE_ENTRIES.run(self.keeps, entry)
            else:
                kept &= self.keeps(entry)
                await pauses.pause()
        return kept

    def _look(self, entry: Entry) -> bool:
        try:
            return unstructured.encode(to_request_version(self._rt, entry.object())) == entry.json
        except TooManyDefaultsError:  # only a write can tell its client
            return True

"""The objects that a branch changed, with their states before and after, as a list of BranchChanges."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import orjson

from kubechronicle.actors.allocation.ports import NODE_PORTS
from kubechronicle.actors.branches.branches import OpenBranch
from kubechronicle.actors.reading.reads import EXPIRED_LIST, Listing, Reads, Selection
from kubechronicle.actors.reading.selection import ListsOnly
from kubechronicle.api.errors import status
from kubechronicle.api.history.branches import CHANGES, BranchDifference, change_object
from kubechronicle.api.history.revisions import masked_secret
from kubechronicle.api.history.secret_values import RESOURCE as SECRETS
from kubechronicle.api.meta.list_options import Continue, decode_continue, encode_continue
from kubechronicle.api.registry.groups import HISTORY
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.values.objects import Object
from kubechronicle.eventlog.entries import Entry
from kubechronicle.eventlog.records import Key, Who

DEFAULT_LIMIT: Final = 500
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of objects after which a page ends."""

Differences = list[BranchDifference]
Readable = Callable[[str, str, str], Awaitable[int]]
"""Return the first revision of an object that the reader may see (NEVER: none), by resource, namespace and name."""


class NoChanges(ListsOnly):
    """An ObjectReads of the changes of no branch: the cluster itself has none."""

    def __init__(self, present: Reads) -> None:
        self._present = present

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        return Listing(entries=(), revision=self._present.applied)


class BranchChanges(NoChanges):
    """An ObjectReads of a branch's changes. ``now``: compare with the present instead of the base. ``warn``: tells the
    reader of objects that are left out."""

    def __init__(
        self, branch: OpenBranch, present: Reads, *, now: bool, readable: Readable, warn: Callable[[str], None]
    ) -> None:
        super().__init__(present)
        self._branch = branch
        self._now = now
        self._readable = readable
        self._warn = warn
        self._mask = secrets.token_bytes(16)

    async def list(
        self,
        rt: ResourceType,
        selection: Selection,
        *,
        limit: int = 0,
        continue_token: str = "",
        revision: int | None = None,
        exact: bool = False,
    ) -> Listing:
        """List the changes by resource and key. ``revision``, ``exact``: the newest ones are listed in any case."""
        if selection.labels is not None or selection.fields is not None:
            raise status.bad_request(f"{rt.plural} have no labels or fields to select")
        applied = await self._branch.store.reads.wait_consistent()
        if self._now:
            await self._present.wait_consistent()
        keys = [key for key in self._branch.parts.log.changed_keys() if key.resource != NODE_PORTS]
        if continue_token:
            after = _place(continue_token)
            keys = [key for key in keys if key > after]
        page, token = await self._page(keys, limit or DEFAULT_LIMIT, applied)
        authors = await self._branch.parts.log.authors([each.revision for each in page])
        entries = [_entry(each, authors.get(each.revision)) for each in page]
        return Listing(entries=entries, revision=applied, continue_token=token)

    async def _page(self, keys: Sequence[Key], limit: int, applied: int) -> tuple[Differences, str]:
        """Return the differences of a page, and the token of the next one; "": there is none."""
        found: Differences = []
        token, size, left_out = "", 0, 0
        for place, key in enumerate(keys):
            if len(found) == limit or size >= PAGE_BYTES:
                token = encode_continue(Continue(applied, ("", "\t".join(keys[place - 1]))))
                break
            if await self._readable(*key) > self._branch.base:
                left_out += 1
                continue
            before, after = await self._states(key)
            if before is not None or after is not None:
                revision = self._branch.parts.log.last_change(key)
                found.append(BranchDifference(*key, revision, self._shown(before), self._shown(after)))
                size += sum(len(each.json) for each in (before, after) if each is not None)
        if left_out:
            self._warn(f"{left_out} changed objects that you may not read are left out")
        return found, token

    async def _states(self, key: Key) -> tuple[Entry | None, Entry | None]:
        """Return an object in the compared state, and in the branch. StatusError 500: it cannot be decrypted."""
        after = self._branch.store.reads.peek(*key)
        before = self._present.peek(*key) if self._now else await self._present.past.get(*key, self._branch.base)
        for entry in (before, after):
            if entry is not None and entry.unreadable:
                raise status.internal_error(str(entry.mark))
        return (None if before is not None and before.erased else before), after

    def _shown(self, entry: Entry | None) -> Object | None:
        if entry is None:
            return None
        obj = entry.object()
        return masked_secret(obj, self._mask) if entry.key.resource == SECRETS else obj


def _entry(difference: BranchDifference, author: Who | None) -> Entry:
    revision = difference.revision
    json = orjson.dumps(change_object(difference, author.user if author is not None else ""))
    return Entry(Key(f"{CHANGES}.{HISTORY}", "", str(revision)), "", revision, revision, 1, json, {}, {})


def _place(token: str) -> Key:
    """Return the key of a continue token. StatusError 400, 410."""
    parts: Sequence[str] = decode_continue(token, namespaced=False).after[1].split("\t")
    if len(parts) != 3:
        raise status.expired(EXPIRED_LIST)
    return Key(*parts)

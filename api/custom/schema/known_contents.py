"""Contents that a schema is known to leave as they are, so that it need not walk through them again.

Cleaning and defaulting are pure, and a second pass changes nothing. So the digest of a result proves for any object of
the same contents that both are done. The metadata of the root does not count: it is checked each time.

    POST    decode: {"spec": {}}           -> {"spec": {"size": 3}}, which is noted
            store:  {"spec": {"size": 3}}  -> known
    PATCH   read:   {"spec": {"size": 3}}  -> known

A webhook that changes the object in between makes other contents, which are not known.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

import orjson

from kubechronicle.api.custom.schema.structure import CONTAINERS, SchemaNode
from kubechronicle.api.meta import stored_contents
from kubechronicle.api.values.caches import CACHES

MAX_KNOWN: Final = 256
"""Digests per generation. Two are kept, 60 KB for each schema in use."""


class KnownContents:
    """The digests of the last contents, used by several threads at once."""

    __slots__ = ("_former", "_recent")

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._former: set[bytes] = set()

    def __contains__(self, digest: bytes | None) -> bool:
        return digest in self._recent or digest in self._former

    def add(self, digest: bytes | None) -> None:
        """Note contents; None are not noted."""
        if digest is None:
            return
        if len(self._recent) >= MAX_KNOWN:
            self._former, self._recent = self._recent, set()
        self._recent.add(digest)


def digest_of(obj: dict[str, Any]) -> bytes | None:
    """Return the digest of an object without its metadata; None if it has no JSON text.

    The order of keys, and 1 or 1.0, make a difference.
    """
    return Contents(obj).digest


class Contents:
    """An object without its metadata, as JSON. It serves until one of its values changes.

    ``text``, ``digest``: None if it has no JSON text.
    """

    __slots__ = ("digest", "text")

    def __init__(self, obj: dict[str, Any]) -> None:
        self.text: bytes | None = None
        self.digest: bytes | None = None
        try:
            contents = {name: item for name, item in obj.items() if name != "metadata"}
            self.text = orjson.dumps(stored_contents.with_texts(contents))
        except TypeError:  # an integer beyond 64 bits, or too deep
            return
        self.digest = _digests.of(self.text)


class _LastDigest:
    """The digest of the last text: the steps of a request mostly ask for that of the same one."""

    __slots__ = ("__weakref__", "_last")

    def __init__(self) -> None:
        self.forget()

    def __len__(self) -> int:
        return 1

    def forget(self) -> None:
        """Forget the last text."""
        self._last = (b"", sha256(b"", usedforsecurity=False).digest())

    def of(self, text: bytes) -> bytes:
        """Return the digest of a text."""
        known, digest = self._last
        if known != text:
            digest = sha256(text, usedforsecurity=False).digest()
            self._last = text, digest
        return digest


_digests: Final = CACHES.add("last digest", _LastDigest())


def settles(root: SchemaNode) -> bool:
    """Return whether a second pass of a schema changes nothing that the first one left.

    False for rare schemas of which that is not certain: with embedded resources, nulls within defaults, or defaults in
    the metadata of the root.
    """
    if root.deep_embedded:
        return False
    metadata = root.properties.get("metadata")
    if metadata is not None and (metadata.has_default or metadata.deep_defaults):
        return False
    stack = [root]
    while stack:
        node = stack.pop()
        if _holds_null(node.default):
            return False
        if node.deep_defaults:
            stack += node.properties.values()
            stack += [below for below in (node.additional, node.items) if below is not None]
    return True


def _holds_null(default: Any) -> bool:
    stack: list[Any] = [default] if default.__class__ in CONTAINERS else []
    while stack:
        value = stack.pop()
        for item in value.values() if value.__class__ is dict else value:
            if item is None:
                return True
            if item.__class__ in CONTAINERS:
                stack.append(item)
    return False

"""Strict errors of codecs: the repeated keys of a document.

Kubernetes decodes JSON into a type, and reports repeated and unknown fields in the order of the document. A codec knows
no types. So it hands over the whole document if a key is repeated; `api/schema/repeated_keys.py` reads that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["MAX_COMPLAINTS", "Complaints"]

MAX_COMPLAINTS = 100
"""The most strict errors reported, as in sigs.k8s.io/json."""


class Complaints(list[str]):
    """Sentences about repeated keys, in the order of the document.

    ``document``: a JSON document with repeated keys, None for any other. Its objects are tuples of (key, value).
    ``source``: the bytes of a document in JSON or CBOR.
    ``small_integers``: no integer of the document has more than 53 bits; False also if that is not known.
    ``cbor``: ``source`` is CBOR, whose strict errors and wrong types have other texts.
    ``keys_sorted``: unknown fields are reported in the order of their names, as Kubernetes makes JSON of YAML.
    """

    def __init__(self, sentences: Iterable[str] = (), *, document: Any = None, keys_sorted: bool = False) -> None:
        super().__init__(sentences)
        self.document = document
        self.source = b""
        self.cbor = False
        self.small_integers = False
        self.keys_sorted = keys_sorted

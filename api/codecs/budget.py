"""The budget of one document, whatever its format: how many lists, objects, keys and values its decoder may make.

Bytes do not tell the memory: `{}` has two bytes in JSON and an empty message two in protobuf, but 64 to 400 in Python.
And orjson holds the interpreter's lock while it decodes: 0.1 s for a million lists or 300,000 keys, in which nothing
else runs. An object that etcd takes has fewer than the bounds: each list or object in it belongs to a field or key with
a name, and each key to a value. The rules take some ten microseconds for each invalid value of a list.

JSON is counted before it is decoded. YAML and protobuf count what they have made, container by container. JSON within
a protobuf message counts among the message's.
"""

from __future__ import annotations

import logging
import mmap
import re
from itertools import islice
from typing import Final

from kubechronicle.api.codecs.errors import MAX_DEPTH, TooManyPartsError

MAX_CONTAINERS: Final = 300_000
MAX_KEYS: Final = 150_000
MAX_VALUES: Final = 350_000
"""Values of lists and objects, and in YAML their keys. In protobuf, messages, fields and items, counted together."""
SMALL: Final = min(MAX_CONTAINERS, 3 * MAX_KEYS)
"""Bytes of a JSON document that is within the budget whatever it holds: a list has a byte, a key three."""

SMALL_MESSAGE: Final = 32 * 1024
"""Bytes of a protobuf message that is within the budget: an empty message has two, and makes some ten parts at most."""

PART: Final = 24
"""Bytes of a usual object for each of its parts. Rules take as long for each small invalid item of a list as for many
bytes of a usual object."""
DENSE: Final = 8 * 1024
"""Bytes of a JSON document whose parts are not counted, to save time: the rules take 40 ms for the most of them."""

MAX_ALIASED: Final = 100_000
"""The most values that aliases may add to a YAML document. Go's limit is higher and grows with the document."""

_YAML_MARKS: Final = (b",", b"\n", b":", b"- ")
_CBOR_SAMPLE: Final = 64 * 1024
"""Bytes of a CBOR document whose items are counted. A longer one is large work whatever it holds."""
_ANCHOR: Final = re.compile(rb"(?:^|[\s\[{,:?-])&[\w-]")
_STEPS: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
SMALL_PART: Final = 50_000
"""Strings and brackets from which the depth of a document beyond the budget is found."""
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def require_within(containers: int, keys: int, values: int) -> None:
    """Raise TooManyPartsError if a document has more lists and objects, keys or values than a body may have."""
    if containers > MAX_CONTAINERS:
        raise TooManyPartsError(f"the body has more than {MAX_CONTAINERS} lists and objects")
    if keys > MAX_KEYS:
        raise TooManyPartsError(f"the body has more than {MAX_KEYS} keys")
    if values > MAX_VALUES:
        raise TooManyPartsError(f"the body has more than {MAX_VALUES} values")


def weight(data: bytes, *, protobuf: bool = False, yaml: bool = False, cbor: bool = False) -> int:
    """Return the bytes of a usual document with as many parts as this one, to tell whether it is large work.

    A comma of JSON, an empty message of protobuf, an item of CBOR and the punctuation of YAML are counted, in strings,
    too (but not those of CBOR). A YAML document with aliases may have as many parts as those can add.

    >>> weight(b"[" + b"1," * 5000 + b"1]"), weight(b'["' + b"text" * 5000 + b'"]')
    (120000, 20004)
    """
    size = len(data)
    if protobuf:
        return size + PART * data.count(0)
    if cbor:
        return max(size, PART * _cbor_items(data)) if size > DENSE else size
    if not yaml:
        return max(size, PART * (size - len(data.translate(None, b",")))) if size > DENSE else size
    if b"&" in data and b"*" in data and _ANCHOR.search(data):
        return size + PART * MAX_ALIASED
    return max(size, PART * sum(map(data.count, _YAML_MARKS)))


def require_json_within(data: bytes) -> None:
    """Check a JSON document before it is decoded. Raises TooManyPartsError, unless the decoder ends at its depth.

    >>> require_json_within(b'"' + b"[" * 300_001 + b'"')
    """
    if len(data) > SMALL:
        try:
            require_within(*_counts(data, MAX_CONTAINERS, MAX_KEYS, MAX_VALUES))
        except TooManyPartsError:
            if not _is_too_deep(data):
                raise


def _is_too_deep(data: bytes) -> bool:
    """Tell whether a decoder meets too many levels, before it has made many parts."""
    depth = 0
    for found in islice(_TOKEN.finditer(data), SMALL_PART):
        depth += _STEPS.get(found.group(), 0)
        if depth > MAX_DEPTH:
            return True
    return False


def _cbor_items(data: bytes) -> int:
    """Return the number of items at the beginning of a CBOR document, from their heads. Malformed ones count, too."""
    at, found, end = 0, 0, min(len(data), _CBOR_SAMPLE)
    while at < end:
        head = data[at]
        argument = head & 31
        at += 1
        if 23 < argument < 28:
            size = 1 << argument - 24
            argument, at = int.from_bytes(data[at : at + size], "big"), at + size
        elif argument == 31:
            argument = 0
        if 0x40 <= head < 0x80:
            at += argument
        found += 1
    return found


class Message(bytes):
    """The bytes of a protobuf message, with the budget of its document.

    ``left``: the messages and fields that may still be made.
    """

    left: int

    @classmethod
    def of(cls, data: bytes) -> Message:
        """Return a whole message, with the whole budget."""
        message = cls(data)
        message.left = MAX_VALUES
        return message

    def part(self, data: bytes) -> Message:
        """Return a part of the message that is written anew. ``left`` must be taken back from it."""
        part = Message(data)
        part.left = self.left
        return part

    def take(self, parts: int) -> None:
        """Count parts. Raises TooManyPartsError."""
        self.left -= parts
        if self.left < 0:
            raise TooManyPartsError(f"the body has more than {MAX_VALUES} messages and fields")

    def take_json(self, data: bytes) -> None:
        """Count a JSON document within the message before it is decoded. Raises TooManyPartsError."""
        self.take(sum(_counts(data, self.left >> 2, self.left >> 2, self.left >> 2)))


def _counts(data: bytes, containers: int, keys: int, values: int) -> tuple[int, int, int]:
    """Return the numbers of lists and objects, keys, and values. Up to those given, text in strings may count, too."""
    found = _marks(data)
    if found[0] > containers or found[1] > keys or found[2] > values:
        for string in _STRING.finditer(data):  # one by one, so that other threads run meanwhile
            in_text = _marks(string.group())
            found = found[0] - in_text[0], found[1] - in_text[1], found[2] - in_text[2]
    return found


def _marks(text: bytes) -> tuple[int, int, int]:
    """Return the numbers of opening brackets, keys and commas. Blanks before a colon hide keys, but cost bytes."""
    return text.count(b"{") + text.count(b"["), text.count(b'":'), text.count(b",")


# -- headroom ----------------------------------------------------------------------------------------------------------
#
# Headroom: whether the process can still allocate memory, asked before work that needs much of it.
#
# A process that may not grow any more (ulimit -v, a strict vm.overcommit_memory) gets no memory from malloc. CPython
# then raises MemoryError, but orjson crashes: it expects each object that it makes to be there. So memory is reserved
# and released at once before a document is decoded, and a server without headroom answers 503 to all requests, which
# fails its liveness probe too. Memory limits of containers are another matter: there the kernel ends the process.
#
# No page of the reservation is touched, so it costs five microseconds whatever its size.


logger = logging.getLogger(__name__)

MARGIN: Final = 32 * 1024 * 1024  # bytes for all work that asks for nothing: small objects, answers, other threads
GROWTH: Final = 40  # bytes that a byte of JSON may become: "{}," is a dict, with a node of the parser
EVERY: Final = 16  # requests between two looks
SMALL_DOCUMENT: Final = 4096  # bytes of a document that is covered by the margin
_FLAGS: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def require(size: int) -> None:
    """Raise MemoryError if so many bytes cannot be allocated now."""
    try:
        mmap.mmap(-1, size, flags=_FLAGS).close()
    except OSError:
        raise MemoryError(f"{size} bytes cannot be allocated") from None


def require_for_document(length: int) -> None:
    """Raise MemoryError if a JSON document of that many bytes cannot be decoded now."""
    if length > SMALL_DOCUMENT:
        require(length * GROWTH + MARGIN)

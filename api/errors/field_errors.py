"""Field paths and the errors of validating one field, worded as k8s.io/apimachinery's ``util/validation/field``.

Lives here: the form of a path, the print of a bad value, the text of each kind of error. Not here: the rules of fields,
and the Status that holds the errors (status.py).

Every constructor returns a ``Cause``: its message is what apimachinery's ``Error.ErrorBody()`` gives, so that

    invalid_value("metadata.name", "A", "must be lower case")
    == Cause("FieldValueInvalid", 'Invalid value: "A": must be lower case', "metadata.name")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_NO_VALUE: Final = ...
_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}


class _AsJson(str):
    """A bad value that is JSON already."""

    __slots__ = ()


class Cause:
    """One entry of ``Status.details.causes``. Empty strings are left out of the answer.

    ``value`` and ``detail`` are joined to the message when it is read for the first time: an object may have a hundred
    thousand causes, and an answer shows few of them.
    """

    __slots__ = ("_detail", "_message", "_value", "field", "reason")

    def __init__(
        self, reason: str, message: str, field: str = "", *, value: Any = _NO_VALUE, detail: object = ""
    ) -> None:
        self.reason = reason
        self.field = field
        self._message = message
        self._value = value
        self._detail = detail

    @property
    def message(self) -> str:
        """The text: ``message: value: detail``, without the parts that are not given."""
        if self._value is not _NO_VALUE:
            self._message, self._value = f"{self._message}: {format_value(self._value)}", _NO_VALUE
        if self._detail:
            self._message, self._detail = f"{self._message}: {self._detail}", ""
        return self._message

    def unusual_text(self) -> str | None:
        """Return the bad value if it is a text that JSON writes in another way than ``%q``, else None."""
        return self._value if isinstance(self._value, str) and go_quote(self._value) != go_json(self._value) else None

    def print_as_json(self) -> None:
        """Print the bad value as JSON: in Go it has a type of its own."""
        self._value = _AsJson(go_json(self._value))

    def body(self) -> dict[str, Any]:
        """Return the StatusCause object."""
        pairs = (("reason", self.reason), ("message", self.message), ("field", self.field))
        return {key: value for key, value in pairs if value}

    def __str__(self) -> str:
        """Return the text for the Status message: ``field: message``."""
        return f"{self.field}: {self.message}"

    def __repr__(self) -> str:
        return f"Cause({self.reason!r}, {self.message!r}, {self.field!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cause):
            return NotImplemented
        return (self.reason, self.field, self.message) == (other.reason, other.field, other.message)

    def __hash__(self) -> int:
        return hash((self.reason, self.field, self.message))


MOST_CAUSES: Final = 1000
MOST_CAUSE_TEXT: Final = 1024 * 1024
"""Characters of the causes' messages. kube-apiserver has no such bounds, but joins the causes in quadratic time: 1,000
take a second, and for 20,000 it answers a timeout."""


def shown(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the first causes, as many as an answer may show: at least one."""
    if len(causes) <= 1:
        return causes
    size = 0
    for index, cause in enumerate(causes[:MOST_CAUSES]):
        size += len(cause.message) + len(cause.field)
        if size > MOST_CAUSE_TEXT:
            return causes[: max(index, 1)]
    return causes[:MOST_CAUSES]


class Path:
    """An immutable path to a field: ``Path("spec").child("ports").index(0)`` is ``spec.ports[0]``."""

    __slots__ = ("_text",)

    def __init__(self, *names: str) -> None:
        self._text = ".".join(names)

    def child(self, *names: str) -> Path:
        """Return the path of a named field below this one."""
        return Path(*((self._text, *names) if self._text else names))

    def index(self, position: int) -> Path:
        """Return the path of a list's item."""
        return Path(f"{self._text}[{position}]")

    def key(self, key: str) -> Path:
        """Return the path of a map's entry, or of an item of a list that is keyed."""
        return Path(f"{self._text}[{key}]")

    def __str__(self) -> str:
        return self._text or "<nil>"

    def __repr__(self) -> str:
        return f"Path({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def go_quote(text: str) -> str:
    """Return ``text`` as Go's ``%q`` prints it (strconv.Quote)."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_quote_character, text)) + '"'


def without_html(text: str) -> str:
    """Escape the characters of HTML, as k8s.io/apiserver's responsewriters do for paths and names of clients."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quote_character(character: str) -> str:
    escaped = _ESCAPES.get(character)
    if escaped is not None:
        return escaped
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


HTML_ESCAPES: Final = (
    ("&", "\\u0026"),
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)
"""The characters that Go's encoding/json escapes for use in HTML."""


def go_json(value: Any) -> str:
    """Return ``value`` as Go's encoding/json writes it: compact, with ``<``, ``>``, ``&`` escaped.

    The caller sorts maps by key.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    for character, escape in HTML_ESCAPES:
        text = text.replace(character, escape)
    return text


def format_value(value: Any) -> str:
    """Return a bad value as field errors print it.

    Strings are quoted, numbers and booleans are bare, all other values are JSON. So None, an absent value, is
    ``null``.
    """
    if isinstance(value, str):
        return value if value.__class__ is _AsJson else go_quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return go_number(value)
    if isinstance(value, Mapping):
        return go_json(dict(value))
    return go_json(value)


def go_number(value: int | float) -> str:
    """Return a number as Go's ``%v`` prints it: floats from a million on, or below 0.0001, with an exponent.

    >>> go_number(1000000), go_number(1000000.0), go_number(1234567.5), go_number(2.0), go_number(0.0001)
    ('1000000', '1e+06', '1.2345675e+06', '2', '0.0001')
    """
    if isinstance(value, int):
        return str(value)
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    if mantissa.lstrip("-").startswith(("i", "n")) or -4 <= int(exponent) < 6:
        return repr(value).removesuffix(".0")
    digits = next(precision for precision in range(18) if float(f"{value:.{precision}e}") == value)
    return f"{value:.{digits}e}"


def not_found(field: Path | str, value: Any, detail: str = "") -> Cause:
    """The value names something that does not exist."""
    return Cause("FieldValueNotFound", "Not found", str(field), value=value, detail=detail)


def required(field: Path | str, detail: str = "") -> Cause:
    """A value that must be given is missing."""
    return Cause("FieldValueRequired", "Required value", str(field), detail=detail)


def duplicate(field: Path | str, value: Any) -> Cause:
    """The value stands elsewhere already where it must be unique."""
    return Cause("FieldValueDuplicate", "Duplicate value", str(field), value=value)


def invalid_value(field: Path | str, value: Any, detail: object) -> Cause:
    """The value is malformed, out of range or must not change. ``detail``: a text, or its maker, for ``str``."""
    return Cause("FieldValueInvalid", "Invalid value", str(field), value=value, detail=detail)


def type_invalid(field: Path | str, value: Any, detail: str) -> Cause:
    """The value has the wrong type."""
    return Cause("FieldValueTypeInvalid", "Invalid value", str(field), value=value, detail=detail)


def not_supported(field: Path | str, value: Any, supported: Iterable[str]) -> Cause:
    """The value is none of an enumeration's. ``supported`` is printed in the order given."""
    choices = ", ".join(map(go_quote, supported))
    detail = f"supported values: {choices}" if choices else ""
    return Cause("FieldValueNotSupported", "Unsupported value", str(field), value=value, detail=detail)


def forbidden(field: Path | str, detail: str) -> Cause:
    """The field must not be set, or not be changed so."""
    return Cause("FieldValueForbidden", "Forbidden", str(field), detail=detail)


def too_long(field: Path | str, limit: int) -> Cause:
    """The value has more than ``limit`` bytes. A negative limit says nothing about the limit."""
    return _too_long(field, limit, "byte")


def too_long_characters(field: Path | str, limit: int) -> Cause:
    """The value has more than ``limit`` characters."""
    return _too_long(field, limit, "character")


def _too_long(field: Path | str, limit: int, unit: str) -> Cause:
    detail = "value is too long"
    if limit >= 0:
        detail = f"may not be more than {limit} {unit}{'' if limit == 1 else 's'}"
    return Cause("FieldValueTooLong", f"Too long: {detail}", str(field))


def too_many(field: Path | str, actual: int, limit: int) -> Cause:
    """The list or map has ``actual`` items, more than ``limit``. Either may be negative: not known."""
    detail = "has too many items"
    if limit >= 0:
        detail = f"must have at most {limit} item{'' if limit == 1 else 's'}"
    value = f"{actual}: " if actual >= 0 else ""
    return Cause("FieldValueTooMany", f"Too many: {value}{detail}", str(field))


def internal(field: Path | str, error: str) -> Cause:
    """The server itself failed while validating the field."""
    return Cause("InternalError", f"Internal error: {error}", str(field))


def aggregate(causes: Sequence[Cause]) -> str:
    """Return the causes as one text: ``a`` or ``[a, b]``, repetitions left out (apimachinery's Aggregate)."""
    listed = shown(causes)
    texts = list(dict.fromkeys(map(str, listed)))
    if len(listed) < len(causes):
        texts.append(f"and {len(causes) - len(listed)} more")
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


class BoundedCauses:
    """Causes, as many as an answer may show. ``full``: more are left out."""

    __slots__ = ("_room", "found", "full")

    def __init__(self) -> None:
        self.found: list[Cause] = []
        self.full = False
        self._room = MOST_CAUSE_TEXT

    def add(self, cause: Cause) -> None:
        """Append a cause, unless the list is full."""
        if not self.full:
            self.found.append(cause)
            self._room -= len(cause.field)
            self.full = len(self.found) >= MOST_CAUSES or self._room < 0

    def extend(self, causes: Iterable[Cause]) -> None:
        """Append causes until the list is full. A generator makes no further ones."""
        if self.full:
            return
        for cause in causes:
            self.add(cause)
            if self.full:
                return

    def __len__(self) -> int:
        return len(self.found)

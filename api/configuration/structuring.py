"""Structure a decoded configuration document into typed, frozen records with cattrs.

A record is a frozen, keyword-only dataclass. Its annotations are the schema of the file:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cluster:
        server: str
        proxy_url: Annotated[str, Key("proxy-url")] = ""

    structure(document, Cluster, file="webhook.yaml")  # Cluster(server="https://a", proxy_url="")

A field is read from the key that is its name in camelCase, or from its ``FieldKey``. A missing key and a null mean the
field's default; a field without a default is required. Types are exact: nothing is converted between text, number and
boolean. ``Duration`` is a text such as 1m30s, ``bytes`` is base64, ``Literal`` and enums list the allowed values,
``object`` keeps any value as it is. Containers are ``tuple[T, …]`` and ``Mapping[str, T]``. A ValueError raised in
``__post_init__`` is reported with the path of its record.

Invariant: an error is one line, and shows no value but those of durations, literals and enums: files hold secrets.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as type_hints_of

from kubechronicle.api.errors.field_errors import go_quote
from kubechronicle.api.values import durations

if TYPE_CHECKING:
    import cattrs

Duration = NewType("Duration", int)
"""A metav1.Duration: text in the file, nanoseconds in the record."""

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class FieldKey:
    """The key of a field in the file, where it is not the attribute's name in camelCase."""

    name: str


class ZeroIsDefault:
    """Marks a field whose zero value (0s, "") means the default, as in Go's defaulting functions."""


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field of a record.

    ``attribute``: its name in Python
    ``key``: its name in the file
    ``type``: its annotation without ``Annotated`` and without ``None``
    ``zero_is_default``: whether its zero value means its default
    """

    attribute: str
    key: str
    type: Any
    zero_is_default: bool
    default: Any


@dataclass(frozen=True, slots=True)
class StructureProblem:
    """A value that cannot be structured. ``path``: ``users[0].user.token``, "" for the document itself."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class StructureError(ValueError):
    """The document does not fit the record. The message is one line: the file and every problem."""

    def __init__(self, problems: tuple[StructureProblem, ...], file: str) -> None:
        text = "; ".join(map(str, problems))
        super().__init__(f"{file}: {text}" if file else text)
        self.problems = problems


def structure(document: object, record: type[T], *, file: str = "", unknown_allowed: bool = False) -> T:
    """Return the document as a ``record``.

    ``file`` opens the message of an error. Unknown keys are errors unless ``unknown_allowed``. Raises StructureError.
    """
    try:
        return converter(unknown_allowed=unknown_allowed).structure(document, record)
    except Exception as error:
        problems = tuple(_problems(error, ""))
        if not problems:
            raise
        raise StructureError(problems, file) from None


@functools.cache
def fields_of(record: type) -> tuple[RecordField, ...]:
    """Return the fields of a record, in order."""
    hints = type_hints_of(record, include_extras=True)
    return tuple(_field(field, hints[field.name]) for field in dataclasses.fields(record))


def _field(field: dataclasses.Field[Any], hint: Any) -> RecordField:
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *marks_found = get_args(hint)
        marks = tuple(marks_found)
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
    head, *words = field.name.split("_")
    camel_case = head + "".join(map(str.capitalize, words))
    return RecordField(
        attribute=field.name,
        key=next((mark.name for mark in marks if isinstance(mark, FieldKey)), camel_case),
        type=hint,
        zero_is_default=ZeroIsDefault in marks,
        default=field.default,
    )


# -- converters and their hooks ---------------------------------------------------------------------------------------


@functools.cache
def converter(*, unknown_allowed: bool) -> cattrs.Converter:
    """Return the cattrs converter behind ``structure``."""
    import cattrs  # 80 ms, which commands that only print help must not spend

    made = cattrs.Converter(detailed_validation=True, forbid_extra_keys=not unknown_allowed)
    for kind, hook in _SCALARS.items():
        made.register_structure_hook(kind, hook)
    made.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    made.register_structure_hook_func(functools.partial(_is_generic, Literal), _literal)
    made.register_structure_hook_func(lambda kind: isinstance(kind, type) and issubclass(kind, enum.Enum), _enum)
    made.register_structure_hook_factory(_is_record, functools.partial(_record_hook, made))
    made.register_structure_hook_factory(functools.partial(_is_generic, tuple), functools.partial(_list_hook, made))
    made.register_structure_hook_factory(functools.partial(_is_generic, Mapping), functools.partial(_map_hook, made))
    return made


def _is_generic(origin: object, kind: Any) -> bool:
    return get_origin(kind) is origin


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _record_hook(made: cattrs.Converter, record: type) -> Hook:
    from cattrs.gen import make_dict_structure_fn, override

    overrides: dict[str, Any] = {
        field.attribute: override(
            rename=field.key, struct_hook=_with_default(made, field) if field.zero_is_default else None
        )
        for field in fields_of(record)
    }
    fill: Hook = make_dict_structure_fn(record, made, **overrides)

    def hook(value: Any, _: Any) -> Any:
        _expect(dict, value)
        return fill({key: item for key, item in value.items() if item is not None}, record)

    return hook


def _with_default(made: cattrs.Converter, field: RecordField) -> Hook:
    return lambda value, _: made.structure(value, field.type) or field.default


def _list_hook(made: cattrs.Converter, kind: Any) -> Hook:
    item_type = get_args(kind)[0]

    def hook(value: Any, _: Any) -> tuple[Any, ...]:
        _expect(list, value)
        return tuple(_items(made, enumerate(value), item_type, kind).values())

    return hook


def _map_hook(made: cattrs.Converter, kind: Any) -> Hook:
    item_type = get_args(kind)[1]

    def hook(value: Any, _: Any) -> Mapping[str, Any]:
        _expect(dict, value)
        for key in value:
            _expect(str, key, "its keys must be strings")
        return types.MappingProxyType(_items(made, value.items(), item_type, kind))

    return hook


def _items(made: cattrs.Converter, items: Any, item_type: Any, kind: Any) -> dict[Any, Any]:
    """Structure the items of a list or mapping. Errors of all items are gathered, as cattrs does it."""
    from cattrs.errors import IterableValidationError, IterableValidationNote

    structured: dict[Any, Any] = {}
    errors: list[Exception] = []
    for place, item in items:
        try:
            structured[place] = made.structure(item, item_type)
        except Exception as error:
            error.add_note(IterableValidationNote(f"at {place!r}", place, item_type))
            errors.append(error)
    if errors:
        raise IterableValidationError(f"While structuring {kind!r}", errors, kind)
    return structured


_NOUNS: Final[dict[type, str]] = {
    dict: "a mapping",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


def _expect(wanted: type, value: object, text: str = "") -> None:
    # By class, not isinstance: True is no number here.
    if value.__class__ is not wanted:
        got = _NOUNS.get(value.__class__, f"a {value.__class__.__name__}")
        raise ValueError(text or f"must be {_NOUNS[wanted]}, not {got}")


def _exact(kind: type) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        _expect(kind, value)
        return value

    return hook


def _duration(value: Any, _: Any) -> Duration:
    _expect(str, value)
    return Duration(durations.parse(value))


def _bytes(value: Any, _: Any) -> bytes:
    import base64  # here and not above: few files hold any

    _expect(str, value)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError("is not base64") from None


def _literal(value: Any, kind: Any) -> Any:
    return _allowed(value, get_args(kind))


def _enum(value: Any, kind: type[enum.Enum]) -> enum.Enum:
    return kind(_allowed(value, tuple(member.value for member in kind)))


def _allowed(value: Any, choices: tuple[Any, ...]) -> Any:
    if not any(value == choice and value.__class__ is choice.__class__ for choice in choices):
        listed = ", ".join(_shown(choice) for choice in choices)
        raise ValueError(f"must be {'one of ' if len(choices) > 1 else ''}{listed}, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return go_quote(value)
    return _NOUNS[value.__class__] if isinstance(value, dict | list) else str(value)


_SCALARS: Final[Mapping[Any, Hook]] = {
    str: _exact(str),
    bool: _exact(bool),
    int: _exact(int),
    bytes: _bytes,
    Duration: _duration,
}


# -- errors -----------------------------------------------------------------------------------------------------------


def _problems(error: BaseException, path: str) -> Iterator[StructureProblem]:
    """Yield the problems of an exception that cattrs raised. Yield nothing for an exception that is a bug."""
    from cattrs.errors import (
        AttributeValidationNote,
        ClassValidationError,
        ForbiddenExtraKeysError,
        IterableValidationError,
        IterableValidationNote,
    )

    if isinstance(error, ClassValidationError):
        keys = {field.attribute: field.key for field in fields_of(error.cl)}
        for inner, attribute in _with_note(error, AttributeValidationNote):
            yield from _problems(inner, _joined(path, keys[attribute.name]) if attribute is not None else path)
    elif isinstance(error, IterableValidationError):
        for inner, item in _with_note(error, IterableValidationNote):
            place = item.index if item is not None else ""
            yield from _problems(inner, f"{path}[{place}]" if isinstance(place, int) else _joined(path, place))
    elif isinstance(error, ForbiddenExtraKeysError):
        known = ", ".join(field.key for field in fields_of(error.cl))
        for key in sorted(error.extra_fields, key=str):
            yield StructureProblem(_joined(path, str(key)), f"is unknown here; the known keys are {known}")
    elif isinstance(error, KeyError):
        yield StructureProblem(path, "is required")
    elif isinstance(error, ValueError):
        yield StructureProblem(path, " ".join(str(error).split()))


def _with_note(group: Any, kind: type[T]) -> Iterator[tuple[BaseException, T | None]]:
    for error in group.exceptions:
        notes = getattr(error, "__notes__", ())
        yield error, next((note for note in notes if isinstance(note, kind)), None)


def _joined(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

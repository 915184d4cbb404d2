"""Field selectors, and ``describe``, which returns the labels and fields of an object that selectors match.

Label selectors (label_selectors.py) are exported here too. selectable_fields.py lists the fields of each kind.

Field selectors (apimachinery ``pkg/fields``) are ``name=value``, ``name==value``, ``name!=value``, joined by commas. In
a value, a backslash escapes a backslash, comma or equals sign. Every parse error is a 400 BadRequest with Kubernetes'
own message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kubechronicle.api.errors import status
from kubechronicle.api.registry.registry import ResourceType
from kubechronicle.api.selectors import selectable_fields as selectable
from kubechronicle.api.selectors.label_selectors import (
    FEW,
    LabelSelector,
    Matcher,
    Requirement,
    SelectorSyntaxError,
    all_of,
    label_selector_problem,
    parse_label_selector,
    selector_from_labels,
    selector_from_spec,
)

__all__ = [
    "FieldSelector",
    "FieldTerm",
    "LabelSelector",
    "Requirement",
    "check_field_syntax",
    "custom_fields",
    "describe",
    "describer",
    "field_terms",
    "label_selector_problem",
    "parse_field_selector",
    "parse_label_selector",
    "plain",
    "selector_from_labels",
    "selector_from_spec",
]


class FieldTerm(NamedTuple):
    """One condition on a field of the stored form."""

    field: str
    equal: bool
    value: str


class FieldSelector:
    """A parsed field selector. ``matches(fields)`` is a plain function; an absent field counts as empty."""

    __slots__ = ("_matcher", "empty", "terms")

    def __init__(self, terms: Iterable[FieldTerm] = ()) -> None:
        self.terms = tuple(terms)
        self.empty = not self.terms
        self._matcher: Matcher | None = None

    @property
    def matches(self) -> Matcher:
        """The function. It is made when asked for: many selectors become conditions of a query instead."""
        if self._matcher is None:
            self._matcher = _matcher_of(self.terms)
        return self._matcher

    def required(self, field: str) -> str | None:
        """Return the one value that the selector requires of ``field``, None if it allows several."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def __str__(self) -> str:
        return ",".join(f"{term.field}{'=' if term.equal else '!='}{_escape(term.value)}" for term in self.terms)


def _field_matcher(term: FieldTerm) -> Matcher:
    field, equal, value = term
    if equal:
        return lambda fields: fields.get(field, "") == value
    return lambda fields: fields.get(field, "") != value


def _matcher_of(terms: Sequence[FieldTerm]) -> Matcher:
    """Return a matcher whose cost grows with the different fields, which are few, not with the terms."""
    if len(terms) <= FEW:
        return all_of([_field_matcher(term) for term in terms])
    allowed: dict[str, frozenset[str]] = {}
    excluded: dict[str, set[str]] = {}
    for field, equal, value in terms:
        if equal:
            allowed[field] = frozenset((value,)) & allowed.get(field, frozenset((value,)))
        else:
            excluded.setdefault(field, set()).add(value)

    def matches(fields: Mapping[str, str]) -> bool:
        return all(fields.get(field, "") in values for field, values in allowed.items()) and not any(
            fields.get(field, "") in values for field, values in excluded.items()
        )

    return matches


# -- parsing field selectors ------------------------------------------------------------------------------------------

_FIELD_OPERATOR: Final = re.compile("!=|==|=")
_COMMA: Final = re.compile(r"\\.|,", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.?)|[,=]", re.DOTALL)
_ESCAPABLE: Final = re.compile(r"[\\,=]")


def _split_terms(text: str) -> list[str]:
    """Split at commas that are not escaped."""
    if "\\" not in text:
        return text.split(",")
    terms, start = [], 0
    for match in _COMMA.finditer(text):
        if match.group() == ",":
            terms.append(text[start : match.start()])
            start = match.end()
    return [*terms, text[start:]]


def _unescape(value: str) -> str:
    if "\\" not in value and "=" not in value:
        return value

    def replace(match: re.Match[str]) -> str:
        sequence = match.group()
        if sequence in (",", "="):
            # Kubernetes prints the character as a number, as Go prints a rune.
            raise SelectorSyntaxError(f"invalid field selector: unescaped character in value: {ord(sequence)}")
        if match.group(1) not in ("\\", ",", "="):
            raise SelectorSyntaxError(f"invalid field selector: invalid escape sequence: {sequence}")
        return match.group(1)

    return _ESCAPED.sub(replace, value)


def _escape(value: str) -> str:
    return _ESCAPABLE.sub(lambda match: "\\" + match.group(), value)


def _field_terms(text: str, vocabulary: selectable.Vocabulary) -> Iterator[FieldTerm]:
    for part in sorted(filter(None, _split_terms(text))):
        match = _FIELD_OPERATOR.search(part)
        if match is None:
            raise SelectorSyntaxError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, value = part[: match.start()], _unescape(part[match.end() :])
        if field or value:  # kube-apiserver drops "=" and "!=" alone
            yield FieldTerm(field, match.group() != "!=", value)


def _vocabulary(rt: ResourceType) -> selectable.Vocabulary:
    if rt.custom is not None or rt.selectable_fields:
        return selectable.custom_vocabulary(rt.selectable_fields, namespaced=rt.namespaced)
    return selectable.VOCABULARIES.get((rt.group, rt.version, rt.kind), selectable.DEFAULT)


def parse_field_selector(text: str, rt: ResourceType) -> FieldSelector:
    """Return the selector of a ``fieldSelector`` parameter, its fields named as in the stored form.

    StatusError 400 if it is malformed, or names a field that this kind does not offer.
    """
    vocabulary = _vocabulary(rt)
    try:
        terms = list(_field_terms(text, vocabulary))
    except SelectorSyntaxError as error:
        raise status.bad_request(str(error)) from None
    for term in terms:
        if term.field not in vocabulary.names:
            raise status.bad_request(vocabulary.refusal.replace("%s", term.field))
    return FieldSelector(term._replace(field=vocabulary.names[term.field]) for term in terms)


def check_field_syntax(text: str) -> None:
    """Check that a field selector parses, whatever its fields. StatusError 400."""
    try:
        for _ in _field_terms(text, selectable.DEFAULT):
            pass
    except SelectorSyntaxError as error:
        raise status.bad_request(str(error)) from None


def field_terms(text: str) -> list[FieldTerm] | None:
    """Return a selector's terms, None if it is malformed. For authorization, which runs before the kind is known."""
    try:
        return list(_field_terms(text, selectable.DEFAULT))
    except SelectorSyntaxError:
        return None


def value_required(text: str, field: str) -> str:
    """Return the one value of a field that a selector accepts, "" if it names none or is malformed.

    For authorization, which runs before the kind is known.
    """
    for term in field_terms(text) or ():
        if term.field == field and term.equal:
            return term.value
    return ""


# -- describing objects -----------------------------------------------------------------------------------------------

_NOTHING: Final[Mapping[str, str]] = {}


Fields = Mapping[str, tuple[tuple[str, selectable.Getter], ...]]
"""Storage resource -> (name, getter) of its selectable fields."""
Description = tuple[Mapping[str, str], Mapping[str, str]]
"""(labels, fields) of an object."""


def describer(table: Fields) -> Callable[[str, Mapping[str, Any]], Description]:
    """Return ``describe`` for the resources of a table, which may change later."""

    def describe_by_table(resource: str, obj: Mapping[str, Any]) -> Description:
        metadata: Mapping[str, Any] = obj.get("metadata") or _NOTHING
        fields: dict[str, str] = {
            selectable.NAME: metadata.get("name", ""),
            selectable.NAMESPACE: metadata.get("namespace", ""),
        }
        for name, get in table.get(resource, ()):
            fields[name] = get(obj)
        return metadata.get("labels") or _NOTHING, fields

    return describe_by_table


_describe_builtin: Final = describer(selectable.SELECTABLE)


def describe(resource: str, obj: Mapping[str, Any], extra: Iterable[tuple[str, selectable.Getter]] = ()) -> Description:
    """Return (labels, fields) of a stored object: the input of all selectors.

    ``extra`` are the selectable fields of a custom resource, see ``custom_fields``. The labels are the object's own.
    """
    labels, fields = _describe_builtin(resource, obj)
    return labels, {**fields, **{name: get(obj) for name, get in extra}} if extra else fields


def plain(resource: str) -> bool:
    """Return True if the resource has no selectable fields but name and namespace."""
    return resource not in selectable.SELECTABLE


def custom_fields(selectable_fields: Iterable[str]) -> tuple[tuple[str, selectable.Getter], ...]:
    """Return the getters of a custom resource's selectable fields, for ``describe``."""
    return tuple(selectable.dotted(name) for name in selectable_fields)

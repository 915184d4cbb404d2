"""CEL's named formats: ``format.dns1123Label().validate(text)``, ``format.named("uri")``.

Library kubernetes.format, since v1.31. Names are checked by the rules of object names, with the same messages.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kubechronicle.api.cel.declarations import Library
from kubechronicle.api.cel.library import costs
from kubechronicle.api.cel.library.urls import UrlError, check
from kubechronicle.api.cel.types import STRING, CelType, Function, Overload, list_of, object_type, optional_of
from kubechronicle.api.cel.values import NONE, OptionalValue
from kubechronicle.api.values import names

FORMAT: Final = object_type("kubernetes.NamedFormat", {})


@dataclass(frozen=True, slots=True)
class Format:
    """A named format. Formats are equal if they have the same name.

    ``problems``: returns the problems of a text.
    ``pattern_size``: the length of a pattern with the same cost.
    """

    cel_type: ClassVar[CelType] = FORMAT

    name: str
    problems: Callable[[str], list[str]]
    pattern_size: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


_UUID: Final = re.compile("[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE: Final = re.compile("([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DATE_TIME_SIZE: Final = 71
_UUID_SIZE: Final = 70
_BASE64_SIZE: Final = 84
_URL_SIZE: Final = 1103


def _uri(text: str) -> list[str]:
    try:
        check(text)
    except UrlError as problem:
        return [str(problem)]
    return []


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] + leap


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    found = _TIME.fullmatch(parts[1]) if len(parts) > 1 and _is_date(parts[0]) else None
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _must(holds: Callable[[str], object], problem: str) -> Callable[[str], list[str]]:
    return lambda text: [] if holds(text) else [problem]


def _name(rule: names.NameCheck, prefix: bool = False) -> Callable[[str], list[str]]:
    return functools.partial(_checked, rule, prefix)


def _checked(rule: names.NameCheck, prefix: bool, text: str) -> list[str]:
    return rule(text, prefix)


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", _name(names.label_name), 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _name(names.subdomain_name), 60),
    "dns1035Label": Format("DNS1035Label", _name(names.label_1035_name), 30),
    "qualifiedName": Format("QualifiedName", names.qualified_name, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _name(names.label_name, prefix=True), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _name(names.subdomain_name, prefix=True), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _name(names.label_1035_name, prefix=True), 30),
    "labelValue": Format("LabelValue", names.label_value, 40),
    "uri": Format("URI", _uri, _URL_SIZE),
    "uuid": Format("uuid", _must(_UUID.fullmatch, "does not match the UUID format"), _UUID_SIZE),
    "byte": Format("byte", _must(_BASE64.fullmatch, "invalid base64"), _BASE64_SIZE),
    "date": Format("date", _must(_is_date, "invalid date"), _DATE_TIME_SIZE),
    "datetime": Format("datetime", _must(_is_date_time, "invalid datetime"), _DATE_TIME_SIZE),
}
"""The formats by their names in expressions."""


def validate(self: Format, text: str) -> OptionalValue:
    """Return an optional of the text's problems, without a value if there are none."""
    problems = self.problems(text)
    return OptionalValue(problems) if problems else NONE


def named(name: str) -> OptionalValue:
    """Return an optional of the format with that name, without a value if there is none."""
    found = FORMATS.get(name)
    return NONE if found is None else OptionalValue(found)


def _cost(args: Sequence[Any], result: Any) -> int:
    return costs.pattern_cost(len(args[1]), args[0].pattern_size)


def _constant(found: Format) -> Callable[[], Format]:
    return lambda: found


_PROBLEMS: Final = optional_of(list_of(STRING))

LIBRARY: Final = Library(
    "kubernetes.format",
    0,
    (
        Function("validate", (Overload("format-validate", (FORMAT, STRING), _PROBLEMS, validate, True, _cost),)),
        Function("format.named", (Overload("format-named", (STRING,), optional_of(FORMAT), named),)),
        *(
            Function(f"format.{name}", (Overload(f"format.{name}", (), FORMAT, _constant(found)),))
            for name, found in FORMATS.items()
        ),
    ),
)

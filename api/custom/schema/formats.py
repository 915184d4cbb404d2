"""The formats of strings that kube-apiserver v1.36 checks in schemas (kube-openapi ``pkg/validation/strfmt``).

A format's name is compared without dashes. Go's ``\\d``, ``\\s`` and ``$`` are ASCII digits, ASCII blanks, and the end.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from typing import Final

from kubechronicle.api.cel.library.urls import UrlError
from kubechronicle.api.cel.library.urls import check as check_url
from kubechronicle.api.custom.schema.mail_addresses import is_mail_address
from kubechronicle.api.values import durations

_LONE_HOST: Final = re.compile("[lx](?:-?[lx]{0,62})?")
_HOST_LABEL: Final = re.compile("[lx](?:[lx-]{0,61}[lx])?")
_TOP_LABEL: Final = re.compile("l{2,63}")
_UUID: Final = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_COLOR: Final = r"\s*(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*"
_CREDIT_CARD: Final = re.compile(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_MONTH_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LEADING_ZEROS: Final = re.compile("(?<![0-9A-Fa-f])0+(?=[0-9A-Fa-f])")
_SHORT_NAME: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_MAC_DIGITS: Final = (12, 16, 40)
_HEX: Final = re.compile("[0-9a-fA-F]+")


def _whole(pattern: str, flags: re.RegexFlag = re.NOFLAG) -> Callable[[str], object]:
    return re.compile(pattern, flags | re.ASCII).fullmatch


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1]:
        return False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return leap or (month, day) != (2, 29)


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    found = _TIME.fullmatch(parts[1])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _is_duration(text: str) -> bool:
    return durations.parse_format(text) is not None


def _host_class(character: str) -> str:
    """Return ``l`` for a letter, ``x`` for a digit or symbol, a dash, or ``!`` for all other characters."""
    if character.isascii() and (character.isalnum() or character == "-"):
        return "l" if character.isalpha() else character if character == "-" else "x"
    category = unicodedata.category(character)[0]
    return "l" if category == "L" else "x" if category == "S" else "!"


def _is_hostname(text: str) -> bool:
    if len(text) > 255 or len(text.encode()) > 255:
        return False
    *labels, last = text.split(".")
    if not all(len(label.encode()) <= 63 for label in (*labels, last)):
        return False
    if not labels:
        return _LONE_HOST.fullmatch("".join(map(_host_class, last))) is not None
    shapes = ("".join(map(_host_class, label)) for label in labels)
    return all(map(_HOST_LABEL.fullmatch, shapes)) and _TOP_LABEL.fullmatch("".join(map(_host_class, last))) is not None


def _address(text: str, *, sloppy: bool) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address. ``sloppy``: numbers may have any leading zeros."""
    if sloppy:
        text = _LEADING_ZEROS.sub("", text)
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if "%" in text else address


def _is_ipv4(text: str) -> bool:
    return "." in text and _address(text, sloppy=True) is not None


def _is_ipv6(text: str) -> bool:
    return ":" in text and _address(text, sloppy=False) is not None


def _is_cidr(text: str) -> bool:
    head, slash, size = text.partition("/")
    address = _address(head, sloppy=True)
    if address is None or not slash or not re.fullmatch("[0-9]+", size):
        return False
    digits = size.lstrip("0") or "0"
    return len(digits) <= 3 and int(digits) <= address.max_prefixlen


def _is_mac(text: str) -> bool:
    """Return whether the text is a MAC-48, EUI-64 or 20-octet InfiniBand address (net.ParseMAC)."""
    for mark, digits in ((":", 2), ("-", 2), (".", 4)):
        if text[digits : digits + 1] == mark:
            parts = text.split(mark)
            return len(parts) * digits in _MAC_DIGITS and all(
                len(part) == digits and _HEX.fullmatch(part) for part in parts
            )
    return len(text) in _MAC_DIGITS and _HEX.fullmatch(text) is not None


def _is_uri(text: str) -> bool:
    try:
        check_url(text)
    except UrlError:
        return False
    return True


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if not re.fullmatch("[0-9]{9}[0-9X]", digits):
        return False
    numbers = [10 if digit == "X" else int(digit) for digit in digits]
    return sum(weight * number for weight, number in enumerate(numbers, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[\t\n\f\r -]+", "", text)
    if not re.fullmatch("[0-9]{13}", digits):
        return False
    total = sum((3 if position % 2 else 1) * int(digit) for position, digit in enumerate(digits[:12]))
    return int(digits[12]) == (10 - total % 10) % 10


def _is_credit_card(text: str) -> bool:
    digits = re.sub("[^0-9]+", "", text)
    if not _CREDIT_CARD.fullmatch(digits):
        return False
    total = 0
    for position, digit in enumerate(reversed(digits)):
        number = int(digit) * (1 + position % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


def _is_ssn(text: str) -> bool:
    return len(text) == 11 and re.fullmatch(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}", text) is not None


def _is_short_name(text: str) -> bool:
    return len(text) <= 63 and re.fullmatch(_SHORT_NAME, text) is not None


def _is_long_name(text: str) -> bool:
    return len(text) <= 253 and all(re.fullmatch(_SHORT_NAME, part) for part in text.split("."))


def _is_anything(text: str) -> bool:
    return True


FORMATS: Final[dict[str, Callable[[str], object]]] = {
    "bsonobjectid": _whole("[0-9a-fA-F]{24}"),
    "byte": _whole(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": is_mail_address,
    "hexcolor": _whole("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": _is_long_name,
    "k8sshortname": _is_short_name,
    "mac": _is_mac,
    "password": _is_anything,
    "rgbcolor": _whole(rf"rgb\({_COLOR},{_COLOR},{_COLOR}\)".replace(r"\s", r"[\t\n\f\r ]")),
    "ssn": _is_ssn,
    "uri": _is_uri,
    "uuid": _whole(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _whole(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _whole(_UUID % ("4", "[89ab]")),
    "uuid5": _whole(_UUID % ("5", "[89ab]")),
}
"""Whether a string has a format, by the format's name without dashes."""

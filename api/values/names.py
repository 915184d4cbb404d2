"""Syntax of names, labels, annotation keys and finalizers, with the texts of apimachinery's ``util/validation``.

Each check returns the list of problems, empty if the text is well-formed. Not here: the field of the text
(meta/metadata.py). The table at the end names the rules; each kind's strategy picks one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

NameCheck = Callable[[str, bool], list[str]]
"""``check(name, prefix)``: with ``prefix`` the name is a generateName, which may end in a dash."""

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_MESSAGE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_SUBDOMAIN: Final = _LABEL + "(\\." + _LABEL + ")*"
_SUBDOMAIN_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_UNDERSCORE_LABEL: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_UNDERSCORES: Final = f"{_UNDERSCORE_LABEL}(\\.{_UNDERSCORE_LABEL})*"
_UNDERSCORES_MESSAGE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character"
)
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035_MESSAGE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_QUALIFIED_MESSAGE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE: Final = "(" + _QUALIFIED + ")?"
_LABEL_VALUE_MESSAGE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character"
)
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"

_label_match: Final = re.compile(_LABEL + r"\Z").match
_subdomain_match: Final = re.compile(_SUBDOMAIN + r"\Z").match
_underscores_match: Final = re.compile(_UNDERSCORES + r"\Z").match
_label_1035_match: Final = re.compile(_LABEL_1035 + r"\Z").match
_qualified_match: Final = re.compile(_QUALIFIED + r"\Z").match
_key_match: Final = re.compile(f"({_SUBDOMAIN}/)?{_QUALIFIED}" + r"\Z").match
_label_value_match: Final = re.compile(_LABEL_VALUE + r"\Z").match
_config_key_match: Final = re.compile(_CONFIG_KEY + r"\Z").match


def max_length(limit: int, unit: str = "characters") -> str:
    """Return the message for a text that is too long. The limit counts bytes, also if the message says characters."""
    return f"must be no more than {limit} {unit}"


def regex_message(message: str, pattern: str, *examples: str) -> str:
    """Return apimachinery's RegexError text."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    listed = "".join(f"{' or ' if index else ''}'{text}', " for index, text in enumerate(examples))
    return f"{message} (e.g. {listed}regex used for validation is '{pattern}')"


def dns_label(text: str) -> list[str]:
    """RFC 1123 label: ``a-b``."""
    if len(text) <= LABEL_MAX and _label_match(text):
        return []
    problems = [max_length(LABEL_MAX)] if len(text.encode()) > LABEL_MAX else []
    if not _label_match(text):
        if _subdomain_match(text):
            problems.append("must not contain dots")
        else:
            problems.append(regex_message(_LABEL_MESSAGE, _LABEL, "my-name", "123-abc"))
    return problems


def _subdomain_ok(text: str) -> bool:
    return len(text) <= SUBDOMAIN_MAX and _subdomain_match(text) is not None


def dns_subdomain(text: str) -> list[str]:
    """RFC 1123 subdomain: ``example.com``."""
    if _subdomain_ok(text):
        return []
    problems = [max_length(SUBDOMAIN_MAX)] if len(text.encode()) > SUBDOMAIN_MAX else []
    if not _subdomain_match(text):
        problems.append(regex_message(_SUBDOMAIN_MESSAGE, _SUBDOMAIN, "example.com"))
    return problems


_CASELESS_MESSAGE: Final = (
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an "
    "alphanumeric character"
)
_caseless_match: Final = re.compile(_SUBDOMAIN + r"\Z", re.IGNORECASE | re.ASCII).match


def dns_subdomain_of_any_case(text: str) -> list[str]:
    """RFC 1123 subdomain, with capitals too."""
    problems = [max_length(SUBDOMAIN_MAX)] if len(text.encode()) > SUBDOMAIN_MAX else []
    if not _caseless_match(text):
        problems.append(regex_message(_CASELESS_MESSAGE, _SUBDOMAIN, "Example.com"))
    return problems


_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_IDENTIFIER_MESSAGE: Final = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'"
)
_identifier_match: Final = re.compile(_IDENTIFIER + r"\Z").match


def c_identifier(text: str) -> list[str]:
    """A name as C has it: ``my_name``."""
    if _identifier_match(text):
        return []
    return [regex_message(_IDENTIFIER_MESSAGE, _IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def dns_subdomain_with_underscores(text: str) -> list[str]:
    """A name DNS resolvers search in, where underscores are in use."""
    if _underscores_match(text) and len(text) <= SUBDOMAIN_MAX:
        return []
    problems = [max_length(SUBDOMAIN_MAX)] if len(text.encode()) > SUBDOMAIN_MAX else []
    if not _underscores_match(text):
        problems.append(regex_message(_UNDERSCORES_MESSAGE, _UNDERSCORES, "example.com"))
    return problems


_WILDCARD: Final = r"\*\." + _SUBDOMAIN
_WILDCARD_MESSAGE: Final = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character"
)
_wildcard_match: Final = re.compile(_WILDCARD + r"\Z").match


def wildcard_subdomain(text: str) -> list[str]:
    """A DNS name of which the first part may be anything: ``*.example.com``."""
    problems = [max_length(SUBDOMAIN_MAX)] if len(text.encode()) > SUBDOMAIN_MAX else []
    if not _wildcard_match(text):
        problems.append(regex_message(_WILDCARD_MESSAGE, _WILDCARD, "*.example.com"))
    return problems


def dns_1035_label(text: str) -> list[str]:
    """RFC 1035 label: starts with a letter."""
    problems = [max_length(LABEL_MAX)] if len(text.encode()) > LABEL_MAX else []
    if not _label_1035_match(text):
        problems.append(regex_message(_LABEL_1035_MESSAGE, _LABEL_1035, "my-name", "abc-123"))
    return problems


def qualified_name(text: str) -> list[str]:
    """A label or annotation key: ``name`` or ``example.com/name``."""
    if len(text) <= LABEL_MAX and _key_match(text):
        return []
    parts = text.split("/")
    problems: list[str] = []
    if len(parts) == 1:
        name = parts[0]
    elif len(parts) == 2:
        prefix, name = parts
        if not prefix:
            problems.append("prefix part must be non-empty")
        else:
            too_long, in_bytes = max_length(SUBDOMAIN_MAX), max_length(SUBDOMAIN_MAX, "bytes")
            found = [in_bytes if problem == too_long else problem for problem in dns_subdomain(prefix)]
            problems += [f"prefix part {problem}" for problem in found]
    else:
        what = regex_message(_QUALIFIED_MESSAGE, _QUALIFIED, "MyName", "my.name", "123-abc")
        return [f"a valid label key {what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > LABEL_MAX:
        problems.append("name part " + max_length(LABEL_MAX, "bytes"))
    if not _qualified_match(name):
        problems.append("name part " + regex_message(_QUALIFIED_MESSAGE, _QUALIFIED, "MyName", "my.name", "123-abc"))
    return problems


def label_value(text: str) -> list[str]:
    """A label's value."""
    if len(text) <= LABEL_MAX and _label_value_match(text):
        return []
    problems = [max_length(LABEL_MAX, "bytes")] if len(text.encode()) > LABEL_MAX else []
    if not _label_value_match(text):
        problems.append(regex_message(_LABEL_VALUE_MESSAGE, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return problems


def config_key(text: str) -> list[str]:
    """A key of a ConfigMap or Secret: it must be usable as a file name."""
    if _config_key_match(text) and len(text) <= SUBDOMAIN_MAX and text[0] != ".":
        return []
    problems = [max_length(SUBDOMAIN_MAX)] if len(text.encode()) > SUBDOMAIN_MAX else []
    if not _config_key_match(text):
        message = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        problems.append(regex_message(message, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if text == ".":
        problems.append("must not be '.'")
    elif text == "..":
        problems.append("must not be '..'")
    elif text.startswith(".."):
        problems.append("must not start with '..'")
    return problems


_ENV_VAR_NAME: Final = re.compile(r"[ -<>-~]+\Z").match


def env_var_name(text: str) -> list[str]:
    """The name of an environment variable: any printable ASCII but '='."""
    if _ENV_VAR_NAME(text):
        return []
    if not text:
        return ["environment variable name must not be empty"]
    message = "a valid environment variable name must consist only of printable ASCII characters other than '='"
    return [message]


def path_segment(text: str, prefix: bool = False) -> list[str]:
    """A name that can stand in a URL path, and nothing more is asked of it."""
    problems: list[str] = []
    if not prefix and text in (".", ".."):
        return [f"may not be '{text}'"]
    problems += [f"may not contain '{character}'" for character in "/%" if character in text]
    return problems


_PORT_NAME: Final = re.compile(r"[-a-z0-9]+\Z")
_SIMPLE_PORT_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,14}\Z").match  # most are "http" and the like


def port_name(text: str) -> list[str]:
    """The name of a port (IANA service name)."""
    if _SIMPLE_PORT_NAME(text):
        return []
    problems: list[str] = []
    if len(text) > 15:
        problems.append("must be no more than 15 characters")
    if not _PORT_NAME.match(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return problems


def port_number(value: int) -> list[str]:
    """A port that can be listened on."""
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def _masked(name: str, prefix: bool) -> str:
    # A generateName usually ends in a dash, which no name may: the dash is read as a letter.
    return f"{name[:-1]}a" if prefix and len(name) > 1 and name.endswith("-") else name


def subdomain_name(name: str, prefix: bool) -> list[str]:
    """Names of most kinds. They are not remembered: most are seen once, when their object is made."""
    if not prefix and len(name) <= SUBDOMAIN_MAX and _subdomain_match(name):
        return []
    return dns_subdomain(_masked(name, prefix))


def long_name(name: str, prefix: bool) -> list[str]:
    """Names of kinds whose generateName is not checked."""
    return [] if prefix else subdomain_name(name, prefix)


def label_name(name: str, prefix: bool) -> list[str]:
    """Names that become one part of a DNS name."""
    return dns_label(_masked(name, prefix))


def label_1035_name(name: str, prefix: bool) -> list[str]:
    """Names of Services."""
    return dns_1035_label(_masked(name, prefix))


def segment_name(name: str, prefix: bool) -> list[str]:
    """Names that may hold colons and capitals."""
    return path_segment(name, prefix)


def rbac_name(name: str, prefix: bool) -> list[str]:
    """Names of RBAC's kinds. A generateName is checked as a whole name (ValidateRBACName)."""
    return path_segment(name)


def any_name(name: str, prefix: bool) -> list[str]:
    """Names nothing is asked of."""
    return []


NAME_CHECKS: Final[dict[str, NameCheck]] = {
    "subdomain": subdomain_name,
    "long": long_name,
    "label": label_name,
    "label1035": label_1035_name,
    "segment": segment_name,
    "rbac": rbac_name,
    "any": any_name,
}
"""Rules for names by the word the strategy table uses."""


# -- images ------------------------------------------------------------------------------------------------------------
#
# Names of container images, as the distribution project's reference parser reads them.
#
# Example: ``registry.example.com:5000/team/app:v1@sha256:…``. A name without a registry is one of docker.io.


MAX_PATH: Final = 255
"""The longest path of an image within its registry, in characters."""

DEFAULT_TAG: Final = "latest"

_COMPONENT: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DOMAIN_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REFERENCE: Final = re.compile(
    rf"(?:(?:{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?"
    rf"(?P<path>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<algorithm>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*):(?P<digest>[0-9a-fA-F]{32,}))?\Z"
)
_IMAGE_IDENTIFIER: Final = re.compile(r"[a-f0-9]{64}\Z")
_DIGEST_LENGTHS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_HEXADECIMAL: Final = re.compile(r"[a-f0-9]+\Z")


def _normalized(image: str) -> str:
    """Return the image's name with its registry."""
    first, slash, rest = image.partition("/")
    domain, remote = "docker.io", image
    if slash and first == "index.docker.io":
        remote = rest
    elif slash and (first == "localhost" or "." in first or ":" in first or first != first.lower()):
        domain, remote = first, rest
    if domain == "docker.io" and "/" not in remote:
        remote = f"library/{remote}"
    return f"{domain}/{remote}"


def tag_of(image: str) -> str:
    """Return the tag of an image: ``latest`` without tag and digest, "" with a digest alone or if it is no name."""
    if _IMAGE_IDENTIFIER.match(image):
        return ""
    found = _REFERENCE.match(_normalized(image))
    if found is None or len(found["path"]) > MAX_PATH:
        return ""
    digest = found["digest"]
    if digest is None:
        return found["tag"] or DEFAULT_TAG
    if len(digest) != _DIGEST_LENGTHS.get(found["algorithm"]) or not _HEXADECIMAL.match(digest):
        return ""
    return found["tag"] or ""

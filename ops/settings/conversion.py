"""Conversion of settings: a cattrs hook for each type, from the text of a flag or the value in a config file.

A hook returns the value, or raises a ValueError. Its message completes "--flag: …" and names the allowed values. The
text forms are kube-apiserver's: Go durations (1m30s), CIDRs, comma-separated lists.
"""

from __future__ import annotations

import csv
import ipaddress
import re
import types as python_types
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from kubechronicle.api.values.objects import FALSE_WORDS, TRUE_WORDS
from kubechronicle.ops.settings import types

if TYPE_CHECKING:
    import cattrs

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE)
_OVERRIDDEN = re.compile(r"[a-z0-9.-]*/[a-z0-9-]+")
_OVERRIDES = re.compile(rf",(?=\s*{_OVERRIDDEN.pattern}#)")
MOST_WORKERS = 64
LONGEST_EVENT_TTL = 290 * 365 * 86400.0  # a Go duration holds little more
SHORTEST_IPV6_PREFIX = 64  # of a range of cluster IPs (KEP-1880)
FEWEST_SERVICE_ADDRESSES = 8  # of a range of cluster IPs; kube-apiserver's
SCHEMES = ("postgres", "postgresql")


@cache
def converter(*, detailed: bool = False) -> cattrs.Converter:
    """Return the converter for one setting or a whole Settings record.

    ``detailed``: errors carry the names of the fields. For a Settings record this takes 5 ms more.
    """
    import cattrs  # 30 ms, which commands that only print help must not spend

    made = cattrs.Converter(detailed_validation=detailed)
    for target, hook in HOOKS.items():
        made.register_structure_hook(target, partial(_without_type, hook))
    made.register_structure_hook_func(_is_address, _address)
    made.register_structure_hook_func(partial(_is_of, Literal), _allowed)
    made.register_structure_hook_factory(partial(_is_of, tuple), partial(_list_hook, made))
    return made


def _is_of(origin: Any, hint: Any) -> bool:
    return get_origin(hint) is origin


def _without_type(hook: Callable[[Any], Any], value: Any, _: object) -> Any:
    return hook(value)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a single value, got {value!r}")
    return str(value).strip()


def _boolean_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _text(value)


def _items(value: Any) -> list[str]:
    """Return the items of a comma-separated text, or of a list in a config file, without empty ones."""
    parts = value if isinstance(value, list) else _text(value).split(",")
    return [part.strip() for part in map(_text, parts) if part.strip()]


def _list_hook(made: cattrs.Converter, hint: Any) -> Callable[[Any, Any], tuple[Any, ...]]:
    item_type = get_args(hint)[0]
    return lambda value, _: tuple(made.structure(item, item_type) for item in _items(value))


def _allowed(value: Any, literal: Any) -> str:
    text, allowed = _text(value), get_args(literal)
    if text not in allowed:
        choices = " or ".join(allowed) if len(allowed) == 2 else f"one of {', '.join(allowed)}"
        raise ValueError(f"must be {choices}, got {text!r}")
    return text


def _integer(value: Any, *, least: int, most: int, description: str) -> int:
    text = _text(value)
    if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
        raise ValueError(f"must be {description}, got {text!r}")
    return int(text)


_port = partial(_integer, least=0, most=65535, description="a port between 0 (any free one) and 65535")
_count = partial(_integer, least=0, most=2**31 - 1, description="a whole number, 0 or more")
_workers = partial(_integer, least=1, most=MOST_WORKERS, description=f"a whole number from 1 to {MOST_WORKERS}")


def _rate(value: Any) -> float:
    text = _text(value)
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        raise ValueError(f"must be a number, 0 or more, got {text!r}")
    return float(text)


def seconds(value: Any) -> float:
    text = _text(value)
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be a duration such as 90s, 1m30s or 2h, got {text!r}")
    return sum(float(number) * UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def _event_ttl(value: Any) -> float:
    length = seconds(value)
    if length > LONGEST_EVENT_TTL:
        raise ValueError("must be less than 290 years; 0s keeps Events for ever")
    return length


def _is_address(hint: Any) -> bool:
    """Recognize IPAddress and ``IPAddress | None``, which is a union of three types."""
    if get_origin(hint) not in (Union, python_types.UnionType):
        return False
    return {*get_args(hint)} - {type(None)} == {*get_args(types.IPAddress)}


def _address(value: Any, hint: Any) -> types.IPAddress | None:
    if value is None and type(None) in get_args(hint):
        return None
    try:
        return ipaddress.ip_address(_text(value))
    except ValueError:
        raise ValueError(f"must be an IP address, got {value!r}") from None


def _network(text: str) -> types.IPNetwork:
    """Return a range of cluster IPs with as many addresses as kube-apiserver requires."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be an IP range such as 10.96.0.0/16, got {text!r} ({error})") from None
    if network.num_addresses < FEWEST_SERVICE_ADDRESSES:
        raise ValueError(f"must hold at least {FEWEST_SERVICE_ADDRESSES} addresses, got {text!r}")
    if network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX:
        raise ValueError(f"must not be larger than a /{SHORTEST_IPV6_PREFIX}, got {text!r}")
    return network


def _service_ranges(value: Any) -> types.ServiceRanges:
    parts = value if isinstance(value, list) else _text(value).split(",")
    networks = tuple(_network(_text(part)) for part in parts)
    if len(networks) > 2:
        raise ValueError(f"must be one range or two, got {len(networks)}")
    if len(networks) == 2 and networks[0].version == networks[1].version:
        raise ValueError("two ranges must be one of IPv4 and one of IPv6")
    return types.ServiceRanges(networks)


def _port_range(value: Any) -> types.PortRange:
    """Return ``first-last``; or ``first+more`` or one port, which apimachinery's PortRange allows too."""
    text = _text(value)
    match = re.fullmatch(r"(\d{1,5})(?:([-+])(\d{1,5}))?", text)
    if match is None:
        raise ValueError(f"must be a range of ports such as 30000-32767, got {text!r}")
    first = int(match[1])
    last = {"-": int(match[3] or 0), "+": first + int(match[3] or 0)}.get(match[2] or "", first)
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"must be a range of ports between 1 and 65535, got {text!r}")
    return types.PortRange(first, last)


def _file(value: Any) -> Path:
    path = Path(_text(value)).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {str(value)!r}")
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"cannot read {str(value)!r}: {error.strerror}") from None
    return path.absolute()


def _directory(value: Any) -> Path:
    path = Path(_text(value)).expanduser()
    try:
        usable = path.is_dir() or not path.exists()
    except OSError as error:
        raise ValueError(f"{str(value)!r}: {error.strerror}") from None
    if not usable:
        raise ValueError(f"{str(value)!r} is not a directory")
    return path.absolute()


def _database_url(value: Any) -> str:
    text = _text(value)
    # The message shows nothing of the text, which may hold a password.
    if text.partition("://")[0].lower() not in SCHEMES:
        raise ValueError("must begin with postgresql://, such as postgresql://user:password@host:5432/database")
    return text


def _database_overrides(value: Any) -> types.DatabaseOverrides:
    """Return GROUP/RESOURCE#URL, comma-separated or from a list of texts. URLs of several hosts have commas, too."""
    overrides: dict[str, str] = {}
    for text in map(_text, value if isinstance(value, list) else [value]):
        for part in _OVERRIDES.split(text):
            resource, sign, url = part.strip().partition("#")
            if not sign or not _OVERRIDDEN.fullmatch(resource):
                # The message shows nothing after the sign, which may hold a password.
                raise ValueError(f"must be GROUP/RESOURCE#URL, such as /events#postgresql://…, got {resource!r}")
            if ";" in url:
                raise ValueError(f"{resource}: separate the hosts of one database by commas within its URL, not by ;")
            if overrides.setdefault(resource, _database_url(url)) != url:
                raise ValueError(f"{resource}: two databases are given")
    return types.DatabaseOverrides(tuple(overrides.items()))


def _hostname(value: Any) -> str:
    text = _text(value)
    if len(text) > 253 or not _HOSTNAME.fullmatch(text):
        raise ValueError(f"must be a host name, got {text!r}")
    return text


def _controllers(value: Any) -> types.Controllers:
    return types.Controllers(tuple(_items(value)))


def _boolean(value: Any) -> bool:
    """Accept the spellings of Go's ParseBool."""
    text = _boolean_text(value)
    if text not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"must be true or false, got {text!r}")
    return text in TRUE_WORDS


def _pairs(value: Any) -> types.Pairs:
    """Return pairs from a comma-separated text; or from a list or mapping in a config file."""
    if isinstance(value, dict):
        return types.Pairs(_pairs_of_mapping(value))
    parts = value if isinstance(value, list) else _text(value).split(",")
    from kubechronicle.api.registry import runtime_config

    return types.Pairs(tuple(runtime_config.parse(",".join(map(_text, parts))).items()))


def _separate_pairs(value: Any) -> types.SeparatePairs:
    """Return pairs from one text or a list of texts; or from a mapping in a config file."""
    if isinstance(value, dict):
        return types.SeparatePairs(_pairs_of_mapping(value))
    pairs: dict[str, str] = {}
    for part in map(_text, value if isinstance(value, list) else [value]):
        key, equals, text = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"must be KEY=VALUE, got {part!r}")
        pairs[key.strip()] = text.strip()
    return types.SeparatePairs(tuple(pairs.items()))


def _pairs_of_mapping(value: dict[Any, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((_text(key), _boolean_text(one)) for key, one in value.items())


def _named_files(value: Any) -> types.NamedFiles:
    """Return CERTIFICATE,KEY[:NAMES] from one text or a list of texts."""
    files = []
    for part in map(_text, value if isinstance(value, list) else [value]):
        paths, _, names = part.partition(":")
        both = paths.split(",")
        if len(both) != 2 or not all(both):
            raise ValueError(f"must be CERTIFICATE,KEY or CERTIFICATE,KEY:NAMES, got {part!r}")
        files.append((_file(both[0]), _file(both[1]), tuple(name.strip() for name in names.split(",") if name.strip())))
    return types.NamedFiles(tuple(files))


def label_values(value: Any) -> types.LabelValues:
    """Return METRIC,LABEL=VALUES from texts, each with one pair, or quoted pairs as in CSV; or from a mapping."""
    if isinstance(value, dict):
        pairs = [f"{key}={_text(text)}" for key, text in value.items()]
    else:
        texts = [_text(part) for part in (value if isinstance(value, list) else [value])]
        pairs = [pair for text in texts for pair in (next(csv.reader([text])) if text.count("=") > 1 else [text])]
    allowed = []
    for pair in pairs:
        key, equals, listed = pair.strip().strip('"').partition("=")
        metric, comma, label = key.partition(",")
        if not (equals and comma and metric.strip() and label.strip()):
            raise ValueError(f"must be METRIC,LABEL=VALUES, got {pair!r}")
        values = tuple(each.strip() for each in listed.strip("'").split(",") if each.strip())
        allowed.append((metric.strip(), label.strip(), values))
    return types.LabelValues(tuple(allowed))


HOOKS: dict[Any, Callable[[Any], Any]] = {
    bool: _boolean,
    types.Port: _port,
    types.Count: _count,
    types.WorkerCount: _workers,
    types.Rate: _rate,
    types.Seconds: seconds,
    types.EventTTL: _event_ttl,
    types.Text: _text,
    types.Name: _text,
    types.Hostname: _hostname,
    types.DatabaseURL: _database_url,
    types.DatabaseOverrides: _database_overrides,
    types.ReadableFile: _file,
    types.Directory: _directory,
    types.Controllers: _controllers,
    types.ServiceRanges: _service_ranges,
    types.PortRange: _port_range,
    types.Pairs: _pairs,
    types.SeparatePairs: _separate_pairs,
    types.NamedFiles: _named_files,
    types.LabelValues: label_values,
}

"""What the values of settings may be: one converter per type, from the text of a flag or the value of a config file.

Each converter either answers the value or raises ValueError whose message completes "--flag: …". The text forms are
kube-apiserver's: Go durations (1m30s), CIDRs, comma-separated lists.
"""

from __future__ import annotations

import ipaddress
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NewType

if TYPE_CHECKING:
    import cattrs

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Port = NewType("Port", int)
Count = NewType("Count", int)
Seconds = NewType("Seconds", float)
DatabaseURL = NewType("DatabaseURL", str)
Text = NewType("Text", str)
Hostname = NewType("Hostname", str)

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_HOSTNAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.IGNORECASE)
SHORTEST_IPV6_PREFIX = 64  # of a range of cluster IPs (KEP-1880)
TRUE_WORDS = frozenset({"1", "t", "T", "TRUE", "true", "True"})
FALSE_WORDS = frozenset({"0", "f", "F", "FALSE", "false", "False"})
SCHEMES = ("postgres", "postgresql")


@dataclass(frozen=True, slots=True)
class Controllers:
    """Which control loops run: kube-controller-manager's --controllers."""

    patterns: tuple[str, ...]

    def chosen_from(self, known: Sequence[str], aliases: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """The loops to run: the first of ``NAME`` and ``-NAME`` in the list decides, else whether ``*`` is in it.

        ``aliases``: further names, and what they stand for. ValueError: the list names a loop that is not known.
        """
        wanted: dict[str, bool] = {}
        for pattern in self.patterns:
            name = pattern.removeprefix("-")
            if pattern != "*" and aliases.get(name, name) not in known:
                raise ValueError(f"there is no control loop {name!r}, only {', '.join(known)}")
            wanted.setdefault(aliases.get(name, name), name == pattern)
        return [name for name in known if wanted.get(name, "*" in wanted)]


@dataclass(frozen=True, slots=True)
class ServiceRanges:
    """Ranges of cluster IPs: one, or one of each family, the primary first."""

    networks: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports from the first to the last."""

    ports: range


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs KEY=VALUE as kube-apiserver's map flags have them; a VALUE may be empty."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WholePairs:
    """Pairs KEY=VALUE, one a time it is given: a VALUE may have commas."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """Something that is on or off."""

    on: bool

    def __bool__(self) -> bool:
        return self.on


@dataclass(frozen=True, slots=True)
class ReadableFiles:
    """Files that are there and can be read."""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names, comma-separated."""

    names: tuple[str, ...]


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"must be a single value, got {value!r}")
    return str(value).strip()


def _whole(value: Any, *, least: int, most: int, what: str) -> int:
    text = _text(value)
    if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
        raise ValueError(f"must be {what}, got {text!r}")
    return int(text)


def _port(value: Any, _: object) -> Port:
    return Port(_whole(value, least=0, most=65535, what="a port between 0 (any free one) and 65535"))


def _count(value: Any, _: object) -> Count:
    return Count(_whole(value, least=0, most=2**31 - 1, what="a whole number, 0 or more"))


def _seconds(value: Any, _: object) -> Seconds:
    text = _text(value)
    if text == "0":
        return Seconds(0.0)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be a duration such as 90s, 1m30s or 2h, got {text!r}")
    return Seconds(sum(float(number) * UNITS[unit] for number, unit in _DURATION_PART.findall(text)))


def _address(value: Any, _: object) -> IPAddress:
    try:
        return ipaddress.ip_address(_text(value))
    except ValueError:
        raise ValueError(f"must be an IP address, got {value!r}") from None


def _network(text: str) -> IPNetwork:
    """A range that holds at least the ``kubernetes`` Service and one more (kube-apiserver: 8 addresses)."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"must be an IP range such as 10.96.0.0/16, got {text!r} ({error})") from None
    if network.num_addresses < 8:
        raise ValueError(f"must hold at least 8 addresses, got {text!r}")
    if network.version == 6 and network.prefixlen < SHORTEST_IPV6_PREFIX:
        raise ValueError(f"must not be larger than a /{SHORTEST_IPV6_PREFIX}, got {text!r}")
    return network


def _service_ranges(value: Any, _: object) -> ServiceRanges:
    parts = value if isinstance(value, list) else _text(value).split(",")
    networks = tuple(_network(_text(part)) for part in parts)
    if len(networks) > 2:
        raise ValueError(f"must be one range or two, got {len(networks)}")
    if len(networks) == 2 and networks[0].version == networks[1].version:
        raise ValueError("two ranges must be one of IPv4 and one of IPv6")
    return ServiceRanges(networks)


def _port_range(value: Any, _: object) -> PortRange:
    """``first-last``, or as apimachinery's PortRange also has it: ``first+more``, or one port."""
    text = _text(value)
    match = re.fullmatch(r"(\d{1,5})(?:([-+])(\d{1,5}))?", text)
    if match is None:
        raise ValueError(f"must be a range of ports such as 30000-32767, got {text!r}")
    first = int(match[1])
    last = {"-": int(match[3] or 0), "+": first + int(match[3] or 0)}.get(match[2] or "", first)
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"must be a range of ports between 1 and 65535, got {text!r}")
    return PortRange(range(first, last + 1))


def _file(value: Any, _: object) -> Path:
    path = Path(_text(value)).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no file {str(value)!r}")
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"cannot read {str(value)!r}: {error.strerror}") from None
    return path.absolute()


def _directory(value: Any, _: object) -> Directory:
    path = Path(_text(value)).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError(f"{str(value)!r} is not a directory")
    return Directory(path.absolute())


def _database_url(value: Any, _: object) -> DatabaseURL:
    text = _text(value)
    # Nothing of the text is told: it may hold a password, and this line may end up in a log.
    if text.partition("://")[0].lower() not in SCHEMES:
        raise ValueError("must begin with postgresql://, such as postgresql://user:password@host:5432/database")
    return DatabaseURL(text)


def _hostname(value: Any, _: object) -> Hostname:
    text = _text(value)
    if len(text) > 253 or not _HOSTNAME.fullmatch(text):
        raise ValueError(f"must be a host name, got {text!r}")
    return Hostname(text)


def _controllers(value: Any, _: object) -> Controllers:
    parts = value if isinstance(value, list) else _text(value).split(",")
    return Controllers(tuple(part.strip() for part in map(_text, parts) if part.strip()))


def _plain(value: Any, _: object) -> Text:
    return Text(_text(value))


def _switch(value: Any, _: object) -> Switch:
    """In the spellings of Go's ParseBool."""
    text = _truth(value)
    if text not in TRUE_WORDS | FALSE_WORDS:
        raise ValueError(f"must be true or false, got {text!r}")
    return Switch(text in TRUE_WORDS)


def _files(value: Any, _: object) -> ReadableFiles:
    parts = value if isinstance(value, list) else _text(value).split(",")
    return ReadableFiles(tuple(_file(part, _) for part in parts))


def _names(value: Any, _: object) -> Names:
    return Names(_controllers(value, _).patterns)


def _pairs(value: Any, _: object) -> Pairs:
    """A comma-separated text, or in a config file a mapping, too."""
    if isinstance(value, dict):
        return Pairs(tuple((_text(key), _truth(one)) for key, one in value.items()))
    parts = value if isinstance(value, list) else _text(value).split(",")
    from kubechronicle.api.registry import runtime_config

    return Pairs(tuple(runtime_config.parse(",".join(map(_text, parts))).items()))


def _whole_pairs(value: Any, _: object) -> WholePairs:
    """A text or a list of them, or in a config file a mapping, too."""
    if isinstance(value, dict):
        return WholePairs(tuple((_text(key), _truth(one)) for key, one in value.items()))
    found: dict[str, str] = {}
    for part in map(_text, value if isinstance(value, list) else [value]):
        key, equals, text = part.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"must be KEY=VALUE, got {part!r}")
        found[key.strip()] = text.strip()
    return WholePairs(tuple(found.items()))


def _truth(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else _text(value)


ReadableFile = NewType("ReadableFile", Path)
Directory = NewType("Directory", Path)

CONVERTERS: dict[Any, Callable[[Any, Any], Any]] = {
    Port: _port,
    Count: _count,
    Seconds: _seconds,
    IPAddress: _address,
    ServiceRanges: _service_ranges,
    PortRange: _port_range,
    ReadableFile: _file,
    ReadableFiles: _files,
    Switch: _switch,
    Text: _plain,
    Directory: _directory,
    DatabaseURL: _database_url,
    Hostname: _hostname,
    Controllers: _controllers,
    Names: _names,
    Pairs: _pairs,
    WholePairs: _whole_pairs,
}


def make_converter() -> cattrs.Converter:
    """Structures one value at a time, so that an error can name its flag."""
    import cattrs  # takes long, and who asks for help does without

    converter = cattrs.Converter(detailed_validation=False)
    for target, hook in CONVERTERS.items():
        converter.register_structure_hook_func(partial(operator.eq, target), hook)
    return converter

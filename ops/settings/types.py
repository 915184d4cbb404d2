"""Types of settings, as the Settings record has them. conversion.py makes them from texts."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NewType

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Port = NewType("Port", int)
Count = NewType("Count", int)
WorkerCount = NewType("WorkerCount", int)
Rate = NewType("Rate", float)
"""A number that may have a fraction, 0 or more."""
Seconds = NewType("Seconds", float)
EventTTL = NewType("EventTTL", float)
"""Seconds; 0: Events are kept for ever."""
DatabaseURL = NewType("DatabaseURL", str)
Text = NewType("Text", str)
Name = NewType("Name", str)
"""An item of a comma-separated list."""
Hostname = NewType("Hostname", str)
ReadableFile = NewType("ReadableFile", Path)
"""The absolute path of a file that exists and can be read."""
Directory = NewType("Directory", Path)
"""The absolute path of a directory that exists or can be made."""
ReviewVersion = Literal["v1", "v1beta1"]
AuditMode = Literal["batch", "blocking", "blocking-strict"]
AuditFormat = Literal["legacy", "json"]
AuditVersion = Literal["audit.k8s.io/v1"]
TLSVersion = Literal["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]
EndpointReconcilerType = Literal["lease", "none", "master-count"]
LoggingFormat = Literal["text", "json"]
AuthorizationMode = Literal["AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node"]


@dataclass(frozen=True, slots=True)
class Controllers:
    """The control loops to run: kube-controller-manager's --controllers."""

    patterns: tuple[str, ...]

    def chosen_from(self, known: Sequence[str], aliases: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return the loops to run.

        The first of ``NAME`` and ``-NAME`` in the list decides. A loop that is not in the list runs if ``*`` is.
        ``aliases``: further names of loops. ValueError: the list has an unknown name.
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
    """Ranges of cluster IPs: one, or one of each family with the primary first."""

    networks: tuple[IPNetwork, ...]


@dataclass(frozen=True, slots=True)
class PortRange:
    """A range of ports, both ends included."""

    first: int
    last: int

    @property
    def ports(self) -> range:
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs KEY=VALUE in one comma-separated list, as kube-apiserver's map flags; a VALUE may be empty."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """Certificates and keys with the names that each is served for: (certificate, key, names)."""

    files: tuple[tuple[Path, Path, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class LabelValues:
    """The allowed values of labels of metrics: (metric, label, values)."""

    allowed: tuple[tuple[str, str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class SeparatePairs:
    """Pairs KEY=VALUE, each given separately; a VALUE may have commas."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DatabaseOverrides:
    """The databases of single resources: (group/resource, URL)."""

    overrides: tuple[tuple[str, str], ...]

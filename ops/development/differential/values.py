"""Odd values by type, which mutations put into valid objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# fmt: off
BAD_NAMES = (
    "", "A", "a_b", "-a", "a-", "a.b", "a..b", "a/b", "ä", "a b", "1", "%2f", "..", ".", "a" * 64, "a" * 254, "a%",
)
BAD_STRINGS = (
    "", " ", "\n", "\t x", "ünïcode", "\u0000", "a" * 64, "b" * 257, "c" * 1100, "'\"\\<>&", "${x}", "*", "-", "/",
    "..", "a/b/c", "a=b", "None", "default", "0", "-1", "true", "null",
)
QUANTITIES = (
    "0", "-1", "1n", "1u", "+1", "01", "010m", "5.", ".5", "1E3", "1e3", "1e-3", "1Ki", "1ki", "0.1m", "1000m", "1024",
    "1 ", "", "x", "1.0", "9223372036854775807", "9223372036854775808", "1Ei", "16Ei", "100E", "1e30", "1.5Gi", "0Mi",
    "-0", "1k", "1K", "--1", "1m", "1500m", "0.5", "1e", "1E", "1.1.1", 0, 1, -1, 1.5, 1e3,
)
DURATIONS = (
    "0s", "1h", "60m", "1.5h", "-5s", "1d", "P1D", "1", "", "1h1h", "1us", "1µs", "3600000000000ns", "+1s", "1h0m0.5s",
)
INT_OR_STRING = (
    0, -1, 1, 65536, "0", "1", "0%", "100%", "101%", "-1%", "50 %", "%", "", "http", "HTTP", "a" * 16, "1.5%",
    2147483648, True, None,
)
NUMBERS = (
    0, -1, 1, 2, 65535, 65536, 2147483647, 2147483648, -2147483649, 9223372036854775807, 9223372036854775808, 10**20,
    1.0, 1.5, -0.0, 1e3,
)
KEYS = (
    "", "a", "A/b", "a/b/c", "example.com/x", "example.com/", "/x", "kubernetes.io/x", "a b", "-a", "a" * 64, "é",
    "requests.cpu", "hugepages-2Mi", "hugepages-0", "limits.memory", "count/pods", "ephemeral-storage", "storage",
    "requests.storage", "pods", "cpu", "attachable-volumes-x", "requests.example.com/x",
)
VERSIONS = (
    "v1", "apps/v1", "apps/v1beta1", "v2", "", "batch/v1", "a/b/c", "autoscaling/v1", "autoscaling/v2", "Apps/v1",
)
OWNER: Mapping[str, Any] = {
    "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "11111111-2222-3333-4444-555555555555",
}
OWNERS: tuple[Any, ...] = (
    [dict(OWNER)],
    [dict(OWNER), dict(OWNER)],
    [{**OWNER, "controller": True, "blockOwnerDeletion": True}],
    [{**OWNER, "controller": True}, {**OWNER, "name": "b", "controller": True}],
    [{**OWNER, "uid": ""}],
    [{**OWNER, "name": ""}],
    [{**OWNER, "kind": ""}],
    [{**OWNER, "apiVersion": ""}],
    [{**OWNER, "kind": "Event"}],
    [{}], [None], [], None,
)
FINALIZERS: tuple[Any, ...] = (
    ["example.com/a"], ["a"], ["example.com/a", "example.com/a"], [""], ["foregroundDeletion"], ["orphan"],
    ["orphan", "foregroundDeletion"], ["kubernetes"], ["A B"], ["x/y/z"], [None], [],
)
LABELS: tuple[Any, ...] = (
    {"a": "b"}, {"": "b"}, {"a": ""}, {"a": "b c"}, {"a": "x" * 64}, {"example.com/a": "b"}, {"a/b/c": "d"},
    {"A_b.c": "D_e.f"}, {"-a": "b"}, {"a": None}, {"a": 1}, None, [], {}, {"é": "b"},
)
ANNOTATIONS: tuple[Any, ...] = (
    {"a": "b"}, {"": "b"}, {"A B": "c"}, {"a": "x" * 1000}, {"EXAMPLE.com/a": "b"}, {"a": None}, {"a": 1}, None, {},
    {"a/b/c": ""}, {"example.com/A": "b", "example.com/a": "c"}, {"x": "y" * 262145},
)
_ENTRY: Mapping[str, Any] = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
MANAGED_FIELDS: tuple[Any, ...] = (
    [], [{}], [{**_ENTRY, "fieldsV1": {"f:metadata": {}}}], [{**_ENTRY, "operation": "Nope"}],
    [{**_ENTRY, "operation": "Apply", "fieldsType": "X"}], [{**_ENTRY, "fieldsV1": {"x": 1}}], None,
)
OF_OTHER_TYPES: tuple[Any, ...] = (1, 1.5, "1", "a", True, [], {}, ["a"], {"a": "b"}, [1], [{}], [None], None)
# fmt: on

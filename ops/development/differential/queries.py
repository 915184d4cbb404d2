"""Odd query parameters and headers of reads and writes, as tables."""

from __future__ import annotations

from random import Random

CONTINUE = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYSJ9"  # of another list
LABEL_SELECTORS = (
    "a=b", "a", "!a", "a in (b,c)", "a notin (b)", "a==b,c!=d", "", "a=", "=b", "a in ()", "a b", "a>1", "a<x",
    "A/b/c=d", "a=b,,c", "app in (web", "x y", "a=" + "b" * 64, "app=web", "app", "!app", "case",
)  # fmt: skip
FIELD_SELECTORS = (
    "metadata.name=${name}", "metadata.name!=a", "metadata.namespace=$NS", "metadata.namespace=other",
    "metadata.name=${name},metadata.namespace=$NS", "", "x=y", "metadata.name", "metadata.labels=a",
    "status.phase=Running", "spec.nodeName=", "type=Opaque", "metadata.name=a,metadata.name=b",
    "metadata.name in (a)", "metadata.name==A", "=", "a\\=b=c", "spec.unschedulable=true", "reason=Started",
    "involvedObject.name=p", "status.phase=Pending",
)  # fmt: skip
RARE = frozenset({"999999999999", "9" * 5000})  # the first keeps both servers waiting for three seconds
LIST_PARAMETERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("limit", ("0", "1", "2", "3", "-1", "-5", "x", "", "9223372036854775807", "9223372036854775808", "1.5", "+1", "01",
               "9" * 5000)),
    ("continue", ("${continue}", "${continue}", "x", "", "e30", CONTINUE, "%2e")),
    ("resourceVersion", ("", "0", "${first}", "${rv}", "x", "-1", "01", "999999999999", "9223372036854775808")),
    ("resourceVersionMatch", ("Exact", "NotOlderThan", "NotOlderThan", "", "x", "exact")),
    ("labelSelector", LABEL_SELECTORS),
    ("fieldSelector", FIELD_SELECTORS),
    ("timeoutSeconds", ("0", "1", "-1", "x", "100000", "")),
    ("pretty", ("true", "false", "1", "", "x")),
    ("allowWatchBookmarks", ("true", "x", "")),
    ("sendInitialEvents", ("true", "false", "x")),
    ("shardSelector", ("", "x")),
    ("includeObject", ("Object", "Metadata", "None", "x", "")),
    ("watch", ("false", "0", "x&timeoutSeconds=1")),
    ("unknown", ("1",)),
)  # fmt: skip
ACCEPTS = (
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v2;g=meta.k8s.io",
    "application/json;as=Table;g=x;v=v1",
    "application/json;as=Nope;v=v1;g=meta.k8s.io",
    "application/yaml",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/cbor",
    "application/cbor,application/json;q=0.5",
    "text/html",
    "text/html,*/*",
    "*/*",
    "application/*",
    "application/json;q=0",
    "application/json; charset=utf-8",
    "application/json;pretty=1",
    "application/json;profile=nonesuch",
    "application/json;stream=watch",
    "application/json;as=",
    "x",
    "application/json,",
    ",",
    "APPLICATION/JSON",
    "application/xml;q=0.9,application/yaml;q=0.8",
)  # fmt: skip
CONTENT_TYPES = (
    "application/json",
    "application/json; charset=utf-8",
    "application/yaml",
    "text/plain",
    "",
    "application/cbor",
    "application/vnd.kubernetes.protobuf",
    "application/xml",
    "APPLICATION/JSON",
    "application/json;x",
    "application/x-yaml",
    "x",
    "application/merge-patch+json",
)
PATCH_TYPES = (
    "application/json",
    "application/merge-patch+json; charset=utf-8",
    "text/plain",
    "",
    "application/apply-patch+cbor",
    "application/apply-patch+json",
    "application/strategic-merge-patch",
    "application/json-patch+json;x=1",
    "x/y",
    "APPLICATION/merge-patch+json",
)
WRITE_PARAMETERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dryRun", ("All", "All", "All", "", "x", "all", "All&dryRun=All")),
    ("fieldValidation", ("Strict", "Strict", "Strict", "Warn", "Ignore", "", "x", "strict")),
    ("fieldManager", ("m1", "m2", "", "a" * 129, "a%0Ab", "ünï", "a b")),
    ("force", ("true", "false", "x", "1", "")),
    ("pretty", ("true", "x")),
    ("resourceVersion", ("1", "x")),
    ("timeout", ("10s", "x", "0s", "")),
    ("unknown", ("1",)),
)  # fmt: skip
DELETE_PARAMETERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gracePeriodSeconds", ("0", "0", "1", "30", "-1", "x", "")),
    ("propagationPolicy", ("Orphan", "Foreground", "Background", "x", "", "orphan")),
    ("orphanDependents", ("true", "false", "x")),
    ("dryRun", ("All", "x")),
    ("ignoreStoreReadErrorWithClusterBreakingPotential", ("true", "false", "x")),
)  # fmt: skip


def query(rng: Random, table: tuple[tuple[str, tuple[str, ...]], ...], most: int = 3) -> str:
    """Return up to ``most`` parameters of a table, with the question mark."""
    pairs = []
    for name, values in rng.sample(table, rng.randint(1, most)):
        value = rng.choice(values)
        if value in RARE and rng.random() < 0.95:
            value = ""
        pairs.append(f"{name}={encode(value)}")
    return "?" + "&".join(pairs)


def encode(value: str) -> str:
    """Percent-encode a value, except for placeholders, whose values need none."""
    if "${" in value or "$NS" in value:
        return value.replace(" ", "%20")
    return "".join(
        c if (c.isalnum() and c.isascii()) or c in "-._~%&=,!/:" else "".join(f"%{b:02X}" for b in c.encode())
        for c in value
    )


def of_one_object(query: str) -> str:
    """Limit the query of a list to the sequence's object: a cluster-scoped list contains those of other sequences."""
    pairs = [pair for pair in query.removeprefix("?").split("&") if pair and not pair.startswith("fieldSelector=")]
    return "?" + "&".join([*pairs, "fieldSelector=metadata.name=${name}"])

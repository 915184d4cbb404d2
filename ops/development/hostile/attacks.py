"""The table of all attacks, in the order in which they run. Those that leave much in the server come last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kubechronicle.ops.development.hostile import admission, expressions, objects, wire
from kubechronicle.ops.development.hostile.requests import REQUESTS
from kubechronicle.ops.development.hostile.site import Site

OF_HISTORY: Final = frozenset({"revisions", "revisions watch"})


def nothing(site: Site) -> str:
    """Do nothing: the machine and the light client alone."""
    return ""


@dataclass(frozen=True, slots=True)
class Attack:
    """``by``: the least user who can send it. ``ours``: True if a kube-apiserver does not have the path.

    ``run``: sends, and returns the answers. ``prepare``: is called before, and is not measured.
    """

    name: str
    by: str
    run: Callable[[Site], str]
    prepare: Callable[[Site], object] = nothing
    ours: bool = False


ANYBODY, USER, TENANT, EDITOR = "anybody", "any user", "a tenant", "an editor of definitions"


def _rules(call: str) -> Attack:
    return Attack(f"CEL rule: {call}", EDITOR, partial(expressions.rules, call), partial(expressions.defined, call))


def _policy(call: str) -> Attack:
    return Attack(f"CEL policy: {call}", EDITOR, partial(expressions.policy, call), partial(expressions.enforced, call))


def _former(name: str) -> Attack:
    return Attack(f"old: {name}", USER, partial(objects.former, name), objects.history, ours=name in OF_HISTORY)


def _hooks(kind: str) -> Attack:
    prepare = partial(admission.webhooks, kind=kind)
    return Attack(f"webhooks: 4,000 {kind} ones", TENANT, admission.unmatched_revision, prepare)


def _list(name: str, accept: str, count: int) -> Attack:
    return Attack(f"list: {name}", USER, partial(objects.lists, accept=accept, count=count), objects.crowd)


ATTACKS: Final[tuple[Attack, ...]] = (
    Attack("none", "", nothing),
    Attack("HTTP/2: sizes of windows", ANYBODY, wire.window_sizes),
    Attack("HTTP/2: rapid resets", ANYBODY, wire.rapid_resets),
    Attack("HTTP/2: pings", ANYBODY, wire.pings),
    Attack("HTTP/2: empty data", ANYBODY, wire.empty_data),
    Attack("HTTP/2: window updates", ANYBODY, wire.window_updates),
    Attack("HTTP/2: windows of one byte", ANYBODY, wire.window_bytes),
    Attack("HTTP/2: 900 watches, abandoned", USER, wire.abandoned_watches),
    Attack("TLS: 500 handshakes", ANYBODY, wire.handshakes),
    Attack("HTTP/2: priorities", ANYBODY, wire.priorities),
    Attack("HTTP/2: endless fields", ANYBODY, wire.continuations),
    Attack("HTTP/2: indexed fields", ANYBODY, wire.indexed_fields),
    Attack("HTTP/2: long codes of fields", ANYBODY, wire.long_codes),
    Attack("HTTP/2: a table that changes", ANYBODY, wire.changed_table),
    Attack("HTTP/2: windows enlarged by nothing", ANYBODY, wire.malformed_windows),
    Attack("HTTP/2: 900 documents", USER, wire.documents),
    Attack("HTTP/1.1: chunks of one byte", USER, wire.chunks),
    Attack("HTTP/1.1: 100,000 fields", ANYBODY, wire.fields),
    Attack("WebSocket: a frame of 30 MB", USER, wire.large_frame),
    Attack("WebSocket: empty frames", USER, wire.small_frames),
    Attack("protobuf: empty requirements", USER, objects.empty_requirements),
    Attack("protobuf: empty owners", TENANT, objects.empty_owners),
    *(_rules(call) for call in expressions.CALLS),
    *(_policy(call) for call in expressions.CALLS),
    _policy(expressions.SUMS),
    Attack("CEL: a rule of 48 KB", EDITOR, expressions.long_rule),
    Attack("CEL: a validation of 48 KB", EDITOR, expressions.long_validation),
    Attack("RE2: a claim of 9 KB", TENANT, partial(expressions.claim, 1)),
    Attack("RE2: a claim of 300 KB", TENANT, partial(expressions.claim, 32)),
    Attack("RE2: a search of 25 KB", TENANT, expressions.bisect, ours=True),
    Attack("RE2: patterns of a definition", EDITOR, expressions.schema_pattern),
    Attack(
        "RE2: a pattern of an object",
        TENANT,
        partial(expressions.policy, expressions.COMPUTED),
        partial(expressions.enforced, expressions.COMPUTED),
    ),
    *(_former(name) for name in REQUESTS),
    Attack("RBAC: GET by 150,000 rules", ANYBODY, objects.anonymous_get, objects.roles),
    Attack("RBAC: review of 150,000 rules", TENANT, objects.rules_review, objects.roles),
    Attack("RBAC: review of 100,000 groups", TENANT, objects.review_of_groups),
    Attack("limits: a Pod under 1,000", TENANT, admission.limited_pod, admission.limits),
    Attack("limits: a Pod that gets 400,000 values", TENANT, admission.defaulted_pod, admission.default_amounts),
    Attack("quotas: 1,000", TENANT, admission.charged_map, admission.quotas),
    Attack(
        "quotas: 200 of 600 names each",
        TENANT,
        partial(admission.charged_map, namespace=admission.LARGELY_CHARGED),
        admission.large_quotas,
    ),
    Attack("policies: 5,000 parameters", TENANT, admission.guarded_secret, admission.parameters),
    Attack("mutation: 3,000 parameters", TENANT, admission.mutated_endpoints, admission.mutating_parameters),
    Attack("mutation: an object of 90,000 keys", TENANT, admission.labelled_map, admission.label_policy),
    _hooks("mutating"),
    _hooks("validating"),
    Attack("growth: a RuntimeClass of 30,000 tolerations", TENANT, admission.tolerating_pod, admission.runtime_class),
    Attack("growth: 200,000 defaults of a definition", TENANT, admission.growing_object, admission.growing_kind),
    Attack(
        "growth: the same, of a stored object",
        TENANT,
        admission.grown_object,
        partial(admission.growing_kind, stored=True),
    ),
    _list("100,000 objects, protobuf", objects.PROTOBUF, 1),
    _list("100,000 objects, table", objects.TABLE, 1),
    _list("20 at once, protobuf", objects.PROTOBUF, objects.AT_ONCE),
    _list("20 at once, table", objects.TABLE, objects.AT_ONCE),
    Attack("list: 20 at once, selectors of 4,000 terms", USER, objects.long_selectors),
    Attack("watch: 4 at once, initial events as tables", USER, objects.initial_events, objects.crowd),
    Attack("list: a dry run of its deletion", USER, objects.dry_deletion, objects.crowd),
)

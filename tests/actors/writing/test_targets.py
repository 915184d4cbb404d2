"""Uids and name suffixes of new objects, and copies of decoded ones."""

from __future__ import annotations

from uuid import UUID

import orjson

from kubechronicle.actors.writing.targets import Target, new_uid, with_name_suffix
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.metadata import NAME_ALPHABET
from kubechronicle.api.registry.registry import builtin_registry
from kubechronicle.api.strategy.strategy import WriteContext


def test_uids_are_random_canonical_uuids() -> None:
    made = [new_uid() for _ in range(200)]
    assert len(set(made)) == 200
    for text in made:
        uid = UUID(text)
        assert (str(uid), uid.version, uid.variant) == (text, 4, "specified in RFC 4122")


def test_a_suffix_is_drawn_for_generate_name_only() -> None:
    context = WriteContext(now="2026-01-01T00:00:00Z")
    maps, addresses = target_of("/v1/configmaps"), target_of("networking.k8s.io/v1/ipaddresses")
    assert with_name_suffix(maps, context, {"metadata": {"name": "a"}}) is context
    assert with_name_suffix(addresses, context, {"metadata": {"generateName": "a-"}}) is context
    suffix = with_name_suffix(maps, context, {"metadata": {"generateName": "a-"}}).name_suffix
    assert len(suffix) == 5
    assert set(suffix) <= set(NAME_ALPHABET)


def target_of(path: str) -> Target:
    rt = builtin_registry().lookup(*path.split("/"))
    assert rt is not None
    return Target(rt=rt)


def test_repeatedly_returns_independent_copies() -> None:
    value = {"metadata": {"name": "a"}, "items": [1, 2.5, None, "é", {"b": []}]}
    before = orjson.dumps(value)
    give = repeatedly(value)
    first = give()
    assert first is value
    first["metadata"].clear()
    for _ in range(2):
        again = give()
        assert orjson.dumps(again) == before
        again["items"].append(3)

"""The bound on the lists and objects of a JSON document."""

from __future__ import annotations

import orjson

from kubechronicle.api.codecs.json_bounds import MAX_CONTAINERS, has_too_many_containers


def test_lists_and_objects_are_counted() -> None:
    most = [{} for _ in range(MAX_CONTAINERS - 1)]
    assert not has_too_many_containers(orjson.dumps(most))
    assert has_too_many_containers(orjson.dumps([*most, []]))


def test_brackets_in_strings_are_not_counted() -> None:
    text = '[{"' * MAX_CONTAINERS
    assert not has_too_many_containers(orjson.dumps({"a": text, "b": ['\\"[']}))
    assert has_too_many_containers(orjson.dumps({"a": text, "b": [[]] * MAX_CONTAINERS}))

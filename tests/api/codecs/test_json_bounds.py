"""The bounds on the lists, objects and keys of a JSON document."""

from __future__ import annotations

import orjson

from kubechronicle.api.codecs.json_bounds import MAX_CONTAINERS, MAX_KEYS, excess


def test_lists_and_objects_are_counted() -> None:
    most = [{} for _ in range(MAX_CONTAINERS - 1)]
    assert excess(orjson.dumps(most)) == ""
    assert excess(orjson.dumps([*most, []])) == "200000 lists and objects"


def test_keys_are_counted() -> None:
    most = {str(number): 0 for number in range(MAX_KEYS)}
    assert excess(orjson.dumps(most)) == ""
    assert excess(orjson.dumps({**most, "": 0})) == "150000 keys"


def test_text_in_strings_is_not_counted() -> None:
    text = '[{"a":' * MAX_CONTAINERS
    assert excess(orjson.dumps({"a": text, "b": ['\\"[']})) == ""
    assert excess(orjson.dumps({"a": text, "b": [[]] * MAX_CONTAINERS})) == "200000 lists and objects"

"""What a write is asked for: names and uids of what is new, and copies for those who need one."""

from __future__ import annotations

from uuid import UUID

import orjson

from kubechronicle.actors.writing.targets import new_uid, with_name_suffix
from kubechronicle.api.meta.encoding import repeatedly
from kubechronicle.api.meta.metadata import NAME_ALPHABET
from kubechronicle.api.strategy.write_context import WriteContext


def test_uids_are_random_uuids_as_they_are_written() -> None:
    made = [new_uid() for _ in range(200)]
    assert len(set(made)) == 200
    for text in made:
        uid = UUID(text)
        assert (str(uid), uid.version, uid.variant) == (text, 4, "specified in RFC 4122")


def test_a_suffix_is_made_for_a_name_that_is_to_be_made() -> None:
    context = WriteContext(now="2026-01-01T00:00:00Z")
    assert with_name_suffix(context, {"metadata": {"name": "a"}}) is context
    suffix = with_name_suffix(context, {"metadata": {"generateName": "a-"}}).name_suffix
    assert len(suffix) == 5
    assert set(suffix) <= set(NAME_ALPHABET)


def test_whoever_changes_what_is_given_repeatedly_changes_it_for_nobody_else() -> None:
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

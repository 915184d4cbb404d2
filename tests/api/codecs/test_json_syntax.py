"""Syntax errors of JSON: runs that are skipped at once, and the time that errors take."""

from __future__ import annotations

import re
from time import thread_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubechronicle.api.codecs import json_syntax

_PARTS = (
    *("1", "-0", "0.5", "1E+5", "01", '"a"', '"\\n"', '"\\u00e9"', '"\\u00g"', '"\\x"', "true", "fals", "[]", "[ ]"),
    *("{}", "{", "}", "[", "]", ",", ", ", ":", '"k":', '"k" : 1,', '"', "\\", "\n", "-", "\x01"),
)


@given(st.lists(st.sampled_from(_PARTS), max_size=14).map("".join), st.sampled_from((2, 250)))
@settings(max_examples=1000, deadline=None)
def test_skipped_runs_do_not_change_the_error(text: str, depth: int) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_syntax, "_ITEMS", re.compile(b""))
        patch.setattr(json_syntax, "_MEMBERS", re.compile(b""))
        slowly = json_syntax.syntax_error(data, max_depth=depth)
    assert json_syntax.syntax_error(data, max_depth=depth) == slowly


@pytest.mark.parametrize("part", [b"1,", b'"",', b"[],", b"[1],", b'{"":1},', b'"\\n",', b"1e1,", b"1 ,"])
def test_an_error_behind_many_values_takes_little_time(part: bytes) -> None:
    data = b"[" + part * (60_000 // len(part)) + b"}"
    began = thread_time()
    assert json_syntax.syntax_error(data, max_depth=250) is not None
    assert thread_time() - began < 0.09

"""Plain YAML: it is read as PyYAML reads it, or left to PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kubechronicle.api.codecs import plain_yaml

WORDS = st.sampled_from(
    ["shop", "https://127.0.0.1:6443", "LS0tLS1CRUdJTi==", "true", "No", "null", "a:", "12", "1.5e3", "-x", "a b", "é",
     "", "y", "on", "2026-01-01", "0x1f", "~", "a#b", "a #b", "{}", "[]", "'q'", "*a", "&a", "!!str", "|", "end."]
)  # fmt: skip
KEYS = st.sampled_from(["name", "cluster", "user", "server", "yes", "1", "a b", "certificate-authority-data"])
DOCUMENTS = st.recursive(
    WORDS | st.booleans() | st.none() | st.integers(),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=12,
)
LINES = st.tuples(
    st.integers(0, 5), st.sampled_from(["", "- ", "-", "- - "]), KEYS, st.sampled_from([":", ": ", ":  ", ""]), WORDS
)

KUBECTLS = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTi==
    insecure-skip-tls-verify: false
    server: https://127.0.0.1:6443
  name: shop
contexts:
- context:
    cluster: shop
    user: kubernetes-admin
  name: shop
current-context: shop
kind: Config
preferences: {}
users:
- name: kubernetes-admin
  user:
    token: ""
"""


def test_what_kubectl_writes_is_plain() -> None:
    found = plain_yaml.read(KUBECTLS)
    assert found == yaml.safe_load(KUBECTLS)
    assert found is not None
    assert found["clusters"][0]["cluster"]["insecure-skip-tls-verify"] is False


@pytest.mark.parametrize(
    "text",
    ["a: b # c\n", "a: |\n  b\n", "a: b\n c: d\n", "a: b\n  c\n", "---\na: b\n", "a: yes\n", "yes: a\n", "a:\tb\n",
     "a: b\r\n", "- a: b\n", "a: b\n\nc: d\n", "a: *b\n", "a: 'b'\n", "a: 1\n", "", "a: b:\n"],
)  # fmt: skip
def test_other_texts_are_left_to_pyyaml(text: str) -> None:
    assert plain_yaml.read(text) is None


@given(DOCUMENTS)
def test_documents_have_the_meaning_of_pyyaml(document: Any) -> None:
    _compare(yaml.safe_dump(document, default_flow_style=False))


@given(st.lists(LINES, max_size=8))
def test_lines_have_the_meaning_of_pyyaml(lines: list[tuple[int, str, str, str, str]]) -> None:
    _compare("".join(f"{' ' * indent}{''.join(rest)}\n" for indent, *rest in lines))


def _compare(text: str) -> None:
    found = plain_yaml.read(text)
    if found is not None:
        assert found == yaml.safe_load(text)

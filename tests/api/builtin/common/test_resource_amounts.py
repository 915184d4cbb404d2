"""Amounts of bytes that are not whole."""

from __future__ import annotations

import pytest

from kubechronicle.api.builtin.common.resource_amounts import is_fractional


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("1", False), ("1Gi", False), ("1500m", True), ("2000m", False), ("1.5", True), ("1.5k", False), ("1e-1", True)],
)
def test_fractional_amounts(text: str, fraction: bool) -> None:
    assert is_fractional(text) is fraction

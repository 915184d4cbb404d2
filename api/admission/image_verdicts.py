"""Answers to ImageReviews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ImageVerdict(NamedTuple):
    """The answer about the images of a pod.

    ``failure``: the error of a webhook that gave no usable answer, "" otherwise.
    """

    allowed: bool
    reason: str = ""
    annotations: Mapping[str, str] = {}
    failure: str = ""

"""Lets the tests here import what they share: in_process.py of tests/, and the files beside them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]  # tests/ is no package

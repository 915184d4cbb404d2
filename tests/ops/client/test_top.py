"""`top`: rates, quantiles and tables from two samples, and the command against a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubechronicle.ops.client.commands.top import SampleDifference, parse_sample, screen

Chronicle = Callable[..., Any]

BEFORE = """\
# TYPE apiserver_request_total counter
apiserver_request_total{verb="GET",resource="pods",subresource="",code="200"} 100
apiserver_request_total{verb="POST",resource="pods",subresource="binding",code="503"} 7
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.001"} 50
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.005"} 100
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="+Inf"} 100
process_cpu_seconds_total 10
"""
AFTER = """\
apiserver_request_total{verb="GET",resource="pods",subresource="",code="200"} 300
apiserver_request_total{verb="POST",resource="pods",subresource="binding",code="503"} 5
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.001"} 150
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="0.005"} 300
apiserver_request_duration_seconds_bucket{verb="GET",resource="pods",subresource="",le="+Inf"} 300
process_cpu_seconds_total 11
process_resident_memory_bytes 104857600
apiserver_flowcontrol_current_limit_seats{priority_level="system"} 74
apiserver_flowcontrol_current_executing_seats{priority_level="system",flow_schema="system-nodes"} 2
kubechronicle_applied_revision 12345
odd{text="a \\"quoted\\\\ \\n line"} 1
"""


def test_rates_and_quantiles() -> None:
    found = SampleDifference(parse_sample(BEFORE, 0.0), parse_sample(AFTER, 2.0))
    by = ("verb",)
    rates = found.rates("apiserver_request_total", by)
    assert rates == {("GET",): 100, ("POST",): 2.5}  # the second counter was started anew
    assert found.quantiles("apiserver_request_duration_seconds", by, 0.5) == {("GET",): pytest.approx(0.001)}
    assert found.quantiles("apiserver_request_duration_seconds", by, 0.99) == {("GET",): pytest.approx(0.00492)}
    assert [labels for labels, _ in found.after.each("odd")] == [{"text": 'a "quoted\\   line'}]


def test_the_screen() -> None:
    lines = screen(SampleDifference(parse_sample(BEFORE, 0.0), parse_sample(AFTER, 2.0)), "https://one")
    text = "\n".join(lines)
    assert lines[0] == "https://one"
    assert "requests   102.5/s, errors 2.5/s" in text
    assert "revision 12345" in text
    assert "CPU 50 %, memory 100 MiB" in text
    rows = [line.split() for line in lines]
    assert ["GET", "pods", "100.0", "1.0", "ms", "4.9", "ms"] in rows
    assert ["POST", "pods/binding", "2.5", "-", "-"] in rows
    assert "2 of 74" in text


def test_top_once(chronicle: Chronicle) -> None:
    done = chronicle("top", "--once", "--interval", "0.3")
    assert done.code == 0
    assert "PRIORITY LEVEL" in done.out
    assert "log        revision" in done.out
    assert chronicle("top", "--interval", "0").code == 2

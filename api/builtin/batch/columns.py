"""Table columns of the batch group, merged from the kinds' folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubechronicle.api.builtin.batch.cronjob import columns as cronjob
from kubechronicle.api.builtin.batch.job import columns as job
from kubechronicle.api.builtin.common.printer import Printer

PRINTERS: Final[Mapping[str, Printer]] = {
    **cronjob.PRINTERS,
    **job.PRINTERS,
}

"""TracingConfiguration (apiserver.config.k8s.io v1, v1beta1): where spans go, and how many requests are traced.

endpoint: localhost:4317            OTLP over gRPC; https://collector:4318 is OTLP over HTTP
samplingRatePerMillion: 10000       of the requests that no other party has decided about; absent: none of these

The rules are those of k8s.io/component-base ``tracing/api/v1``. An endpoint with http or https is our addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from kubechronicle.api.configuration import files
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.api.configuration.structuring import FieldKey
from kubechronicle.api.errors.field_errors import Cause, Path, aggregate, invalid_value

GROUP: Final = "apiserver.config.k8s.io"
VERSIONS: Final = ("v1", "v1beta1")
KIND: Final = "TracingConfiguration"
DEFAULT_ENDPOINT: Final = "localhost:4317"
MILLION: Final = 1_000_000
SCHEMES: Final = ("dns", "unix", "http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfiguration:
    """The file. ``sampling_rate``: requests of a million that start a trace; None: none do."""

    endpoint: str | None = None
    sampling_rate: Annotated[int | None, FieldKey("samplingRatePerMillion")] = None


def parse(data: bytes) -> TracingConfiguration:
    """Return the content of a file. Raises ConfigFileError."""
    configuration = files.decode(
        data, TracingConfiguration, VERSIONS, group=GROUP, kinds=lambda kind: kind in {(v, KIND) for v in VERSIONS}
    )
    causes = list(_causes(configuration))
    if causes:
        raise ConfigFileError(f"failed to validate tracing configuration: {aggregate(causes)}")
    return configuration


def _causes(configuration: TracingConfiguration) -> Iterator[Cause]:
    rate, endpoint = configuration.sampling_rate, configuration.endpoint
    place = Path("samplingRatePerMillion")
    if rate is not None and rate < 0:
        yield invalid_value(place, rate, "sampling rate must be positive")
    if rate is not None and rate > MILLION:
        yield invalid_value(place, rate, "sampling rate per million must be less than or equal to one million")
    if endpoint is not None:
        scheme = urlsplit(endpoint).scheme if "//" in endpoint else "dns"
        if scheme not in SCHEMES:
            options = "Options are none, dns, unix, http or https."
            yield invalid_value(Path("endpoint"), endpoint, f"unsupported scheme: {scheme}.  {options}")

"""--egress-selector-config-file: the proxies between this server and the networks it connects to."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from kubechronicle.api.configuration import egress_selector
from kubechronicle.api.configuration.egress_selector import EgressSelection
from kubechronicle.http.proxying.egress import ProxyFiles
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

log = logging.getLogger(__name__)

FLAG: Final = "--egress-selector-config-file"
ETCD: Final = "etcd"


def egress_selections(settings: Settings) -> tuple[EgressSelection, ...] | None:
    """Return the selections of the file; None without one. Raise OperatorError, also for unusable certificates."""
    file = settings.egress_selector_config_file
    if file is None:
        return None
    try:
        configuration = egress_selector.parse(file.read_bytes(), lambda path: Path(path).exists())
        for selection in configuration.egress_selections:
            _check_files(selection)
    except OSError as error:
        raise OperatorError(f"{FLAG}: cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise OperatorError(f"{FLAG}: {file}: {' '.join(str(error).split())}") from None
    return configuration.egress_selections


def configured_networks(settings: Settings) -> frozenset[str] | None:
    """Return the names of the networks with a selection; None without a file. Raise OperatorError."""
    selections = egress_selections(settings)
    return None if selections is None else frozenset(selection.name.lower() for selection in selections)


def warn_of_etcd(selections: tuple[EgressSelection, ...] | None) -> None:
    """Log that a proxy to etcd is not used."""
    for selection in selections or ():
        if selection.name.lower() == ETCD and selection.connection.proxy_protocol != egress_selector.DIRECT:
            log.warning("%s: the selection etcd is ignored: there is no etcd, and Postgres is reached directly", FLAG)


def _check_files(selection: EgressSelection) -> None:
    """Raise ValueError if the certificates for a proxy cannot be used."""
    transport = selection.connection.transport
    if transport is not None and transport.tcp is not None and transport.tcp.tls_config is not None:
        ProxyFiles(transport.tcp).load()

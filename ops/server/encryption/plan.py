"""The settings of encryption at rest, and the file they name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubechronicle.api.configuration import encryption
from kubechronicle.api.configuration.encryption import EncryptionConfiguration
from kubechronicle.api.configuration.files import ConfigFileError
from kubechronicle.ops.errors import OperatorError
from kubechronicle.ops.settings.settings import Settings

FLAG = "encryption-provider-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionPlan:
    """The configuration, its file and content. ``reload``: follow the file while the server runs."""

    configuration: EncryptionConfiguration
    file: Path
    content: bytes
    reload: bool = False


def encryption_plan(settings: Settings) -> EncryptionPlan | None:
    """Return the plan; None: contents are stored as plaintext. Raise OperatorError."""
    file, reload = settings.encryption_provider_config, settings.encryption_provider_config_automatic_reload
    if file is None:
        if reload:
            raise OperatorError(f"--{FLAG}-automatic-reload must be set with --{FLAG}")
        return None
    try:
        content = file.read_bytes()
        configuration = encryption.load(content)
    except OSError as error:
        raise OperatorError(f"--{FLAG}: cannot read {file}: {error.strerror}") from None
    except ConfigFileError as error:
        raise OperatorError(f"--{FLAG}: {file}: {error}") from None
    return EncryptionPlan(configuration=configuration, file=file, content=content, reload=reload)

"""Flags: encryption at rest."""

from kubechronicle.ops.settings.flags.flag import Flag

FLAGS = (
    Flag(
        name="encryption-provider-config", placeholder="FILE", default="",
        help="A file (EncryptionConfiguration, apiserver.config.k8s.io/v1) with the providers that encrypt the "
        "contents of resources in the log: aesgcm, aescbc, secretbox, kms (v2), identity. Servers that share a "
        "database need the same keys. Default: contents are stored as plaintext.",
    ),
    Flag(
        name="encryption-provider-config-automatic-reload", placeholder="true|false", default="false", switch=True,
        help="Reload the file of --encryption-provider-config when it changes. Its key services must be healthy then; "
        "otherwise the former configuration stays.",
    ),
)  # fmt: skip

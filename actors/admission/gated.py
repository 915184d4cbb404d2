"""Plugins of features that Kubernetes v1.36 has switched off by default, and that this server does not serve.

kube-apiserver enables these plugins, but they do nothing until the feature gate is on. Their names are known here, so
that command lines for kube-apiserver work.
"""

from __future__ import annotations

from typing import ClassVar

from kubechronicle.actors.admission.chain import AdmissionPlugin


class GatedPlugin(AdmissionPlugin):
    """A plugin without steps. ``gate``: the feature gate of kube-apiserver that would give it some."""

    gate: ClassVar[str]


class PodGroupProtection(GatedPlugin):
    name = "PodGroupProtection"
    gate = "GenericWorkload"


class PodGroupWorkloadExists(GatedPlugin):
    name = "PodGroupWorkloadExists"
    gate = "GenericWorkload"


class JobValidation(GatedPlugin):
    name = "JobValidation"
    gate = "WorkloadWithJob"


class ClusterTrustBundleAttest(GatedPlugin):
    name = "ClusterTrustBundleAttest"
    gate = "ClusterTrustBundle"

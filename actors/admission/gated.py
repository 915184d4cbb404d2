"""Plugins of features that Kubernetes v1.36 has switched off by default, and that this server does not serve.

kube-apiserver enables these plugins, but they do nothing until the feature gate is on. Their names are known here, so
that command lines for kube-apiserver work.
"""

from __future__ import annotations

from typing import Final

from kubechronicle.actors.admission.chain import AdmissionPlugin


class PodGroupProtection(AdmissionPlugin):
    name = "PodGroupProtection"
    gate = "GenericWorkload"


class PodGroupWorkloadExists(AdmissionPlugin):
    name = "PodGroupWorkloadExists"
    gate = "GenericWorkload"


class JobValidation(AdmissionPlugin):
    name = "JobValidation"
    gate = "WorkloadWithJob"


WITHOUT_STEPS: Final = (PodGroupProtection, PodGroupWorkloadExists, JobValidation)

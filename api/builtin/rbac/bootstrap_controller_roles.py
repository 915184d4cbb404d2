"""Cluster roles of Kubernetes' own controllers, present in every cluster from its first start (v1.36).

Each line is a rule: verbs, API groups (``""`` is the core group), resources, and optionally names. Each is a list with
commas. A line that ends with a comma continues on the next. bootstrap_policy.py makes objects of them. ``GATE?`` is
explained in bootstrap_roles.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONTROLLER_ROLES: Final[Mapping[str, str]] = {
    "attachdetach-controller": """
        list,watch "" persistentvolumeclaims,persistentvolumes
        get,list,watch "" nodes
        patch,update "" nodes/status
        list,watch "" pods
        create,patch,update "",events.k8s.io events
        create,delete,get,list,watch storage.k8s.io volumeattachments
        get,list,watch storage.k8s.io csidrivers
        get,list,watch storage.k8s.io csinodes
    """,
    "certificate-controller": """
        delete,get,list,watch certificates.k8s.io certificatesigningrequests
        update certificates.k8s.io certificatesigningrequests/approval,certificatesigningrequests/status
        approve certificates.k8s.io signers kubernetes.io/kube-apiserver-client-kubelet
        sign certificates.k8s.io signers kubernetes.io/kube-apiserver-client,
            kubernetes.io/kube-apiserver-client-kubelet,kubernetes.io/kubelet-serving,kubernetes.io/legacy-unknown
        create authorization.k8s.io subjectaccessreviews
        create,patch,update "",events.k8s.io events
    """,
    "clusterrole-aggregation-controller": """
        escalate,get,list,patch,update,watch rbac.authorization.k8s.io clusterroles
    """,
    "cronjob-controller": """
        get,list,update,watch batch cronjobs
        create,delete,get,list,patch,update,watch batch jobs
        update batch cronjobs/status
        update batch cronjobs/finalizers
        delete,list,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "daemon-set-controller": """
        get,list,watch apps,extensions daemonsets
        update apps,extensions daemonsets/status
        update apps,extensions daemonsets/finalizers
        list,watch "" nodes
        create,delete,list,patch,watch "" pods
        create "" pods/binding
        create,delete,get,list,patch,update,watch apps controllerrevisions
        create,patch,update "",events.k8s.io events
    """,
    "deployment-controller": """
        get,list,update,watch apps,extensions deployments
        update apps,extensions deployments/status
        update apps,extensions deployments/finalizers
        create,delete,get,list,patch,update,watch apps,extensions replicasets
        get,list,update,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "device-taint-eviction-controller": """
        DynamicResourceAllocation+DRADeviceTaints?
        delete,get,list,watch "" pods
        patch,update "" pods/status
        get,list,watch resource.k8s.io resourceclaims
        get,list,watch resource.k8s.io resourceslices
        get,list,watch resource.k8s.io deviceclasses
        create,patch,update "",events.k8s.io events
        DRADeviceTaintRules? patch,update resource.k8s.io devicetaintrules/status
        DRADeviceTaintRules? get,list,watch resource.k8s.io devicetaintrules
    """,
    "disruption-controller": """
        get,list,watch apps,extensions deployments
        get,list,watch apps,extensions replicasets
        get,list,watch "" replicationcontrollers
        get,list,watch policy poddisruptionbudgets
        get,list,watch apps statefulsets
        update policy poddisruptionbudgets/status
        patch,update "" pods/status
        get * */scale
        create,patch,update "",events.k8s.io events
    """,
    "endpoint-controller": """
        get,list,watch "" pods,services
        create,delete,get,list,update,watch "" endpoints
        create "" endpoints/restricted
        create,patch,update "",events.k8s.io events
    """,
    "endpointslice-controller": """
        get,list,watch "" nodes,pods,services
        update "" services/finalizers
        create,delete,get,list,update,watch discovery.k8s.io endpointslices
        create,patch,update "",events.k8s.io events
    """,
    "endpointslicemirroring-controller": """
        get,list,watch "" endpoints,services
        update "" services/finalizers
        update "" endpoints/finalizers
        create,delete,get,list,update,watch discovery.k8s.io endpointslices
        create,patch,update "",events.k8s.io events
    """,
    "ephemeral-volume-controller": """
        get,list,watch "" pods
        update "" pods/finalizers
        create,get,list,watch "" persistentvolumeclaims
        create,patch,update "",events.k8s.io events
    """,
    "expand-controller": """
        get,list,patch,update,watch "" persistentvolumes
        patch,update "" persistentvolumeclaims/status
        get,list,watch "" persistentvolumeclaims
        create,patch,update "",events.k8s.io events
    """,
    "generic-garbage-collector": """
        delete,get,list,patch,update,watch * *
        create,patch,update "",events.k8s.io events
    """,
    "horizontal-pod-autoscaler": """
        get,list,watch autoscaling horizontalpodautoscalers
        update autoscaling horizontalpodautoscalers/status
        get,update * */scale
        list,watch "" pods
        list,watch metrics.k8s.io pods
        get,list,watch custom.metrics.k8s.io *
        get,list,watch external.metrics.k8s.io *
        create,patch,update "",events.k8s.io events
    """,
    "job-controller": """
        get,list,patch,update,watch batch jobs
        update batch jobs/status
        update batch jobs/finalizers
        create,delete,list,patch,watch "" pods
        create,patch,update "",events.k8s.io events
        WorkloadWithJob? create,get,list,watch scheduling.k8s.io podgroups,workloads
    """,
    "kube-apiserver-serving-clustertrustbundle-publisher": """
        ClusterTrustBundle?
        attest certificates.k8s.io signers kubernetes.io/kube-apiserver-serving
        create,delete,list,update,watch certificates.k8s.io clustertrustbundles
        create,patch,update "",events.k8s.io events
    """,
    "legacy-service-account-token-cleaner": """
        get "" configmaps kube-apiserver-legacy-service-account-token-tracking
        delete,patch "" secrets
    """,
    "namespace-controller": """
        delete,get,list,watch "" namespaces
        update "" namespaces/finalize,namespaces/status
        delete,deletecollection,get,list,watch * *
    """,
    "node-controller": """
        delete,get,list,patch,update,watch "" nodes
        patch,update "" nodes/status
        patch,update "" pods/status
        delete,get,list,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "persistent-volume-binder": """
        create,delete,get,list,update,watch "" persistentvolumes
        update "" persistentvolumes/status
        get,list,update,watch "" persistentvolumeclaims
        update "" persistentvolumeclaims/status
        create,delete,get,list,watch "" pods
        get,list,watch storage.k8s.io storageclasses
        list,watch "" nodes
        create,patch,update "",events.k8s.io events
        watch "" events
    """,
    "pod-garbage-collector": """
        delete,list,watch "" pods
        get,list,watch "" nodes
        patch "" pods/status
    """,
    "pv-protection-controller": """
        get,list,update,watch "" persistentvolumes
        create,patch,update "",events.k8s.io events
    """,
    "pvc-protection-controller": """
        get,list,update,watch "" persistentvolumeclaims
        update "" persistentvolumeclaims/status
        get,list,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "replicaset-controller": """
        get,list,update,watch apps,extensions replicasets
        update apps,extensions replicasets/status
        update apps,extensions replicasets/finalizers
        create,delete,list,patch,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "replication-controller": """
        get,list,update,watch "" replicationcontrollers
        update "" replicationcontrollers/status
        update "" replicationcontrollers/finalizers
        create,delete,list,patch,watch "" pods
        create,patch,update "",events.k8s.io events
    """,
    "podcertificaterequestcleaner": """
        PodCertificateRequest?
        delete,get,list,watch certificates.k8s.io podcertificaterequests
    """,
    "podgroup-protection-controller": """
        GenericWorkload?
        get,list,update,watch scheduling.k8s.io podgroups
        get,list,watch "" pods
    """,
    "resource-claim-controller": """
        DynamicResourceAllocation?
        get,list,watch "" pods
        update "" pods/finalizers
        create,delete,get,list,watch resource.k8s.io resourceclaims
        patch,update resource.k8s.io resourceclaims,resourceclaims/status
        patch,update "" pods/status
        create,patch,update "",events.k8s.io events
        DRAWorkloadResourceClaims? get,list,watch scheduling.k8s.io podgroups
        DRAWorkloadResourceClaims? patch,update scheduling.k8s.io podgroups/status
        DRAResourceClaimGranularStatusAuthorization? patch,update resource.k8s.io resourceclaims/binding
    """,
    "resourcepoolstatusrequest-controller": """
        DynamicResourceAllocation+DRAResourcePoolStatus?
        delete,get,list,watch resource.k8s.io resourcepoolstatusrequests
        patch,update resource.k8s.io resourcepoolstatusrequests/status
        get,list,watch resource.k8s.io resourceslices
        get,list,watch resource.k8s.io resourceclaims
        create,patch,update "",events.k8s.io events
    """,
    "resourcequota-controller": """
        list,watch * *
        update "" resourcequotas/status
        create,patch,update "",events.k8s.io events
    """,
    "root-ca-cert-publisher": """
        create,update "" configmaps
        create,patch,update "",events.k8s.io events
    """,
    "route-controller": """
        list,watch "" nodes
        patch "" nodes/status
        create,patch,update "",events.k8s.io events
    """,
    "selinux-warning-controller": """
        SELinuxChangePolicy?
        create,patch,update "",events.k8s.io events
        get,list,watch "" persistentvolumes
        get,list,watch "" persistentvolumeclaims
        get,list,watch "" pods
        get,list,watch storage.k8s.io csidrivers
    """,
    "service-account-controller": """
        create "" serviceaccounts
        create,patch,update "",events.k8s.io events
    """,
    "service-cidrs-controller": """
        MultiCIDRServiceAllocator?
        get,list,patch,update,watch networking.k8s.io servicecidrs
        patch,update networking.k8s.io servicecidrs/finalizers
        patch,update networking.k8s.io servicecidrs/status
        get,list,watch networking.k8s.io ipaddresses
        create,patch,update "",events.k8s.io events
    """,
    "service-controller": """
        get,list,watch "" services
        patch,update "" services/status
        list,watch "" nodes
        create,patch,update "",events.k8s.io events
    """,
    "statefulset-controller": """
        list,watch "" pods
        get,list,watch apps statefulsets
        update apps statefulsets/status
        update apps statefulsets/finalizers
        create,delete,get,patch,update "" pods
        create,delete,get,list,patch,update,watch apps controllerrevisions
        create,get,list,watch "" persistentvolumeclaims
        delete,update "" persistentvolumeclaims
        update "" pods/finalizers
        create,patch,update "",events.k8s.io events
    """,
    "storage-version-garbage-collector": """
        StorageVersionAPI+APIServerIdentity?
        get,list,watch coordination.k8s.io leases
        delete,get,list,patch,update,watch internal.apiserver.k8s.io storageversions
        get,patch,update internal.apiserver.k8s.io storageversions/status
    """,
    "storage-version-migrator-controller": """
        StorageVersionMigrator?
        create,list,patch * *
        get apiextensions.k8s.io customresourcedefinitions
        patch apiextensions.k8s.io customresourcedefinitions/status
        update storagemigration.k8s.io storageversionmigrations/status
    """,
    "ttl-after-finished-controller": """
        delete,get,list,watch batch jobs
        create,patch,update "",events.k8s.io events
    """,
    "ttl-controller": """
        list,patch,update,watch "" nodes
        create,patch,update "",events.k8s.io events
    """,
    "validatingadmissionpolicy-status-controller": """
        get,list,watch admissionregistration.k8s.io validatingadmissionpolicies
        get,patch,update admissionregistration.k8s.io validatingadmissionpolicies/status
        create,patch,update "",events.k8s.io events
    """,
    "volumeattributesclass-protection-controller": """
        VolumeAttributesClass?
        get,list,watch "" persistentvolumeclaims
        get,list,watch "" persistentvolumes
        get,list,update,watch storage.k8s.io volumeattributesclasses
        create,patch,update "",events.k8s.io events
    """,
}
"""NAME of a role system:controller:NAME -> rules; it is bound to the service account NAME in kube-system."""

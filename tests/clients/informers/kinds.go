package main

// The kinds that informers follow, and the kinds that writers write, with a valid object of each.

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func resources(group, version string, names ...string) []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, name := range names {
		all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: name})
	}
	return all
}

func followedResources() (all []schema.GroupVersionResource) {
	for _, some := range [][]schema.GroupVersionResource{
		resources("", "v1", "configmaps", "secrets", "services", "pods", "namespaces", "nodes", "serviceaccounts", "endpoints",
			"persistentvolumes", "persistentvolumeclaims", "resourcequotas", "limitranges", "replicationcontrollers", "events"),
		resources("apps", "v1", "deployments", "daemonsets", "statefulsets", "replicasets", "controllerrevisions"),
		resources("batch", "v1", "jobs", "cronjobs"),
		resources("coordination.k8s.io", "v1", "leases"),
		resources("discovery.k8s.io", "v1", "endpointslices"),
		resources("networking.k8s.io", "v1", "ingresses", "networkpolicies"),
		resources("policy", "v1", "poddisruptionbudgets"),
		resources("rbac.authorization.k8s.io", "v1", "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
		resources("autoscaling", "v2", "horizontalpodautoscalers"),
	} {
		all = append(all, some...)
	}
	return all
}

// writtenKind is a kind the writers write. make returns a valid object without metadata.
type writtenKind struct {
	schema.GroupVersionResource
	clusterScoped bool
	make          func() runtime.Object
}

func written(group, version, resource string, make func() runtime.Object) writtenKind {
	return writtenKind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, make: make}
}

func podTemplate(restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "churn"}}, Spec: corev1.PodSpec{
		RestartPolicy: restart, Containers: []corev1.Container{{Name: "main", Image: "example.invalid/churn:1"}},
	}}
}

func writtenKinds() []writtenKind {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "churn"}}
	node := written("", "v1", "nodes", func() runtime.Object { return &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}} })
	node.clusterScoped = true
	return []writtenKind{
		written("", "v1", "configmaps", func() runtime.Object {
			return &corev1.ConfigMap{Data: map[string]string{"a": "1", "unicode": "cødé \"<>&\u2028"}, BinaryData: map[string][]byte{"b": {0, 255}}}
		}),
		written("", "v1", "secrets", func() runtime.Object { return &corev1.Secret{Data: map[string][]byte{"k": {1, 2, 3}}} }),
		written("", "v1", "services", func() runtime.Object {
			return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "churn"},
				Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("web")}}}}
		}),
		written("", "v1", "pods", func() runtime.Object { return &corev1.Pod{Spec: podTemplate(corev1.RestartPolicyAlways).Spec} }),
		written("", "v1", "serviceaccounts", func() runtime.Object { return &corev1.ServiceAccount{} }),
		written("apps", "v1", "deployments", func() runtime.Object {
			return &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: podTemplate(corev1.RestartPolicyAlways)}}
		}),
		written("apps", "v1", "replicasets", func() runtime.Object {
			return &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: podTemplate(corev1.RestartPolicyAlways)}}
		}),
		written("batch", "v1", "jobs", func() runtime.Object {
			return &batchv1.Job{Spec: batchv1.JobSpec{Template: podTemplate(corev1.RestartPolicyNever)}}
		}),
		written("coordination.k8s.io", "v1", "leases", func() runtime.Object {
			return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("churn"), RenewTime: ptr.To(metav1.NowMicro())}}
		}),
		written("discovery.k8s.io", "v1", "endpointslices", func() runtime.Object {
			return &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.2.0.7"}}}}
		}),
		written("networking.k8s.io", "v1", "networkpolicies", func() runtime.Object {
			return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}}}
		}),
		written("rbac.authorization.k8s.io", "v1", "roles", func() runtime.Object {
			return &rbacv1.Role{Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
		}),
		node,
	}
}

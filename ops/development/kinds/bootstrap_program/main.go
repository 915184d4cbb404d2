// Program bootstrap prints the objects that kube-apiserver of the linked release of Kubernetes makes at its first start,
// as JSON: with all feature gates on, and without each gate that some object asks for. See
// ops/development/kinds/bootstrap.py.
package main

import (
	"encoding/json"
	"os"

	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// gates are all on but one. They note the gates that are asked for.
type gates struct {
	featuregate.FeatureGate
	off   featuregate.Feature
	asked map[featuregate.Feature]bool
}

func (g *gates) Enabled(name featuregate.Feature) bool {
	g.asked[name] = true
	return name != g.off
}

func main() {
	usual := utilfeature.DefaultFeatureGate
	asked := map[featuregate.Feature]bool{}
	without := func(off featuregate.Feature) map[string]any {
		utilfeature.DefaultFeatureGate = &gates{usual, off, asked}
		return objects()
	}
	all := without("")
	names := []featuregate.Feature{}
	for name := range asked {
		names = append(names, name)
	}
	fewer := map[featuregate.Feature]any{}
	for _, name := range names {
		fewer[name] = without(name)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"all": all, "without": fewer}); err != nil {
		panic(err)
	}
}

func objects() map[string]any {
	return map[string]any{
		"clusterroles":        append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...),
		"clusterrolebindings": append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...),
		"roles":               flat(bootstrappolicy.NamespaceRoles()),
		"rolebindings":        flat(bootstrappolicy.NamespaceRoleBindings()),
		"flowschemas":         append(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas...),
		"prioritylevelconfigurations": append(
			bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations...),
	}
}

// flat returns the objects of all namespaces.
func flat[T any](byNamespace map[string][]T) []T {
	all := []T{}
	for _, listed := range byNamespace {
		all = append(all, listed...)
	}
	return all
}

// Program gates prints the feature gates that kube-apiserver of the linked release of Kubernetes knows, as JSON: for each
// one its states by version, and the gates that it needs. See ops/development/kinds/gates.py.
package main

import (
	"encoding/json"
	"os"
	"sort"

	_ "k8s.io/apiextensions-apiserver/pkg/features"
	_ "k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logs "k8s.io/component-base/logs/api/v1"
	metrics "k8s.io/component-base/metrics/features"
	_ "k8s.io/controller-manager/pkg/features/register"
	_ "k8s.io/kubernetes/pkg/features"
)

// spec is the state of a gate from a version on. Compatibility is the lowest --min-compatibility-version at which it
// holds, if there is one.
type spec struct {
	Version       string `json:"version"`
	Stage         string `json:"stage"`
	Default       bool   `json:"default"`
	Locked        bool   `json:"locked,omitempty"`
	Compatibility string `json:"compatibility,omitempty"`
}

type gate struct {
	Specs []spec   `json:"specs"`
	Needs []string `json:"needs,omitempty"`
}

func main() {
	gates := utilfeature.DefaultMutableFeatureGate
	// kube-apiserver adds these when it starts, the others when they are linked.
	for _, add := range []func(featuregate.MutableVersionedFeatureGate) error{logs.AddFeatureGates, metrics.AddFeatureGates} {
		if err := add(gates); err != nil {
			panic(err)
		}
	}
	needs := gates.Dependencies()
	found := map[string]gate{}
	for name, specs := range gates.GetAllVersioned() {
		made := gate{}
		for _, each := range specs {
			made.Specs = append(made.Specs, specOf(each))
		}
		for _, other := range needs[name] {
			made.Needs = append(made.Needs, string(other))
		}
		sort.Strings(made.Needs)
		found[string(name)] = made
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}

func specOf(given featuregate.FeatureSpec) spec {
	made := spec{
		Version: given.Version.String(),
		Stage:   string(given.PreRelease),
		Default: given.Default,
		Locked:  given.LockToDefault,
	}
	if given.MinCompatibilityVersion != nil {
		made.Compatibility = given.MinCompatibilityVersion.String()
	}
	return made
}

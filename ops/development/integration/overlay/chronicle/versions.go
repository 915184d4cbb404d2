package chronicle

import (
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// Versions are the feature gates and the version of one server, which start as those of the process.
type Versions struct {
	Registry basecompatibility.ComponentGlobalsRegistry
	gates    featuregate.MutableVersionedFeatureGate
	version  basecompatibility.MutableEffectiveVersion
}

// NewVersions returns those for a server. binary: the version that it pretends to be; "": its own.
func NewVersions(binary string) (*Versions, error) {
	v := &Versions{
		Registry: basecompatibility.NewComponentGlobalsRegistry(),
		gates:    utilfeature.DefaultMutableFeatureGate.DeepCopy(),
		version:  compatibility.DefaultKubeEffectiveVersionForTest(),
	}
	if binary != "" {
		v.version = basecompatibility.NewEffectiveVersionFromString(binary, "", "")
	}
	v.version.SetEmulationVersion(v.gates.EmulationVersion())
	v.version.SetMinCompatibilityVersion(v.gates.MinCompatibilityVersion())
	return v, v.Registry.Register(basecompatibility.DefaultKubeComponent, v.version, v.gates)
}

// Take makes the gates those of the process until the end of the test, whose own code depends on them. It returns the
// version that the test emulates, "" for the usual one.
func (v *Versions) Take(t featuregatetesting.TB) string {
	usual := utilfeature.DefaultMutableFeatureGate
	same := v.gates.EmulationVersion().EqualTo(usual.EmulationVersion())
	if !same || !v.gates.MinCompatibilityVersion().EqualTo(usual.MinCompatibilityVersion()) {
		featuregatetesting.SetFeatureGateVersionsDuringTest(
			t, usual, v.version.EmulationVersion(), v.version.MinCompatibilityVersion(),
		)
	}
	changed := map[featuregate.Feature]bool{}
	for name := range usual.GetAll() {
		if on := v.gates.Enabled(name); on != utilfeature.DefaultFeatureGate.Enabled(name) {
			changed[name] = on
		}
	}
	if len(changed) > 0 {
		featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, changed)
	}
	binary := compatibility.DefaultKubeEffectiveVersionForTest().BinaryVersion()
	if v.version.BinaryVersion().EqualTo(binary) && v.version.EmulationVersion().EqualTo(binary) {
		return ""
	}
	return v.version.EmulationVersion().String()
}

package chronicle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
)

// Flags are values by the names of kube-apiserver's flags.
type Flags map[string]string

// ours are flags that Start sets itself, or that mean nothing to a server without etcd, watch cache and klog.
var ours = strings.Fields(`
	authentication-kubeconfig authentication-skip-lookup authorization-always-allow-paths authorization-kubeconfig
	bind-address cert-dir contention-profiling default-watch-cache-size delete-collection-workers
	emulated-version enable-garbage-collector external-hostname feature-gates kubeconfig lease-reuse-duration-seconds
	logging-format min-compatibility-version secure-port storage-backend storage-media-type watch-cache
	watch-cache-sizes`)

// Changed returns the flags that a test has changed from their defaults.
func Changed(given, defaults cliflag.NamedFlagSets) Flags {
	changed, usually := Flags{}, All(defaults)
	All(given).VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "etcd-") || slices.Contains(ours, flag.Name) {
			return
		}
		if usual := usually.Lookup(flag.Name); usual == nil || usual.Value.String() != flag.Value.String() {
			changed[flag.Name] = valueOf(flag)
		}
	})
	return changed
}

// All returns the flags of all sections.
func All(named cliflag.NamedFlagSets) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range named.FlagSets {
		all.AddFlagSet(set)
	}
	return all
}

// valueOf returns the value as a command line has it: lists without brackets.
func valueOf(flag *pflag.Flag) string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	text := flag.Value.String()
	if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.ReplaceAll(strings.TrimSuffix(inner, "]"), " ", ",")
	}
	return text
}

// gates returns the feature gates of this process that differ from the defaults of its version.
func gates() Flags {
	changed := Flags{}
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if on := utilfeature.DefaultFeatureGate.Enabled(name); on != spec.Default {
			changed[string(name)] = fmt.Sprint(on)
		}
	}
	return changed
}

func (f Flags) setDefault(name, value string) {
	if f[name] == "" {
		f[name] = value
	}
}

// add adds a value to those of a list.
func (f Flags) add(name, value string) { f[name] = strings.TrimPrefix(f[name]+","+value, ",") }

// pairs returns name=value for each flag, in order.
func (f Flags) pairs() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		all = append(all, name+"="+f[name])
	}
	return all
}

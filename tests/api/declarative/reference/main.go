// Runs kube-apiserver's generated validation on objects, so that `record.py` can write what the compiler must find.
//
// It reads a request a line, {"group", "version", "kind", "object", "old", "options", "subresource"}, and writes the causes
// a line: [[type, field, message, level], ...]; null if the kind is of another scheme.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	_ "k8s.io/kubernetes/pkg/apis/admission/install"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apiserverinternal/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/imagepolicy/install"
	_ "k8s.io/kubernetes/pkg/apis/lifecycle/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
)

type request struct {
	Group, Version, Kind, Subresource string
	Object, Old                       json.RawMessage
	Options                           map[string]bool
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var each request
		must(json.Unmarshal(lines.Bytes(), &each))
		must(out.Encode(causes(each)))
	}
}

func causes(each request) [][]string {
	scheme := legacyscheme.Scheme
	gvk := schema.GroupVersionKind{Group: each.Group, Version: each.Version, Kind: each.Kind}
	object, err := scheme.New(gvk)
	if err != nil {
		return nil
	}
	must(json.Unmarshal(each.Object, object))
	var below []string
	if name := strings.Trim(each.Subresource, "/"); name != "" {
		below = strings.Split(name, "/")
	}
	var found field.ErrorList
	if string(each.Old) == "null" {
		found = scheme.Validate(context.Background(), each.Options, object, below...)
	} else {
		old, _ := scheme.New(gvk)
		must(json.Unmarshal(each.Old, old))
		found = scheme.ValidateUpdate(context.Background(), each.Options, object, old, below...)
	}
	result := [][]string{}
	for _, each := range found {
		level := ""
		if each.IsAlpha() {
			level = "alpha"
		} else if each.IsBeta() {
			level = "beta"
		}
		result = append(result, []string{string(each.Type), each.Field, each.ErrorBody(), level})
	}
	return result
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

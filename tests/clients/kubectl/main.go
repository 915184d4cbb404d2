// Command kubectl is the unchanged kubectl of the k8s.io/kubectl module that this Go module requires. The tests need the
// kubectl of the served API version, and Go modules provide it everywhere.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Kubeconfig files may name authentication plugins; the released kubectl has them too.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

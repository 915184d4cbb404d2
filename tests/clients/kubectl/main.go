// Command kubectl is the stock kubectl of the k8s.io/kubectl module this Go module requires, built unchanged: the tests
// want the kubectl of the API version the server speaks, and Go modules are where that one can be had everywhere.
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

package etcd

import (
	"os"
	"testing"

	apiextensionsclientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/integration"
	"k8s.io/kubernetes/test/integration/chronicle"
	"k8s.io/kubernetes/test/integration/framework"
)

// StartRealAPIServerOrDie starts kubechronicle if there is a plan, otherwise a kube-apiserver in process.
func StartRealAPIServerOrDie(t *testing.T, configFuncs ...func(*options.ServerRunOptions)) *APIServer {
	if !chronicle.Enabled() {
		return startRealAPIServerOrDieInProcess(t, configFuncs...)
	}
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	folder, err := os.MkdirTemp("", "server")
	must(err)
	versions, err := chronicle.NewVersions("")
	must(err)
	s := options.NewServerRunOptions()
	s.GenericServerRunOptions.ComponentGlobalsRegistry = versions.Registry
	s.Etcd.StorageConfig.Transport.ServerList = []string{framework.GetEtcdURL()}
	s.ServiceClusterIPRanges = "10.0.0.0/24"
	s.Authentication.APIAudiences = []string{chronicle.Issuer}
	s.Authorization.Modes = []string{"RBAC"}
	s.Admission.GenericAdmission.DisablePlugins = []string{"ServiceAccount"}
	s.APIEnablement.RuntimeConfig["api/all"] = "true"
	for _, change := range configFuncs {
		change(s)
	}
	server, err := chronicle.Start(chronicle.Request{
		Test: t.Name(), Folder: folder, Prefix: s.Etcd.StorageConfig.Prefix, Emulation: versions.Take(t),
		Flags: chronicle.Changed(s.Flags(), options.NewServerRunOptions().Flags()),
	})
	must(err)
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	definitions := apiextensionsclientset.NewForConfigOrDie(server.Config)
	CreateTestCRDs(t, definitions, false, GetCustomResourceDefinitionData()...)
	client := kubernetes.NewForConfigOrDie(server.Config)
	_, resources, err := client.Discovery().ServerGroupsAndResources()
	must(err)
	raw, keys, err := integration.GetEtcdClients(s.Etcd.StorageConfig.Transport)
	must(err)
	return &APIServer{
		Client: client, Dynamic: dynamic.NewForConfigOrDie(server.Config), Config: server.Config, KV: keys,
		Mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		Resources: GetResources(t, resources),
		Cleanup: func() {
			raw.Close()
			server.Stop()
			os.RemoveAll(folder)
		},
	}
}

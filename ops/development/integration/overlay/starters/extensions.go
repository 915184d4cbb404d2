package testing

import (
	"context"
	"io"
	"os"
	stdtesting "testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/test/integration/chronicle"
)

// StartTestServer starts kubechronicle if there is a plan, otherwise a server in process.
func StartTestServer(t Logger, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (TestServer, error) {
	if !chronicle.Enabled() {
		return startTestServerInProcess(t, instance, flags, storage)
	}
	folder, err := os.MkdirTemp("", "server")
	if err != nil {
		return TestServer{}, err
	}
	result := TestServer{TmpDir: folder}
	versions, err := chronicle.NewVersions("")
	if err != nil {
		return result, err
	}
	fresh := func() (*options.CustomResourceDefinitionsServerOptions, cliflag.NamedFlagSets) {
		s := options.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
		s.ServerRunOptions.ComponentGlobalsRegistry = versions.Registry
		var named cliflag.NamedFlagSets
		s.AddFlags(named.FlagSet("all"))
		return s, named
	}
	s, given := fresh()
	_, defaults := fresh()
	if err := chronicle.All(given).Parse(flags); err != nil {
		return result, err
	}
	if err := versions.Registry.Set(); err != nil {
		return result, err
	}
	if storage != nil {
		s.RecommendedOptions.Etcd.StorageConfig = *storage
	}
	prefix := s.RecommendedOptions.Etcd.StorageConfig.Prefix
	request := chronicle.Request{Folder: folder, Flags: chronicle.Changed(given, defaults), Store: prefix, Prefix: prefix}
	if test, ok := t.(stdtesting.TB); ok {
		request.Test, request.Emulation = test.Name(), versions.Take(test)
	}
	server, err := chronicle.Start(request)
	if err != nil {
		return result, err
	}
	makeNamespaces(server.Config)
	s.RecommendedOptions.SecureServing.BindPort = server.Port
	result.ClientConfig, result.ServerOpts = server.Config, s
	result.TearDownFn = func() {
		server.Stop()
		os.RemoveAll(folder)
	}
	return result, nil
}

// makeNamespaces makes the namespaces in which these tests create objects: their own server knows no namespaces.
func makeNamespaces(config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	for _, name := range []string{"not-the-default", "namespace", "namespace-1", "namespace-2", "ns1", "ns2", "test-ns"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{})
	}
}

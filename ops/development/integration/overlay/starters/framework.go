package framework

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/test/integration/chronicle"
)

// EtcdMain runs the tests; beside an etcd if there is no plan.
func EtcdMain(tests func() int) {
	if chronicle.Enabled() {
		os.Exit(tests())
	}
	etcdMainInProcess(tests)
}

// StartEtcd starts an etcd if there is no plan.
func StartEtcd(logger klog.Logger, tb testing.TB, forceCreate bool) {
	if !chronicle.Enabled() {
		startEtcdInProcess(logger, tb, forceCreate)
	}
}

// RunCustomEtcd starts an etcd. With a plan it returns an address that stands for a store of its own.
func RunCustomEtcd(logger klog.Logger, dataDir string, customFlags []string) (string, func(), error) {
	if chronicle.Enabled() {
		return GetEtcdURL() + "/" + uuid.NewString(), func() {}, nil
	}
	return runCustomEtcdInProcess(logger, dataDir, customFlags)
}

// StartTestServer starts kubechronicle if there is a plan, otherwise a kube-apiserver in process.
func StartTestServer(ctx context.Context, t testing.TB, setup TestServerSetup) (client.Interface, *rest.Config, TearDownFunc) {
	t.Helper()
	if !chronicle.Enabled() {
		return startTestServerInProcess(ctx, t, setup)
	}
	folder, err := os.MkdirTemp("", "server")
	must(t, err)
	versions, err := chronicle.NewVersions("")
	must(t, err)
	s := optionsInProcess(t, folder)
	s.GenericServerRunOptions.ComponentGlobalsRegistry = versions.Registry
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(s)
	}
	port, err := chronicle.FreePort()
	must(t, err)
	request := chronicle.Request{
		Test: t.Name(), Folder: folder, Port: port, Protobuf: true, Emulation: versions.Take(t),
		Flags:  chronicle.Changed(s.Flags(), options.NewServerRunOptions().Flags()),
		Store:  fmt.Sprint(s.Etcd.StorageConfig.Transport.ServerList, s.Etcd.StorageConfig.Prefix),
		Prefix: s.Etcd.StorageConfig.Prefix,
	}
	if setup.ModifyServerConfig != nil {
		translate(t, setup.ModifyServerConfig, s, &request)
	}
	server, err := chronicle.Start(request)
	must(t, err)
	made, err := client.NewForConfig(server.Config)
	must(t, err)
	return made, server.Config, func() {
		server.Stop()
		os.RemoveAll(folder)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// optionsInProcess returns the options that the starter in process begins with.
func optionsInProcess(t testing.TB, folder string) *options.ServerRunOptions {
	s := options.NewServerRunOptions()
	s.SecureServing.ServerCert.CertDirectory = folder
	s.ServiceAccountSigningKeyFile = chronicle.SigningKey()
	s.Etcd.StorageConfig.Prefix = path.Join("/", uuid.NewString(), "registry")
	s.Etcd.StorageConfig.Transport.ServerList = []string{GetEtcdURL()}
	s.ServiceClusterIPRanges = "10.0.0.0/24"
	s.Authorization.Modes = []string{"Node", "RBAC"}
	s.Authentication.APIAudiences = []string{chronicle.Issuer}
	s.Authentication.ServiceAccounts.Issuers = []string{chronicle.Issuer}
	s.Authentication.ServiceAccounts.KeyFiles = []string{s.ServiceAccountSigningKeyFile}
	s.Authentication.ClientCert.ClientCA = filepath.Join(folder, "client-ca.crt")
	headers := s.Authentication.RequestHeader
	headers.UsernameHeaders, headers.GroupHeaders = []string{"X-Remote-User"}, []string{"X-Remote-Group"}
	headers.ExtraHeaderPrefixes, headers.AllowedNames = []string{"X-Remote-Extra-"}, []string{"kube-aggregator"}
	headers.ClientCAFile = filepath.Join(folder, "proxy-ca.crt")
	for name, file := range map[string]string{"client-ca": s.Authentication.ClientCert.ClientCA, "front-proxy-ca": headers.ClientCAFile} {
		_, err := chronicle.NewAuthority(name, file)
		must(t, err)
	}
	return s
}

// translate lets the test change a configuration, and translates its changes into flags and webhooks. A test that changes
// more than a process of its own has is skipped.
func translate(t testing.TB, modify func(*controlplane.Config), s *options.ServerRunOptions, request *chronicle.Request) {
	usual := &chronicle.Placeholder{}
	generic := genericapiserver.NewConfig(legacyscheme.Codecs)
	config := &controlplane.Config{}
	config.ControlPlane.Generic = generic
	config.ControlPlane.ExtendExpiration = s.Authentication.ServiceAccounts.ExtendExpiration
	generic.LoopbackClientConfig = chronicle.ClientConfig(request.Port, "unset", true)
	generic.Authentication.Authenticator, generic.Authorization.Authorizer = usual, usual
	if s.ServiceAccountSigningKeyFile != "" {
		key, err := keyutil.PrivateKeyFromFile(s.ServiceAccountSigningKeyFile)
		must(t, err)
		config.ControlPlane.ServiceAccountIssuer, err = serviceaccount.JWTTokenGenerator(chronicle.Issuer, key)
		must(t, err)
	}
	resolver := generic.RequestInfoResolver
	func() {
		defer func() {
			if why := recover(); why != nil {
				t.Skipf("harness: the test changes the configuration of the process: %v", why)
			}
		}()
		modify(config)
	}()
	if generic.AdmissionControl != nil || generic.AuditBackend != nil || generic.AuditPolicyRuleEvaluator != nil ||
		generic.OpenAPIConfig != nil || generic.RequestInfoResolver != resolver {
		t.Skip("harness: the test replaces admission, audit, OpenAPI or the resolver of requests in the process")
	}
	if kind := config.Extra.EndpointReconcilerType; kind != "" {
		request.Flags["endpoint-reconciler-type"] = string(kind)
	}
	if longest := config.ControlPlane.ServiceAccountMaxExpiration; longest != 0 {
		request.Flags["service-account-max-token-expiration"] = longest.String()
	}
	if extend := config.ControlPlane.ExtendExpiration; extend != s.Authentication.ServiceAccounts.ExtendExpiration {
		request.Flags["service-account-extend-token-expiration"] = fmt.Sprint(extend)
	}
	if given, ok := config.ControlPlane.APIResourceConfigSource.(*serverstorage.ResourceConfig); ok {
		request.Flags["runtime-config"] = runtimeConfig(given)
	}
	if given := generic.Authentication.Authenticator; given != usual {
		request.Authenticator = given
		request.NoToken = generic.LoopbackClientConfig.BearerToken == ""
	}
	if given := generic.Authorization.Authorizer; given != usual {
		request.Authorizer, request.ThenModes = given, usual.IsAskedBy(given)
	}
}

// runtimeConfig returns the versions and resources that a configuration switches. No flag can name the group extensions.
func runtimeConfig(given *serverstorage.ResourceConfig) string {
	usual, switched := controlplane.DefaultAPIResourceConfigSource(), map[string]bool{}
	for version, on := range given.GroupVersionConfigs {
		if version.Group == "extensions" || !legacyscheme.Scheme.IsVersionRegistered(version) {
			continue
		}
		if was, known := usual.GroupVersionConfigs[version]; !known || was != on {
			switched[strings.TrimPrefix(version.String(), "/")] = on
		}
	}
	for resource, on := range given.ResourceConfigs {
		if was, known := usual.ResourceConfigs[resource]; resource.Group != "extensions" && (!known || was != on) {
			switched[resource.GroupVersion().String()+"/"+resource.Resource] = on
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(switched)) {
		all = append(all, fmt.Sprintf("%s=%t", name, switched[name]))
	}
	return strings.Join(all, ",")
}

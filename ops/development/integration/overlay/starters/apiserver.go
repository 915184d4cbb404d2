package testing

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	stdtesting "testing"

	genericapiserver "k8s.io/apiserver/pkg/server"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/test/integration/chronicle"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// hostForTests returns the name that tests give the host of their process (SetHostnameFuncForTests), "" if they do not.
// The package of servers tells no more than its digest.
func hostForTests() string {
	named := "testAPIServerID"
	if genericapiserver.NewConfig(legacyscheme.Codecs).APIServerID == "apiserver-5toptfq5wsd34qjmvecvmgbige" {
		return named
	}
	return ""
}

// StartTestServer starts kubechronicle if there is a plan, otherwise a kube-apiserver in process.
func StartTestServer(t ktesting.TB, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (TestServer, error) {
	if !chronicle.Enabled() {
		return startTestServerInProcess(t, instance, flags, storage)
	}
	t.Helper()
	if instance == nil {
		instance = NewDefaultTestServerOptions()
	}
	if instance.StorageVersionWrapFunc != nil {
		t.Skip("harness: the test wraps the storage version manager of the process")
	}
	folder, err := os.MkdirTemp("", "server")
	if err != nil {
		return TestServer{}, err
	}
	result := TestServer{TmpDir: folder}
	s, emulation, err := parse(t, instance, flags)
	if err != nil {
		return result, err
	}
	s.SecureServing.ServerCert.CertDirectory = folder
	s.Authentication.ServiceAccounts.Issuers = []string{chronicle.Issuer}
	if instance.RequestTimeout > 0 {
		s.GenericServerRunOptions.RequestTimeout = instance.RequestTimeout
	}
	if instance.EnableCertAuth {
		if err := makeAuthorities(folder, instance.ProxyCA, s); err != nil {
			return result, err
		}
	}
	store := ""
	if storage != nil {
		s.Etcd.StorageConfig = *storage
		store = fmt.Sprint(storage.Transport.ServerList, storage.Prefix)
	}
	server, err := chronicle.Start(chronicle.Request{
		Test: t.Name(), Flags: chronicle.Changed(s.Flags(), options.NewServerRunOptions().Flags()), Store: store,
		Prefix: s.Etcd.StorageConfig.Prefix, Folder: folder, Emulation: emulation, Protobuf: true,
		Unready: instance.SkipHealthzCheck, Host: hostForTests(),
	})
	if err != nil {
		return result, err
	}
	if storage != nil {
		if result.EtcdClient, _, err = GetEtcdClients(storage.Transport); err != nil {
			return result, err
		}
	}
	s.SecureServing.BindPort = server.Port
	s.SecureServing.ServerCert.CertKey.CertFile = server.CAFile
	s.SecureServing.ExternalAddress = net.IPv4(127, 0, 0, 1)
	if s.GenericServerRunOptions.AdvertiseAddress == nil {
		s.GenericServerRunOptions.AdvertiseAddress = s.SecureServing.ExternalAddress
	}
	result.ClientConfig, result.ServerOpts = server.Config, s
	result.ClientConfig.CAFile = "" // tests copy the data, as those of a client in the process
	if result.ClientConfig.CAData, err = os.ReadFile(server.CAFile); err != nil {
		return result, err
	}
	result.ClientConfig.QPS, result.ClientConfig.Burst = 1000, 10000
	result.EtcdStoragePrefix = s.Etcd.StorageConfig.Prefix
	result.TearDownFn = func() {
		if result.EtcdClient != nil {
			result.EtcdClient.Close()
		}
		server.Stop()
		os.RemoveAll(folder)
	}
	return result, nil
}

// StartTestServerOrDie does the same, and ends the test if there is no server.
func StartTestServerOrDie(t stdtesting.TB, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	t.Helper()
	result, err := StartTestServer(t, instance, flags, storage)
	if err != nil {
		t.Fatalf("failed to launch server: %v", err)
	}
	return &result
}

// parse reads the flags, and takes over their feature gates. It returns the emulated version, too.
func parse(t ktesting.TB, instance *TestServerInstanceOptions, flags []string) (*options.ServerRunOptions, string, error) {
	versions, err := chronicle.NewVersions(instance.BinaryVersion)
	if err != nil {
		return nil, "", err
	}
	s := options.NewServerRunOptions()
	s.Options.GenericServerRunOptions.ComponentGlobalsRegistry = versions.Registry
	s.ServiceClusterIPRanges = "10.0.0.0/16"
	if err := chronicle.All(s.Flags()).Parse(flags); err != nil {
		return nil, "", err
	}
	if err := versions.Registry.Set(); err != nil {
		return nil, "", err
	}
	return s, versions.Take(t), nil
}

// makeAuthorities makes the authorities of front proxies and clients, and the certificate with which the server proxies.
func makeAuthorities(folder string, given *ProxyCA, s *options.ServerRunOptions) error {
	headers := serveroptions.NewDelegatingAuthenticationOptions().RequestHeader
	flagged := s.Authentication.RequestHeader
	for target, source := range map[*[]string][]string{
		&headers.UsernameHeaders: flagged.UsernameHeaders, &headers.UIDHeaders: flagged.UIDHeaders,
		&headers.GroupHeaders: flagged.GroupHeaders, &headers.ExtraHeaderPrefixes: flagged.ExtraHeaderPrefixes,
	} {
		if len(source) > 0 {
			*target = source
		}
	}
	headers.AllowedNames = []string{"ash", "misty", "brock"}
	headers.ClientCAFile = filepath.Join(folder, "proxy-ca.crt")
	s.Authentication.RequestHeader = &headers
	var proxy *chronicle.Authority
	var err error
	if given != nil {
		proxy = &chronicle.Authority{Certificate: given.ProxySigningCert, Key: given.ProxySigningKey}
		err = chronicle.WriteCertificate(headers.ClientCAFile, given.ProxySigningCert.Raw)
	} else {
		proxy, err = chronicle.NewAuthority("front-proxy-ca", headers.ClientCAFile)
	}
	if err == nil && s.ProxyClientCertFile == "" {
		s.ProxyClientCertFile = filepath.Join(folder, "misty-crt.crt")
		s.ProxyClientKeyFile = filepath.Join(folder, "misty-crt.key")
		err = proxy.Sign("misty", s.ProxyClientCertFile, s.ProxyClientKeyFile)
	}
	if err == nil && s.Authentication.ClientCert.ClientCA == "" {
		s.Authentication.ClientCert.ClientCA = filepath.Join(folder, "client-ca.crt")
		_, err = chronicle.NewAuthority("client-ca", s.Authentication.ClientCert.ClientCA)
	}
	return err
}

// Command operator is an operator as users write them, on the unchanged controller-runtime: a Site gets a ConfigMap.
//
//	operator --kubeconfig FILE --namespace NAME [--name NAME] [--pause-at STEP]
//
// It uses the manager's cache, leader election with a Lease, a finalizer, owner references, the status subresource with
// conditions, and events. It prints one JSON document a line on stdout: {"event":"leading"|"reconciled"|"paused"|…}.
// --pause-at stops it for good before a step (configmap, status or finalizer) of the Sites that are annotated with
// "pause", so that a test can kill it there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	namespace := flag.String("namespace", "default", "the namespace of the Sites and of the Lease")
	name := flag.String("name", "operator", "the name in the printed documents")
	pauseAt := flag.String("pause-at", "", "the step before which annotated Sites stop the operator")
	flag.Parse()
	ctrl.SetLogger(klog.NewKlogr())
	if err := run(*namespace, *name, *pauseAt); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run(namespace, name, pauseAt string) error {
	config, err := ctrl.GetConfig() // of the flag --kubeconfig
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	addSites(scheme)
	lease, renew, retry := 3*time.Second, 2*time.Second, 500*time.Millisecond
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection:          true,
		LeaderElectionID:        "sites." + group,
		LeaderElectionNamespace: namespace,
		LeaseDuration:           &lease,
		RenewDeadline:           &renew,
		RetryPeriod:             &retry,
	})
	if err != nil {
		return err
	}
	sites := &siteReconciler{
		Client: manager.GetClient(), events: manager.GetEventRecorder("sites"), scheme: scheme,
		operator: name, pauseAt: pauseAt,
	}
	err = ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&corev1.ConfigMap{}).Complete(sites)
	if err != nil {
		return err
	}
	go func() {
		<-manager.Elected()
		emit(map[string]any{"event": "leading", "operator": name})
	}()
	emit(map[string]any{"event": "started", "operator": name})
	return manager.Start(context.Background())
}

var output sync.Mutex

func emit(document any) {
	line, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

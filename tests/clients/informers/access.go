package main

// The user of a kubeconfig in client-go, and an informer with a credential that changes.

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const whoamiTimeout = 20 * time.Second

// whoamiCommand prints the user of each kubeconfig: {"event":"whoami","kubeconfig",…,"user":{…},"error":""}.
func whoamiCommand(args []string) error {
	flags := flag.NewFlagSet("whoami", flag.ExitOnError)
	kubeconfigs := flags.String("kubeconfig", "", "kubeconfig files, comma-separated")
	flags.String("out", "", "not used")
	flags.Parse(args)
	for _, file := range strings.Split(*kubeconfigs, ",") {
		answer := map[string]any{"event": "whoami", "kubeconfig": file, "error": ""}
		user, err := whoami(file)
		if err != nil {
			answer["error"] = err.Error()
		}
		answer["user"] = user
		emit(answer)
	}
	return nil
}

func whoami(kubeconfig string) (user authenticationv1.UserInfo, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return user, err
	}
	config.Timeout = whoamiTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return user, err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return user, err
	}
	return review.Status.UserInfo, nil
}

// credentials counts the tokens sent, and the answers that reject one.
type credentials struct {
	sync.Mutex
	tokens  map[[sha256.Size]byte]bool
	refused int
}

type watching struct {
	next http.RoundTripper
	seen *credentials
}

// RoundTrip sees requests as they are sent: the transport above it adds the token.
func (w watching) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(request)
	w.seen.Lock()
	defer w.seen.Unlock()
	if token := sha256.Sum256([]byte(request.Header.Get("Authorization"))); !w.seen.tokens[token] {
		w.seen.tokens[token] = true
		emit(map[string]any{"event": "token", "number": len(w.seen.tokens)})
	}
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		w.seen.refused++
		emit(map[string]any{"event": "refused"})
	}
	return answer, err
}

// mounted returns the configuration that rest.InClusterConfig makes from the files in a Pod, for another folder.
func mounted(server, folder string) *rest.Config {
	return &rest.Config{
		Host:            server,
		BearerTokenFile: filepath.Join(folder, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(folder, "ca.crt")},
	}
}

// informCommand runs an informer on the ConfigMaps of a namespace until stdin ends. Its watches are short, so that each
// new one needs a valid credential. It prints
//
//	{"event":"seen","name","value"}   an object
//	{"event":"token","number"}        the first request with another token
//	{"event":"refused"}               an answer that rejects a token
func informCommand(args []string) error {
	flags := flag.NewFlagSet("inform", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file")
	server := flags.String("server", "", "URL of the server, with --mount instead of a kubeconfig")
	folder := flags.String("mount", "", "folder with token and ca.crt, as in a Pod")
	namespace := flags.String("namespace", "", "the namespace")
	watchSeconds := flags.Int64("watch-seconds", 1, "timeoutSeconds of the watches")
	flags.String("out", "", "not used")
	flags.Parse(args)

	config := mounted(*server, *folder)
	if *kubeconfig != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", *kubeconfig); err != nil {
			return err
		}
	} else if _, err := os.ReadFile(config.BearerTokenFile); err != nil {
		return err
	}
	seen := &credentials{tokens: map[[sha256.Size]byte]bool{}}
	config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return watching{next: next, seen: seen} }
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.TimeoutSeconds = watchSeconds }))
	informer := shared.Core().V1().ConfigMaps().Informer()
	report := func(object any) {
		if configMap, ok := object.(*corev1.ConfigMap); ok {
			emit(map[string]any{"event": "seen", "name": configMap.Name, "value": configMap.Data["value"]})
		}
	}
	if _, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report, UpdateFunc: func(_, object any) { report(object) },
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	shared.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the cache was not filled")
	}
	emit(map[string]any{"event": "ready"})
	waitForEnd()
	seen.Lock()
	defer seen.Unlock()
	emit(map[string]any{"event": "report", "tokens": len(seen.tokens), "refused": seen.refused})
	return nil
}

package main

// Followers: shared informer factories of every type client-go has, over the same kinds. At the end their caches are
// compared with a fresh list. For every informer:
//
//   - per object, revisions only grow (an equal one comes from a relist, and is counted as such)
//   - at the end, its cache equals a fresh list, object for object and field for field

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	syncTimeout   = 60 * time.Second
	settleTimeout = 30 * time.Second // from the end of the writing to equal caches and complete watches
	comparePause  = 200 * time.Millisecond
	listed        = 10 // differences listed in a report; the rest are counted
)

// factory is one shared informer factory and the events of its handlers.
type factory struct {
	Name        string   `json:"name"`
	Informers   int      `json:"informers"`
	Objects     int      `json:"objects"`
	Adds        int      `json:"adds"`
	Updates     int      `json:"updates"`
	Deletes     int      `json:"deletes"`
	Relisted    int      `json:"relisted"`  // updates to the same revision: the informer listed again
	Backwards   []string `json:"backwards"` // an object's revision went down
	Differences []string `json:"differences"`
	Different   int      `json:"different"`

	mutex     sync.Mutex
	revisions map[types.UID]int64
	byKind    map[schema.GroupVersionResource]cache.SharedIndexInformer
	list      func(context.Context, schema.GroupVersionResource) ([]runtime.Object, error)
}

// requests counts the requests of the informers: with WatchList there is no LIST.
type requests struct {
	sync.Mutex
	Lists      int `json:"lists"`
	WatchLists int `json:"watchLists"`
	Watches    int `json:"watches"`
	Failed     int `json:"failed"`
}

type counting struct {
	next  http.RoundTripper
	count *requests
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	answer, err := c.next.RoundTrip(request)
	c.count.Lock()
	defer c.count.Unlock()
	switch {
	case err != nil || answer.StatusCode != http.StatusOK:
		c.count.Failed++
	case query.Get("sendInitialEvents") == "true":
		c.count.WatchLists++
	case query.Get("watch") == "true":
		c.count.Watches++
	default:
		c.count.Lists++
	}
	return answer, err
}

func followCommand(args []string) error {
	flags := flag.NewFlagSet("follow", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file")
	out := flags.String("out", "", "file for the full report (stdout gets it without the lists)")
	watchSeconds := flags.Int("watch-seconds", 7, "timeoutSeconds of the plain watches: each ends and resumes again and again")
	only := flags.String("factories", "", "names of the factories to start, comma-separated (default: all)")
	flags.Parse(args)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	counted := &requests{}
	factories, err := startFactories(ctx, *kubeconfig, counted, *only)
	if err != nil {
		return err
	}
	watches, err := startWatches(ctx, *kubeconfig, *watchSeconds)
	if err != nil {
		return err
	}
	if err = waitForSync(factories); err != nil {
		return err
	}
	emit(map[string]any{"event": "ready", "informers": len(factories) * len(followedResources()), "watches": len(watches.all)})
	waitForEnd()

	counted.Lock()
	counts := map[string]int{"lists": counted.Lists, "watchLists": counted.WatchLists, "watches": counted.Watches, "failed": counted.Failed}
	counted.Unlock()
	if err = watches.complete(ctx); err != nil {
		return err
	}
	state := map[string]int64{}
	for _, f := range factories {
		if err = f.compare(ctx, state); err != nil {
			return err
		}
	}
	report := map[string]any{"event": "report", "factories": factories, "watches": watches.report(), "requests": counts}
	if *out != "" {
		full, err := json.Marshal(map[string]any{"state": state, "revisions": watches.revisions()})
		if err != nil {
			return err
		}
		if err = os.WriteFile(*out, full, 0o644); err != nil {
			return err
		}
	}
	emit(report)
	return nil
}

// startFactories starts one shared informer factory of each type. The lists for the comparison are read as JSON, by
// clients that are not counted.
func startFactories(ctx context.Context, kubeconfig string, counted *requests, only string) ([]*factory, error) {
	config := func(contentType string) *rest.Config {
		c := must(configFor(kubeconfig, contentType))
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next: next, count: counted} })
		return c
	}
	plain := must(configFor(kubeconfig, jsonType))
	typed := func(contentType string) func() *factory {
		return func() *factory {
			shared := informers.NewSharedInformerFactory(must(kubernetes.NewForConfig(config(contentType))), 0)
			f := newFactory(func(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
				return must(shared.ForResource(gvr)).Informer()
			})
			f.list = typedLister(must(kubernetes.NewForConfig(plain)))
			shared.Start(ctx.Done())
			return f
		}
	}
	sorts := map[string]func() *factory{
		"typed protobuf": typed(protobufType),
		"typed JSON":     typed(jsonType),
		"dynamic": func() *factory {
			shared := dynamicinformer.NewDynamicSharedInformerFactory(must(dynamic.NewForConfig(config(jsonType))), 0)
			f := newFactory(func(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
				return shared.ForResource(gvr).Informer()
			})
			client := must(dynamic.NewForConfig(plain))
			f.list = func(ctx context.Context, gvr schema.GroupVersionResource) ([]runtime.Object, error) {
				return items(client.Resource(gvr).List(ctx, metav1.ListOptions{}))
			}
			shared.Start(ctx.Done())
			return f
		},
		"metadata": func() *factory {
			shared := metadatainformer.NewSharedInformerFactory(must(metadata.NewForConfig(config(protobufType))), 0)
			f := newFactory(func(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
				return shared.ForResource(gvr).Informer()
			})
			client := must(metadata.NewForConfig(plain))
			f.list = func(ctx context.Context, gvr schema.GroupVersionResource) ([]runtime.Object, error) {
				return items(client.Resource(gvr).List(ctx, metav1.ListOptions{}))
			}
			shared.Start(ctx.Done())
			return f
		},
	}
	var all []*factory
	for name, start := range sorts {
		if only != "" && !slices.Contains(strings.Split(only, ","), name) {
			continue
		}
		f := start()
		f.Name = name
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no such factories: %s", only)
	}
	return all, nil
}

func items[L runtime.Object](list L, err error) ([]runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

// typedLister lists any kind into its own list type through the generic informer's client.
func typedLister(client kubernetes.Interface) func(context.Context, schema.GroupVersionResource) ([]runtime.Object, error) {
	return func(ctx context.Context, gvr schema.GroupVersionResource) ([]runtime.Object, error) {
		return items(restClientOf(client, gvr).Get().Resource(gvr.Resource).Do(ctx).Get())
	}
}

func restClientOf(client kubernetes.Interface, gvr schema.GroupVersionResource) rest.Interface {
	switch gvr.Group {
	case "apps":
		return client.AppsV1().RESTClient()
	case "batch":
		return client.BatchV1().RESTClient()
	case "coordination.k8s.io":
		return client.CoordinationV1().RESTClient()
	case "discovery.k8s.io":
		return client.DiscoveryV1().RESTClient()
	case "networking.k8s.io":
		return client.NetworkingV1().RESTClient()
	case "policy":
		return client.PolicyV1().RESTClient()
	case "rbac.authorization.k8s.io":
		return client.RbacV1().RESTClient()
	case "autoscaling":
		return client.AutoscalingV2().RESTClient()
	}
	return client.CoreV1().RESTClient()
}

func newFactory(informerFor func(schema.GroupVersionResource) cache.SharedIndexInformer) *factory {
	f := &factory{Backwards: []string{}, Differences: []string{}, revisions: map[types.UID]int64{},
		byKind: map[schema.GroupVersionResource]cache.SharedIndexInformer{}}
	for _, gvr := range followedResources() {
		informer := informerFor(gvr)
		must(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { f.saw(gvr, object, &f.Adds) },
			UpdateFunc: func(_, object any) { f.saw(gvr, object, &f.Updates) },
			DeleteFunc: func(object any) { f.saw(gvr, object, &f.Deletes) },
		}))
		f.byKind[gvr] = informer
	}
	f.Informers = len(f.byKind)
	return f
}

func (f *factory) saw(gvr schema.GroupVersionResource, object any, counter *int) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj // missed while disconnected: a relist found it deleted; its last known state was seen before
	}
	accessor := must(meta.Accessor(object))
	revision := revisionOf(object.(runtime.Object))
	f.mutex.Lock()
	defer f.mutex.Unlock()
	*counter++
	before := f.revisions[accessor.GetUID()]
	switch {
	case revision < before:
		f.Backwards = append(f.Backwards, fmt.Sprintf("%s %s/%s: %d after %d", gvr.Resource, accessor.GetNamespace(), accessor.GetName(), revision, before))
	case revision == before:
		f.Relisted++
	default:
		f.revisions[accessor.GetUID()] = revision
	}
}

func waitForSync(factories []*factory) error {
	var synced []cache.InformerSynced
	for _, f := range factories {
		for _, informer := range f.byKind {
			synced = append(synced, informer.HasSynced)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
	defer cancel()
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	var missing []string
	for _, f := range factories {
		for gvr, informer := range f.byKind {
			if !informer.HasSynced() {
				missing = append(missing, f.Name+" "+gvr.Resource)
			}
		}
	}
	return fmt.Errorf("not synced within %s: %s", syncTimeout, strings.Join(missing, ", "))
}

// compare compares every cache with a fresh list until they are equal or settleTimeout is over. It adds the listed
// objects to state (resource/namespace/name -> revision).
func (f *factory) compare(ctx context.Context, state map[string]int64) error {
	end := time.Now().Add(settleTimeout)
	for gvr, informer := range f.byKind {
		for {
			fresh, err := f.list(ctx, gvr)
			if err != nil {
				return fmt.Errorf("listing %s: %w", gvr.Resource, err)
			}
			differences := differences(gvr, informer.GetStore(), fresh)
			if len(differences) > 0 && time.Now().Before(end) {
				time.Sleep(comparePause)
				continue
			}
			f.Objects += len(fresh)
			f.Different += len(differences)
			f.Differences = append(f.Differences, differences[:min(len(differences), max(0, listed-len(f.Differences)))]...)
			for _, object := range fresh {
				accessor := must(meta.Accessor(object))
				state[gvr.GroupResource().String()+"/"+accessor.GetNamespace()+"/"+accessor.GetName()] = revisionOf(object)
			}
			break
		}
	}
	return nil
}

func differences(gvr schema.GroupVersionResource, store cache.Store, fresh []runtime.Object) (found []string) {
	seen := map[string]bool{}
	for _, object := range fresh {
		key := must(cache.MetaNamespaceKeyFunc(object))
		seen[key] = true
		cached, exists, _ := store.GetByKey(key)
		switch {
		case !exists:
			found = append(found, fmt.Sprintf("%s %s: not in the cache", gvr.Resource, key))
		case revisionOf(cached.(runtime.Object)) != revisionOf(object):
			found = append(found, fmt.Sprintf("%s %s: cached at %d, listed at %d", gvr.Resource, key, revisionOf(cached.(runtime.Object)), revisionOf(object)))
		case !equal(cached.(runtime.Object), object):
			found = append(found, fmt.Sprintf("%s %s: same revision, other content: %s, listed %s", gvr.Resource, key, short(cached), short(object)))
		}
	}
	for _, key := range store.ListKeys() {
		if !seen[key] {
			found = append(found, fmt.Sprintf("%s %s: in the cache, not in the list", gvr.Resource, key))
		}
	}
	return found
}

// equal compares content. Items of a list need not have a kind, objects of a watch do.
func equal(a, b runtime.Object) bool {
	if left, ok := a.(*unstructured.Unstructured); ok {
		return reflect.DeepEqual(left.Object, b.(*unstructured.Unstructured).Object)
	}
	a, b = a.DeepCopyObject(), b.DeepCopyObject()
	a.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	b.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return apiequality.Semantic.DeepEqual(a, b)
}

func short(object any) string {
	text, _ := json.Marshal(object)
	return string(text[:min(len(text), 1500)])
}

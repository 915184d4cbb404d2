package main

// Writers. Each is the only writer of its objects. Every write has the resourceVersion it builds on, so that a request
// without an answer cannot take effect after a later one.
//
// The outcome of a write is one of
//
//	acknowledged   the server answered
//	recovered      the answer was lost, and the object has the number of the write
//	a failure      an answer that a correct server never gives to this writer: reported, and the test fails
//
// Errors that permit a retry (connection lost, 429, 5xx) are retried until giveUp.

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	stampAnnotation = "churn" // the number of the last write of the object
	finalizer       = "example.com/churn"
	requestTimeout  = 40 * time.Second // longer than the server's own timeout, so that the server answers first
	giveUp          = 90 * time.Second // how long a write is retried: every disturbance of the tests is shorter
	retryPause      = 100 * time.Millisecond
	progressStep    = 50
)

type account struct {
	sync.Mutex
	Event        string           `json:"event"`
	Created      int              `json:"created"`
	Updated      int              `json:"updated"`
	Deleted      int              `json:"deleted"`
	Retries      int              `json:"retries"`
	Recovered    int              `json:"recovered"`
	Failures     []string         `json:"failures"`
	Acknowledged []int64          `json:"acknowledged"` // the revision of every acknowledged write
	Objects      map[string]int64 `json:"objects"`      // resource/namespace/name -> last revision; 0: deleted
	Seconds      float64          `json:"seconds"`

	done, of int
}

func writeCommand(args []string) error {
	flags := flag.NewFlagSet("write", flag.ExitOnError)
	kubeconfigs := flags.String("kubeconfig", "", "kubeconfig files, comma-separated: the writers take turns on them")
	objects := flags.Int("objects", 2000, "how many objects to create")
	writers := flags.Int("writers", 8, "how many writers")
	seed := flags.Int64("seed", 1, "seed of the changes of each object")
	prefix := flags.String("prefix", "churn", "prefix of names and namespaces")
	out := flags.String("out", "", "file for the full report (stdout gets it without the lists)")
	flags.Parse(args)

	a := &account{Event: "report", Objects: map[string]int64{}, Failures: []string{}, of: *objects}
	files := strings.Split(*kubeconfigs, ",")
	start := time.Now()
	var group sync.WaitGroup
	for n := range *writers {
		contentType := []string{protobufType, jsonType}[n%2]
		w, err := newWriter(a, files[n/2%len(files)], contentType, *prefix, n, *seed)
		if err != nil {
			return err
		}
		group.Add(1)
		go func() {
			defer group.Done()
			w.run(*objects / *writers)
		}()
	}
	group.Wait()
	a.Seconds = time.Since(start).Seconds()
	if *out != "" {
		full, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if err = os.WriteFile(*out, full, 0o644); err != nil {
			return err
		}
		a.Acknowledged, a.Objects = nil, nil
	}
	emit(a)
	return nil
}

type writer struct {
	*account
	clients   map[schema.GroupVersion]rest.Interface
	kinds     []writtenKind
	namespace string
	prefix    string
	number    int
	random    *rand.Rand
	stamps    int
}

func newWriter(a *account, kubeconfig, contentType, prefix string, number int, seed int64) (*writer, error) {
	w := &writer{account: a, clients: map[schema.GroupVersion]rest.Interface{}, kinds: writtenKinds(), prefix: prefix, number: number,
		namespace: fmt.Sprintf("%s-%d", prefix, number), random: rand.New(rand.NewSource(seed*1000 + int64(number)))}
	for _, kind := range w.kinds {
		config, err := configFor(kubeconfig, contentType)
		if err != nil {
			return nil, err
		}
		gv := kind.GroupVersion()
		config.GroupVersion = &gv
		config.APIPath = "/apis"
		if gv.Group == "" {
			config.APIPath = "/api"
		}
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		config.Timeout = requestTimeout
		if w.clients[gv], err = rest.RESTClientFor(config); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *writer) run(objects int) {
	if err := w.ensureNamespace(); err != nil {
		w.Lock()
		w.Failures = append(w.Failures, fmt.Sprintf("create namespace %s: %v", w.namespace, err))
		w.Unlock()
		return
	}
	for i := range objects {
		t := &thing{w: w, kind: w.kinds[i%len(w.kinds)], name: fmt.Sprintf("%s-%d-%d", w.prefix, w.number, i), namespace: w.namespace}
		t.live()
		w.Lock()
		w.done++
		if w.done%progressStep == 0 {
			emit(map[string]any{"event": "progress", "done": w.done, "of": w.of})
		}
		w.Unlock()
	}
}

// ensureNamespace is not recorded: the namespace may exist from an earlier run.
func (w *writer) ensureNamespace() (err error) {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, w.namespace)
	client := w.clients[schema.GroupVersion{Version: "v1"}]
	for end := time.Now().Add(giveUp); time.Now().Before(end); time.Sleep(retryPause) {
		request := client.Post().Resource("namespaces").SetHeader("Content-Type", jsonType).Body([]byte(body)).MaxRetries(0)
		err = request.Do(context.Background()).Error()
		if err == nil || apierrors.IsAlreadyExists(err) {
			return nil
		}
		if !tryAgain(err) {
			return err
		}
	}
	return err
}

// thing is one object with the state its writer knows.
type thing struct {
	w         *writer
	kind      writtenKind
	name      string
	namespace string
	object    runtime.Object // from the last answer
	stamp     string
}

// live creates the object, changes it one to three times in different ways, and deletes half of the objects.
func (t *thing) live() {
	held := t.w.random.Intn(4) == 0
	if !t.create(held) {
		return
	}
	for range 1 + t.w.random.Intn(3) {
		change := []func() bool{t.replace, t.mergePatch, t.jsonPatch}[t.w.random.Intn(3)]
		if !change() {
			return
		}
	}
	if t.w.random.Intn(2) == 0 {
		t.remove(held)
	}
}

func (t *thing) request(verb string) *rest.Request {
	client := t.w.clients[t.kind.GroupVersion()]
	request := map[string]func() *rest.Request{
		"POST": client.Post, "PUT": client.Put, "GET": client.Get, "DELETE": client.Delete,
	}[verb]().Resource(t.kind.Resource).NamespaceIfScoped(t.namespace, !t.kind.clusterScoped)
	if verb != "POST" {
		request.Name(t.name)
	}
	return request.MaxRetries(0)
}

func (t *thing) patch(kind types.PatchType, body []byte) *rest.Request {
	return t.w.clients[t.kind.GroupVersion()].Patch(kind).Resource(t.kind.Resource).
		NamespaceIfScoped(t.namespace, !t.kind.clusterScoped).Name(t.name).Body(body).MaxRetries(0)
}

func (t *thing) nextStamp() string {
	t.w.stamps++
	t.stamp = fmt.Sprintf("%d.%d", t.w.number, t.w.stamps)
	return t.stamp
}

func (t *thing) create(held bool) bool {
	object := t.kind.make()
	accessor := must(meta.Accessor(object))
	accessor.SetName(t.name)
	if !t.kind.clusterScoped {
		accessor.SetNamespace(t.namespace)
	}
	accessor.SetAnnotations(map[string]string{stampAnnotation: t.nextStamp()})
	accessor.SetLabels(map[string]string{"churn": t.w.prefix})
	if held {
		accessor.SetFinalizers([]string{finalizer})
	}
	return t.perform("create", func() *rest.Request { return t.request("POST").Body(object) }, &t.w.Created)
}

func (t *thing) replace() bool {
	object := t.object.DeepCopyObject()
	accessor := must(meta.Accessor(object))
	annotations := accessor.GetAnnotations()
	annotations[stampAnnotation] = t.nextStamp()
	accessor.SetAnnotations(annotations)
	return t.perform("replace", func() *rest.Request { return t.request("PUT").Body(object) }, &t.w.Updated)
}

func (t *thing) mergePatch() bool {
	body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"patched":"yes"},"annotations":{%q:%q}}}`,
		t.resourceVersion(), stampAnnotation, t.nextStamp())
	return t.perform("merge patch", func() *rest.Request { return t.patch(types.MergePatchType, []byte(body)) }, &t.w.Updated)
}

func (t *thing) jsonPatch() bool {
	body := fmt.Sprintf(`[{"op":"replace","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/metadata/annotations/%s","value":%q}]`,
		t.resourceVersion(), stampAnnotation, t.nextStamp())
	return t.perform("JSON patch", func() *rest.Request { return t.patch(types.JSONPatchType, []byte(body)) }, &t.w.Updated)
}

// remove deletes the object. One with a finalizer is deleted when that is removed.
func (t *thing) remove(held bool) {
	if held {
		if !t.perform("delete (held)", t.deletion, &t.w.Deleted) {
			return
		}
		body := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"finalizers":null}}`, t.resourceVersion())
		t.perform("release", func() *rest.Request { return t.patch(types.MergePatchType, []byte(body)) }, &t.w.Updated)
		return
	}
	t.perform("delete", t.deletion, &t.w.Deleted)
}

func (t *thing) deletion() *rest.Request {
	version := t.resourceVersion()
	background := metav1.DeletePropagationBackground // the default of a Job is to wait until its dependents are orphaned
	return t.request("DELETE").Body(&metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &version}, PropagationPolicy: &background,
	})
}

func (t *thing) resourceVersion() string { return must(meta.Accessor(t.object)).GetResourceVersion() }

// perform sends a write until its outcome is known, and records it. False: it failed, and the object is given up.
func (t *thing) perform(action string, build func() *rest.Request, counter *int) bool {
	lost := false // an earlier attempt had no answer, so this one may meet its result
	for end := time.Now().Add(giveUp); time.Now().Before(end); {
		object, err := build().Do(context.Background()).Get()
		switch {
		case err == nil:
			t.acknowledged(action, object, counter)
			return true
		case tryAgain(err):
			lost = true
			t.count(&t.w.Retries)
			time.Sleep(retryPause)
		case lost:
			// Already exists, conflict or not found: the result of an earlier attempt, or a wrong answer.
			return t.recover(action, err, counter)
		default:
			t.failed(action, err)
			return false
		}
	}
	t.failed(action, fmt.Errorf("no answer within %s", giveUp))
	return false
}

// tryAgain returns true if the request may or may not have been carried out, and must be sent again.
func tryAgain(err error) bool {
	status, isStatus := err.(apierrors.APIStatus)
	if !isStatus {
		return true // the connection broke or failed
	}
	code := status.Status().Code
	return code == http.StatusTooManyRequests || code >= 500
}

// recover reads the object to find out if a write without an answer took effect.
func (t *thing) recover(action string, refusal error, counter *int) bool {
	for end := time.Now().Add(giveUp); time.Now().Before(end); time.Sleep(retryPause) {
		object, err := t.request("GET").Do(context.Background()).Get()
		switch {
		case err != nil && apierrors.IsNotFound(err) && (action == "delete" || action == "release"):
			t.record(nil, 0, counter, &t.w.Recovered)
			return true
		case err != nil && tryAgain(err):
			continue
		case err != nil:
			t.failed(action+", then get", err)
			return false
		}
		accessor := must(meta.Accessor(object))
		happened := accessor.GetAnnotations()[stampAnnotation] == t.stamp
		switch action {
		case "delete", "release":
			happened = false // the object would not exist
		case "delete (held)":
			happened = accessor.GetDeletionTimestamp() != nil
		}
		if !happened {
			t.failed(action, fmt.Errorf("%w; but the object is still %s", refusal, accessor.GetResourceVersion()))
			return false
		}
		t.record(object, revisionOf(object), counter, &t.w.Recovered)
		return true
	}
	t.failed(action, refusal)
	return false
}

func (t *thing) acknowledged(action string, object runtime.Object, counter *int) {
	revision := revisionOf(object)
	gone := action == "delete" || action == "release"
	if status, ok := object.(*metav1.Status); ok {
		// A DELETE that took effect at once may be answered with a Status, which has no revision.
		if status.Status != metav1.StatusSuccess {
			t.failed(action, fmt.Errorf("a Status without success: %+v", status))
		}
		t.record(nil, 0, counter, nil)
		return
	}
	if action != "release" { // its answer has the object as sent, not the revision of the deletion
		t.w.Lock()
		t.w.Acknowledged = append(t.w.Acknowledged, revision)
		t.w.Unlock()
	}
	if gone {
		revision = 0
	}
	t.record(object, revision, counter, nil)
}

func (t *thing) record(object runtime.Object, revision int64, counters ...*int) {
	t.object = object
	t.w.Lock()
	defer t.w.Unlock()
	for _, counter := range counters {
		if counter != nil {
			*counter++
		}
	}
	t.w.Objects[t.key()] = revision
}

func (t *thing) key() string {
	namespace := t.namespace
	if t.kind.clusterScoped {
		namespace = ""
	}
	return t.kind.GroupResource().String() + "/" + namespace + "/" + t.name
}

func (t *thing) failed(action string, err error) {
	t.w.Lock()
	defer t.w.Unlock()
	t.w.Failures = append(t.w.Failures, fmt.Sprintf("%s %s: %v", action, t.key(), err))
}

func (t *thing) count(counter *int) {
	t.w.Lock()
	defer t.w.Unlock()
	*counter++
}

func revisionOf(object runtime.Object) int64 {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return 0
	}
	revision, _ := strconv.ParseInt(accessor.GetResourceVersion(), 10, 64)
	return revision
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

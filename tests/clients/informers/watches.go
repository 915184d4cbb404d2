package main

// A plain watch on every served resource, as JSON over HTTP, from one revision. Revisions are one gapless sequence for
// the whole server, so all watches together must see each later revision exactly once. The watches end every few seconds
// (timeoutSeconds) and resume where they stopped, as they do after a broken connection.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type plainWatch struct {
	path string
	last int64 // resume after this revision
}

// revisionRange is a part of one log: revisions above from are expected, up to to.
type revisionRange struct{ from, to int64 }

// span is the number of revisions that belong to one log (eventlog/layout.py).
const span = 100_000_000_000_000

type plainWatches struct {
	sync.Mutex
	all     []*plainWatch
	client  kubernetes.Interface
	ranges  map[int64]*revisionRange // by log: a server with several databases has a log for each
	seen    map[int64]int
	missing []int64

	events, bookmarks, resumed, broken int
	problems                           []string
}

func startWatches(ctx context.Context, kubeconfig string, seconds int) (*plainWatches, error) {
	config, err := configFor(kubeconfig, jsonType)
	if err != nil {
		return nil, err
	}
	w := &plainWatches{client: must(kubernetes.NewForConfig(config)), seen: map[int64]int{}, ranges: map[int64]*revisionRange{}, problems: []string{}}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	// The main log and that of Leases, which may be another one.
	heads, err := w.heads(ctx)
	if err != nil {
		return nil, err
	}
	for _, head := range heads {
		w.ranges[head/span] = &revisionRange{from: head}
	}
	for _, list := range lists {
		base := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			base = "/api/v1"
		}
		// events.k8s.io serves the core events a second time, and the history group every change of every object.
		if list.GroupVersion == "events.k8s.io/v1" || strings.HasPrefix(list.GroupVersion, "history.kubechronicle.dev/") {
			continue
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "watch") {
				continue
			}
			held := w.ranges[heads[0]/span]
			if resource.Name == "leases" || resource.Name == "events" {
				held = w.ranges[heads[1]/span]
			}
			w.all = append(w.all, &plainWatch{path: base + "/" + resource.Name, last: held.from})
		}
	}
	for _, one := range w.all {
		go w.follow(ctx, httpClient, config.Host, one, seconds)
	}
	return w, nil
}

// heads reads the newest revisions of the log of namespaces and of that of Leases from consistent lists.
func (w *plainWatches) heads(ctx context.Context) ([]int64, error) {
	namespaces, err := w.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	leases, err := w.client.CoordinationV1().Leases("").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	main, err := strconv.ParseInt(namespaces.ResourceVersion, 10, 64)
	if err != nil {
		return nil, err
	}
	other, err := strconv.ParseInt(leases.ResourceVersion, 10, 64)
	if err != nil || other/span == main/span {
		return []int64{main, main}, err
	}
	return []int64{main, other}, nil
}

func (w *plainWatches) follow(ctx context.Context, client *http.Client, host string, one *plainWatch, seconds int) {
	for ctx.Err() == nil {
		url := fmt.Sprintf("%s%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%d", host, one.path, seconds, one.last)
		request := must(http.NewRequestWithContext(ctx, http.MethodGet, url, nil))
		request.Header.Set("Accept", jsonType)
		answer, err := client.Do(request)
		if err == nil && answer.StatusCode == http.StatusOK {
			err = w.read(one, answer.Body)
		} else if err == nil {
			detail, _ := io.ReadAll(answer.Body)
			err = fmt.Errorf("status %d", answer.StatusCode)
			if answer.StatusCode < 500 && answer.StatusCode != http.StatusTooManyRequests {
				w.problem("%s: status %d: %.300s", one.path, answer.StatusCode, detail)
			}
		}
		if answer != nil {
			answer.Body.Close()
		}
		w.Lock()
		if err == nil {
			w.resumed++
		} else {
			w.broken++
		}
		w.Unlock()
		if err != nil {
			time.Sleep(retryPause)
		}
	}
}

type watchEvent struct {
	Type   string `json:"type"`
	Object struct {
		Code     int    `json:"code"`
		Message  string `json:"message"`
		Metadata struct {
			Namespace       string `json:"namespace"`
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	} `json:"object"`
}

// read processes one answer. It returns nil at the regular end of the watch, an error if the connection broke.
func (w *plainWatches) read(one *plainWatch, body io.Reader) error {
	decoder := json.NewDecoder(body)
	for {
		var event watchEvent
		if err := decoder.Decode(&event); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if event.Type == "ERROR" {
			w.problem("%s after %d: ERROR event %d %s", one.path, one.last, event.Object.Code, event.Object.Message)
			return nil
		}
		revision, err := strconv.ParseInt(event.Object.Metadata.ResourceVersion, 10, 64)
		if err != nil {
			w.problem("%s: an event without a revision: %s %s", one.path, event.Type, event.Object.Metadata.Name)
			continue
		}
		w.take(one, event, revision)
	}
}

func (w *plainWatches) take(one *plainWatch, event watchEvent, revision int64) {
	if event.Type == "BOOKMARK" {
		if revision < one.last {
			w.problem("%s: a bookmark at %d after %d", one.path, revision, one.last)
		}
		one.last = max(one.last, revision)
		w.Lock()
		w.bookmarks++
		w.Unlock()
		return
	}
	if revision <= one.last {
		w.problem("%s: %s %s/%s at %d after %d", one.path, event.Type, event.Object.Metadata.Namespace, event.Object.Metadata.Name, revision, one.last)
	}
	one.last = max(one.last, revision)
	w.Lock()
	defer w.Unlock()
	w.events++
	w.seen[revision]++
}

func (w *plainWatches) problem(format string, args ...any) {
	w.Lock()
	defer w.Unlock()
	if len(w.problems) < listed {
		w.problems = append(w.problems, fmt.Sprintf(format, args...))
	}
}

// complete waits, at most settleTimeout, until every revision up to the current heads and one bookmark have been seen. A
// server sends a bookmark about 5 s after a watch began, so restarts in quick succession leave no time for one before.
func (w *plainWatches) complete(ctx context.Context) error {
	heads, err := w.heads(ctx)
	if err != nil {
		return err
	}
	for _, head := range heads {
		w.ranges[head/span].to = head
	}
	for end := time.Now().Add(settleTimeout); ; time.Sleep(comparePause) {
		w.Lock()
		w.missing = []int64{}
		for _, log := range w.ranges {
			for revision := log.from + 1; revision <= log.to; revision++ {
				if w.seen[revision] == 0 {
					w.missing = append(w.missing, revision)
				}
			}
		}
		done := len(w.missing) == 0 && w.bookmarks > 0
		w.Unlock()
		if done || time.Now().After(end) {
			return nil
		}
	}
}

func (w *plainWatches) report() map[string]any {
	w.Lock()
	defer w.Unlock()
	repeated := []int64{}
	expected := int64(0)
	for _, log := range w.ranges {
		expected += log.to - log.from
	}
	events := w.events // without those above "to": servers renew Leases during the report
	for revision, times := range w.seen {
		if revision > w.ranges[revision/span].to {
			events -= times
		}
		if times > 1 {
			repeated = append(repeated, revision)
		}
	}
	return map[string]any{
		"resources": len(w.all), "logs": len(w.ranges), "expected": expected, "events": events, "bookmarks": w.bookmarks,
		"resumed": w.resumed, "broken": w.broken, "problems": w.problems, "missed": len(w.missing), "repeated": len(repeated),
		"missing": w.missing[:min(len(w.missing), listed)], "repeatedRevisions": repeated[:min(len(repeated), listed)],
	}
}

// revisions lists all revisions seen, for comparison with the answers of the writers.
func (w *plainWatches) revisions() []int64 {
	w.Lock()
	defer w.Unlock()
	all := make([]int64, 0, len(w.seen))
	for revision := range w.seen {
		all = append(all, revision)
	}
	slices.Sort(all)
	return all
}

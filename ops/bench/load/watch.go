package main

// Watch fan-out: many watchers of one namespace, and one writer that creates ConfigMaps at a fixed rate. Every watcher
// must receive every create, in order. The latency is the time from sending a create to each watcher's receipt. With
// several servers, only the writer uses the first, so that every event passes between servers.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// drainTimeout after the last write, missing events count as lost.
const drainTimeout = 30 * time.Second

// dialsAtOnce limits parallel connects during set-up, to fit any listen backlog.
const dialsAtOnce = 32

type watcher struct {
	c          *conn
	received   []time.Duration // by write number, since the fan-out's epoch; 0: not yet
	next       int             // the write number expected next
	misordered int
}

type fanOut struct {
	o        options
	epoch    time.Time
	mark     []byte // the part of an event's line before the write's number
	total    int
	watchers []*watcher
	got      atomic.Int64
}

func runWatch(o options) (map[string]any, error) {
	f := &fanOut{o: o, epoch: time.Now(), total: int(o.rate * o.seconds), mark: []byte(`"name":"watched-` + runID + `-`)}
	version, err := f.resourceVersion()
	if err != nil {
		return nil, err
	}
	setup := time.Now()
	if err = f.open(version); err != nil {
		return nil, err
	}
	opened := time.Since(setup)
	time.Sleep(time.Duration(o.warm * float64(time.Second))) // let the server rest before the counted part
	sent := make([]time.Duration, f.total)
	var writes []time.Duration
	var failed int
	var problem string
	var drained time.Duration
	took := measured(func() {
		writes, failed, problem = f.write(sent)
		last := time.Now()
		want := int64(f.total-failed) * int64(len(f.watchers))
		for f.got.Load() < want && time.Since(last) < drainTimeout {
			time.Sleep(time.Millisecond)
		}
		drained = time.Since(last)
	})
	return f.result(sent, writes, failed, problem, map[string]any{
		"seconds": took.Seconds(), "setup_seconds": opened.Seconds(), "drain_seconds": drained.Seconds(),
	}), nil
}

func (f *fanOut) resourceVersion() (string, error) {
	c, err := f.o.target.dial()
	if err != nil {
		return "", err
	}
	defer c.close()
	_, body, err := c.exchange(f.o.target.render(nil, "GET", f.o.collection()+"?limit=1", "", nil))
	if err != nil {
		return "", err
	}
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(body, &list)
	return list.Metadata.ResourceVersion, err
}

func (f *fanOut) open(version string) error {
	path := f.o.collection() + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600&resourceVersion=" + version
	request := f.o.target.render(nil, "GET", path, "", nil)
	slots, clients := make(chan struct{}, dialsAtOnce), f.o.shared()
	problems := make(chan error, f.o.watchers)
	var group sync.WaitGroup
	for i := range f.o.watchers {
		w := &watcher{received: make([]time.Duration, f.total)}
		f.watchers = append(f.watchers, w)
		group.Add(1)
		go func() {
			defer group.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			var err error
			if len(clients) > 0 {
				go f.followShared(clients[i%len(clients)], path, w)
				return
			}
			if w.c, err = f.o.target.dialTo(f.o.target.apart(i)); err == nil {
				// A server may send the head of a watch only with the first event: send now, read in follow.
				_, err = w.c.tls.Write(request)
			}
			if err != nil {
				problems <- err
				return
			}
			go f.follow(w)
		}()
	}
	group.Wait()
	select {
	case err := <-problems:
		return fmt.Errorf("opening a watch: %w", err)
	default:
		return nil
	}
}

func (f *fanOut) follow(w *watcher) {
	body, err := w.c.stream(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load: a watch was rejected:", err)
		return
	}
	f.read(body, w)
}

func (f *fanOut) followShared(c *client, path string, w *watcher) {
	answer, err := c.open(context.Background(), "GET", path, "application/json", "", nil)
	if err != nil || answer.StatusCode != 200 {
		fmt.Fprintln(os.Stderr, "load: a watch was rejected:", err)
		return
	}
	f.read(answer.Body, w)
}

func (f *fanOut) read(body io.Reader, w *watcher) {
	lines := bufio.NewReaderSize(body, 16<<10)
	for {
		line, err := lines.ReadSlice('\n')
		at := time.Since(f.epoch)
		for err == bufio.ErrBufferFull { // the rest of a long event
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return
		}
		_, after, found := bytes.Cut(line, f.mark)
		if !found {
			continue // a bookmark
		}
		digits, _, _ := bytes.Cut(after, []byte(`"`))
		n, err := strconv.Atoi(string(digits))
		if err != nil || n >= f.total {
			continue
		}
		if n != w.next || w.received[n] != 0 {
			w.misordered++
		}
		w.next = n + 1
		if w.received[n] == 0 {
			w.received[n] = at
			f.got.Add(1)
		}
	}
}

func (f *fanOut) write(sent []time.Duration) (took []time.Duration, failed int, problem string) {
	c, err := f.o.target.dialTo(f.o.target.addresses[0])
	if err != nil {
		return nil, f.total, err.Error()
	}
	defer c.close()
	path, value := f.o.collection(), text(f.o.size)
	var request, body []byte
	start := time.Now()
	for i := range f.total {
		body = f.o.object(body[:0], fmt.Sprintf("watched-%s-%d", runID, i), i, value)
		request = f.o.target.render(request, "POST", path, "", body)
		time.Sleep(time.Until(start.Add(time.Duration(float64(i) / f.o.rate * float64(time.Second)))))
		began := time.Now()
		sent[i] = began.Sub(f.epoch)
		status, answer, err := c.exchange(request)
		took = append(took, time.Since(began))
		if err != nil || status != 201 {
			failed++
			problem = fmt.Sprintf("status %d %.200s %v", status, answer, err)
			if err != nil {
				c.close()
				if c, err = f.o.target.dialTo(f.o.target.addresses[0]); err != nil {
					return took, failed + f.total - i - 1, err.Error()
				}
			}
		}
	}
	return took, failed, problem
}

func (f *fanOut) result(sent, writes []time.Duration, failed int, problem string, out map[string]any) map[string]any {
	var sample []time.Duration
	lost, misordered := 0, 0
	for _, w := range f.watchers {
		misordered += w.misordered
		for n, at := range w.received {
			if at == 0 {
				lost++
				continue
			}
			sample = append(sample, at-sent[n])
		}
	}
	lost -= failed * len(f.watchers)
	for key, value := range map[string]any{
		"operations": len(sample), "errors": failed + misordered + max(lost, 0), "problem": problem, "watchers": len(f.watchers),
		"writes": f.total, "lost": lost, "misordered": misordered, "ms": latencies(sample), "write_ms": latencies(writes),
		"per_second": float64(len(sample)) / out["seconds"].(float64),
	} {
		out[key] = value
	}
	return out
}

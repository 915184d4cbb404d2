package main

// Closed loops: every connection has one request in flight, and sends the next one after the response.

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// worker is one connection's share of a load. next returns its i-th request, counted from the start of the warm-up, so
// that names never repeat. want is the expected status.
type worker struct {
	next func(i int) []byte
	want int
	send func() (int, []byte, error) // instead of next, with another client

	c       *conn
	i       int
	sample  []time.Duration
	errors  int
	problem string
}

func (w *worker) run(t *target, until time.Time) {
	for time.Now().Before(until) {
		if w.c == nil && w.send == nil {
			var err error
			if w.c, err = t.dial(); err != nil {
				w.fail(err.Error())
				time.Sleep(10 * time.Millisecond)
				continue
			}
		}
		var request []byte
		if w.send == nil {
			request = w.next(w.i)
			w.i++
		}
		start := time.Now()
		status, answer, err := w.exchange(request)
		switch {
		case err != nil:
			w.fail(err.Error())
			if w.send == nil {
				w.c.close()
				w.c = nil
			}
		case status != w.want:
			w.fail(fmt.Sprintf("status %d: %.200s", status, answer))
		default:
			w.sample = append(w.sample, time.Since(start))
		}
	}
}

func (w *worker) exchange(request []byte) (int, []byte, error) {
	if w.send != nil {
		return w.send()
	}
	return w.c.exchange(request)
}

func (w *worker) fail(problem string) {
	w.errors++
	if w.problem == "" {
		w.problem = problem
	}
}

func closedLoop(o options, workers []*worker) (map[string]any, error) {
	if err := connect(o, workers); err != nil {
		return nil, err
	}
	runAll(o, workers, o.warm)
	forget(workers)
	took := measured(func() { runAll(o, workers, o.seconds) })
	return summary(workers, took), nil
}

// connect gives each worker its connection.
func connect(o options, workers []*worker) error {
	for _, w := range workers {
		if w.send != nil {
			continue
		}
		var err error
		if w.c, err = o.target.dial(); err != nil {
			return err
		}
	}
	return nil
}

func runAll(o options, workers []*worker, seconds float64) {
	until := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var group sync.WaitGroup
	for _, w := range workers {
		group.Add(1)
		go func() { defer group.Done(); w.run(o.target, until) }()
	}
	group.Wait()
}

// forget drops the latencies so far, but not the errors.
func forget(workers []*worker) {
	for _, w := range workers {
		w.sample = w.sample[:0]
	}
}

func summary(workers []*worker, took time.Duration) map[string]any {
	var sample []time.Duration
	errors, problem := 0, ""
	for _, w := range workers {
		sample = append(sample, w.sample...)
		errors += w.errors
		if problem == "" {
			problem = w.problem
		}
	}
	return map[string]any{
		"operations": len(sample), "seconds": took.Seconds(), "errors": errors, "problem": problem,
		"per_second": float64(len(sample)) / took.Seconds(), "ms": latencies(sample), "connections": len(workers),
	}
}

func put(o options, method, path, name, value string) error {
	c, err := o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	status, answer, err := c.exchange(o.target.render(nil, method, path, "", o.object(nil, name, 0, value)))
	if err == nil && status != 200 && status != 201 && status != 409 {
		err = fmt.Errorf("%s %s: %d %.300s", method, name, status, answer)
	}
	return err
}

func runGet(o options) (map[string]any, error) {
	name := fmt.Sprintf("get-%d", o.size)
	path := o.collection()
	if err := put(o, "POST", path, name, text(o.size)); err != nil {
		return nil, err
	}
	path += "/" + name
	if o.query != "" {
		path += "?" + o.query
	}
	request := o.target.render(nil, "GET", path, o.format, nil)
	workers, clients := make([]*worker, o.conns), o.shared()
	for n := range workers {
		workers[n] = &worker{want: 200, next: func(int) []byte { return request }}
		if len(clients) > 0 {
			c := clients[n%len(clients)]
			workers[n].send = func() (int, []byte, error) {
				body, err := c.do(context.Background(), "GET", path, "application/json", "", nil)
				return 200, body, err
			}
		}
	}
	return closedLoop(o, workers)
}

// runID makes the names of a run unique on its server.
var runID = strconv.FormatInt(time.Now().UnixMilli()%1_000_000_000, 36)

func runCreate(o options) (map[string]any, error) {
	path, value := o.collection(), text(o.size)
	workers := make([]*worker, o.conns)
	for n := range workers {
		var request, body []byte
		workers[n] = &worker{want: 201, next: func(i int) []byte {
			body = o.object(body[:0], fmt.Sprintf("create-%s-%d-%d", runID, n, i), i, value)
			request = o.target.render(request, "POST", path, "", body)
			return request
		}}
	}
	return closedLoop(o, workers)
}

// runUpdate replaces each worker's own object without a resourceVersion. Every request changes the text, because the
// server does not write unchanged objects.
func runUpdate(o options) (map[string]any, error) {
	path, value := o.collection(), text(o.size)
	workers := make([]*worker, o.conns)
	for n := range workers {
		name := fmt.Sprintf("update-%s-%d", runID, n)
		if err := put(o, "POST", path, name, value); err != nil {
			return nil, err
		}
		var request, body []byte
		workers[n] = &worker{want: 200, next: func(i int) []byte {
			body = o.object(body[:0], name, i, strconv.Itoa(1_000_000+i)+value[7:])
			request = o.target.render(request, "PUT", path+"/"+name, "", body)
			return request
		}}
	}
	return closedLoop(o, workers)
}

// runFill creates count objects with fixed names, unless they exist.
func runFill(o options) (map[string]any, error) {
	path, value := o.collection(), text(o.size)
	var next, failed atomic.Int64
	var group sync.WaitGroup
	var problem atomic.Pointer[string]
	took := measured(func() {
		for range o.conns {
			group.Add(1)
			go func() {
				defer group.Done()
				c, err := o.target.dial()
				for i := next.Add(1) - 1; err == nil && i < int64(o.count); i = next.Add(1) - 1 {
					body := o.object(nil, fmt.Sprintf("fill-%06d", i), int(i), value)
					var status int
					var answer []byte
					status, answer, err = c.exchange(o.target.render(nil, "POST", path, "", body))
					if err == nil && status != 201 && status != 409 {
						err = fmt.Errorf("status %d: %.200s", status, answer)
					}
				}
				if err != nil {
					failed.Add(1)
					message := err.Error()
					problem.Store(&message)
				}
			}()
		}
		group.Wait()
	})
	if failed.Load() > 0 {
		return nil, fmt.Errorf("filling: %s", *problem.Load())
	}
	return map[string]any{"operations": o.count, "seconds": took.Seconds(), "errors": 0, "problem": "",
		"per_second": float64(o.count) / took.Seconds()}, nil
}

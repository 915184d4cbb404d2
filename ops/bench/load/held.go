package main

// The mode held: many writes wait for a slow webhook while other clients read. Counted operations are these reads. The
// result also has the latencies of the same reads before the writes (alone_ms), and the number of writes (written).

import (
	"flag"
	"fmt"
	"sync"
	"time"
)

var heldOptions struct {
	writers int
	delay   float64
}

func init() {
	flag.IntVar(&heldOptions.writers, "held-writers", 500, "held: writes in flight, one connection each")
	flag.Float64Var(&heldOptions.delay, "webhook-delay", 2, "held: seconds for which the mutating webhook holds its answer back")
	modes["held"] = runHeld
}

func runHeld(o options) (map[string]any, error) {
	if !admissionOptions.webhooks {
		return nil, fmt.Errorf("held needs -webhooks")
	}
	name, value, path := fmt.Sprintf("get-%d", o.size), text(o.size), o.collection()
	if err := put(o, "POST", path, name, value); err != nil {
		return nil, err
	}
	request := o.target.render(nil, "GET", path+"/"+name, o.format, nil)
	readers := make([]*worker, o.conns)
	for n := range readers {
		readers[n] = &worker{want: 200, next: func(int) []byte { return request }}
	}
	writers := make([]*worker, heldOptions.writers)
	for n := range writers {
		var message, body []byte
		writers[n] = &worker{want: 201, next: func(i int) []byte {
			body = o.object(body[:0], fmt.Sprintf("held-%s-%d-%d", runID, n, i), i, value)
			message = o.target.render(message, "POST", path, "", body)
			return message
		}}
	}
	if err := connect(o, append(append([]*worker{}, readers...), writers...)); err != nil {
		return nil, err
	}

	runAll(o, readers, o.warm)
	forget(readers)
	runAll(o, readers, o.seconds)
	alone := summary(readers, 0)["ms"]

	webhookDelay.Store(int64(heldOptions.delay * float64(time.Second)))
	var writing sync.WaitGroup
	writing.Add(1)
	go func() { defer writing.Done(); runAll(o, writers, o.seconds+o.warm) }()
	time.Sleep(time.Duration(o.warm * float64(time.Second))) // all writes are in flight
	forget(readers)
	took := measured(func() { runAll(o, readers, o.seconds) })
	writing.Wait()

	result, written := summary(readers, took), summary(writers, took)
	result["alone_ms"], result["written"] = alone, written["operations"]
	result["errors"] = result["errors"].(int) + written["errors"].(int)
	if result["problem"] == "" {
		result["problem"] = written["problem"]
	}
	return result, nil
}

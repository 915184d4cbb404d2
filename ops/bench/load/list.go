package main

// Repeated LIST of a namespace over one connection. Only the objects of the first list are counted; the others must have
// the same length, so that no counting disturbs the measurement.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

type listing struct {
	objects int
	bytes   int
	pages   int
}

func runList(o options) (map[string]any, error) {
	c, err := o.target.dial()
	if err != nil {
		return nil, err
	}
	defer c.close()
	first, err := listOnce(o, c, true)
	if err != nil {
		return nil, err
	}
	if first.objects != o.count {
		return nil, fmt.Errorf("the list holds %d objects, not %d", first.objects, o.count)
	}
	var sample []time.Duration
	var failure error
	repeat := func(seconds float64) {
		for until := time.Now().Add(time.Duration(seconds * float64(time.Second))); failure == nil && time.Now().Before(until); {
			start := time.Now()
			var got listing
			if got, failure = listOnce(o, c, false); failure == nil && !similar(got, first) {
				failure = fmt.Errorf("a list of %+v after one of %+v", got, first)
			}
			sample = append(sample, time.Since(start))
		}
	}
	repeat(o.warm)
	sample = nil
	took := measured(func() { repeat(o.seconds) })
	if failure != nil {
		return nil, failure
	}
	return map[string]any{
		"operations": len(sample), "seconds": took.Seconds(), "errors": 0, "problem": "", "objects": first.objects,
		"bytes": first.bytes, "pages": first.pages, "per_second": float64(len(sample)) / took.Seconds(), "ms": latencies(sample),
	}, nil
}

// similar compares two lists, allowing differences in the list's resourceVersion, continue tokens, and ages in a table.
func similar(got, first listing) bool {
	allowed := 64 * (first.pages + first.objects)
	return got.pages == first.pages && got.bytes-first.bytes < allowed && first.bytes-got.bytes < allowed
}

func listOnce(o options, c *conn, count bool) (listing, error) {
	var got listing
	next := ""
	for {
		path := o.collection() + "?" + o.query
		if o.limit > 0 {
			path += fmt.Sprintf("&limit=%d", o.limit)
		}
		if next != "" { // the server rejects a resourceVersion together with a continue token
			path = o.collection() + fmt.Sprintf("?limit=%d&continue=%s", o.limit, next)
		}
		status, body, err := c.exchange(o.target.render(nil, "GET", path, o.format, nil))
		if err != nil {
			return got, err
		}
		if status != 200 {
			return got, fmt.Errorf("status %d: %.300s", status, body)
		}
		got.pages++
		got.bytes += len(body)
		if count {
			n, err := countObjects(o.format, body)
			if err != nil {
				return got, err
			}
			got.objects += n
		}
		if next = continueToken(o, body); next == "" {
			return got, nil
		}
	}
}

// continueToken reads the token from the start of the list: every server writes metadata before items.
func continueToken(o options, body []byte) string {
	if o.limit == 0 || o.format == "protobuf" {
		return ""
	}
	_, after, found := bytes.Cut(body[:min(len(body), 2048)], []byte(`"continue":"`))
	if !found {
		return ""
	}
	token, _, _ := bytes.Cut(after, []byte(`"`))
	return string(token)
}

func countObjects(format string, body []byte) (int, error) {
	if format == "protobuf" {
		return countProtobuf(body)
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
		Rows  []json.RawMessage `json:"rows"`
	}
	err := json.Unmarshal(body, &list)
	return len(list.Items) + len(list.Rows), err
}

// countProtobuf counts field 2 (items) of the list inside field 2 (raw) of the runtime.Unknown envelope.
func countProtobuf(body []byte) (int, error) {
	envelope, found := bytes.CutPrefix(body, []byte("k8s\x00"))
	if !found {
		return 0, errors.New("a protobuf answer without its k8s prefix")
	}
	var raw []byte
	if err := eachField(envelope, func(number uint64, value []byte) {
		if number == 2 {
			raw = value
		}
	}); err != nil {
		return 0, err
	}
	n := 0
	err := eachField(raw, func(number uint64, _ []byte) {
		if number == 2 {
			n++
		}
	})
	return n, err
}

// eachField visits the fields of a message with only length-delimited fields, such as the envelope and a list.
func eachField(message []byte, visit func(number uint64, value []byte)) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag&7 != 2 {
			return fmt.Errorf("unexpected protobuf tag %d", tag)
		}
		size, m := binary.Uvarint(message[n:])
		if m <= 0 || uint64(len(message)-n-m) < size {
			return errors.New("a protobuf field longer than its message")
		}
		message = message[n+m:]
		visit(tag>>3, message[:size])
		message = message[size:]
	}
	return nil
}

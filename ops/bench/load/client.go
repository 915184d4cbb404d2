package main

// A client like client-go's: net/http, HTTP/2 if the server offers it, one connection for all requests and watches of a
// program. It is slower than wire.go, and used where the connections matter more than the rate.

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

const protobuf = "application/vnd.kubernetes.protobuf"

type client struct {
	base  string
	token string
	http  *http.Client
}

func (t *target) client(http1 bool) *client {
	settings := t.tls.Clone()
	settings.NextProtos = nil
	if http1 {
		settings.NextProtos = []string{"http/1.1"}
	}
	transport := &http.Transport{
		TLSClientConfig: settings, ForceAttemptHTTP2: !http1, MaxIdleConnsPerHost: 25, DisableCompression: true,
		IdleConnTimeout: 90 * time.Second,
	}
	if http1 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &client{base: "https://" + t.address(), token: t.token, http: &http.Client{Transport: transport}}
}

// shared returns the clients of -http2, with one connection each.
func (o options) shared() []*client {
	clients := make([]*client, o.http2)
	for n := range clients {
		clients[n] = o.target.client(false)
	}
	return clients
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) open(ctx context.Context, method, path, accept, content string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", accept)
	request.Header.Set("User-Agent", "kubechronicle-bench")
	if content != "" {
		request.Header.Set("Content-Type", content)
	}
	return c.http.Do(request)
}

// do sends a request and returns the body of the response. A status other than 2xx is an error.
func (c *client) do(ctx context.Context, method, path, accept, content string, body []byte) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	answer, err := c.open(limited, method, path, accept, content, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = &refusal{status: answer.StatusCode, text: fmt.Sprintf("%s %s: %d %.300s", method, path, answer.StatusCode, read)}
	}
	return read, err
}

type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

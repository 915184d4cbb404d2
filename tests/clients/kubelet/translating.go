package main

import (
	"net"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// A kubelet with the feature ExtendWebSocketsToKubelet translates WebSockets to SPDY, for a container runtime that only
// speaks SPDY. Here the runtime listens at a port of its own.
type translating struct{ runtime string }

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func newTranslating() (*translating, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go http.Serve(listener, http.HandlerFunc(serve))
	return &translating{listener.Addr().String()}, nil
}

func (t *translating) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	location := &url.URL{Scheme: "http", Host: t.runtime, Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	var handler http.Handler = proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{})
	switch {
	case wsstream.IsWebSocketRequestWithTunnelingProtocol(req):
		handler = translator.NewTunnelingHandler(handler)
	case wsstream.IsWebSocketRequestWithStreamCloseProtocol(req):
		query := req.URL.Query()
		wanted := func(name string) bool { return query.Get(name) == "1" }
		options := translator.Options{
			Stdin: wanted("input"), Stdout: wanted("output"), Stderr: wanted("error"), Tty: wanted("tty"),
		}
		handler = translator.NewStreamTranslatorHandler(location, nil, 0, options)
	}
	handler.ServeHTTP(w, req)
}

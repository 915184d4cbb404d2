package main

// HTTP/1.1 exchanges over one TLS connection, one after another. Requests and responses are bytes; nothing here depends
// on Kubernetes. Redirects, trailers, 1xx responses and proxies are not supported.

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// target is one server, or several at the same host that serve the same objects.
type target struct {
	addresses []string
	next      atomic.Int64
	host      string
	tls       *tls.Config
	token     string
}

// newTarget accepts several servers and authorities, separated by commas.
func newTarget(servers, ca, tokenFile, cert, key string) (*target, error) {
	t := &target{tls: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
	for _, server := range strings.Split(servers, ",") {
		parsed, err := url.Parse(server)
		if err != nil || parsed.Scheme != "https" || parsed.Port() == "" {
			return nil, fmt.Errorf("-server must look like https://HOST:PORT, not %q", server)
		}
		t.addresses = append(t.addresses, parsed.Host)
		t.host, t.tls.ServerName = parsed.Host, parsed.Hostname()
	}
	if ca == "" {
		t.tls.InsecureSkipVerify = true
	} else {
		t.tls.RootCAs = x509.NewCertPool()
		for _, file := range strings.Split(ca, ",") {
			pem, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			t.tls.RootCAs.AppendCertsFromPEM(pem)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	if tokenFile != "" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, err
		}
		t.token = strings.TrimSpace(string(token))
	}
	return t, nil
}

var acceptHeaders = map[string]string{
	"":         "application/json",
	"json":     "application/json",
	"protobuf": "application/vnd.kubernetes.protobuf",
	"table":    "application/json;as=Table;v=v1;g=meta.k8s.io",
}

// render appends a whole request to buffer[:0].
func (t *target) render(buffer []byte, method, path, format string, body []byte) []byte {
	b := append(buffer[:0], method...)
	b = append(b, ' ')
	b = append(b, path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, t.host...)
	b = append(b, "\r\nUser-Agent: kubechronicle-bench\r\nAccept: "...)
	b = append(b, acceptHeaders[format]...)
	if t.token != "" {
		b = append(b, "\r\nAuthorization: Bearer "...)
		b = append(b, t.token...)
	}
	if body != nil {
		b = append(b, "\r\nContent-Type: application/json\r\nContent-Length: "...)
		b = strconv.AppendInt(b, int64(len(body)), 10)
	}
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

type conn struct {
	tls     *tls.Conn
	r       *bufio.Reader
	content []byte // the last response's body; valid until the next exchange
}

// exchangeTimeout makes the run fail if the server hangs.
const exchangeTimeout = 60 * time.Second

// address returns the servers' addresses in turn.
func (t *target) address() string { return t.addresses[int(t.next.Add(1)-1)%len(t.addresses)] }

// dial connects to each server in turn.
func (t *target) dial() (*conn, error) { return t.dialTo(t.address()) }

// apart returns the addresses of all servers but the first in turn; that of a single server.
func (t *target) apart(i int) string {
	if others := t.addresses[1:]; len(others) > 0 {
		return others[i%len(others)]
	}
	return t.addresses[0]
}

func (t *target) dialTo(address string) (*conn, error) {
	raw, err := net.DialTimeout("tcp", address, exchangeTimeout)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(raw, t.tls)
	secure.SetDeadline(time.Now().Add(exchangeTimeout))
	if err := secure.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	return &conn{tls: secure, r: bufio.NewReaderSize(secure, 1<<16)}, nil
}

func (c *conn) close() { c.tls.Close() }

type head struct {
	status  int
	length  int // -1: unknown
	chunked bool
	closing bool
}

// send writes a request and reads the response's head.
func (c *conn) send(request []byte) (head, error) {
	if _, err := c.tls.Write(request); err != nil {
		return head{}, err
	}
	h := head{length: -1}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return h, fmt.Errorf("not an HTTP/1.1 response: %.60q", line)
	}
	if h.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return h, err
	}
	for {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return h, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return h, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.chunked = bytes.EqualFold(value, []byte("chunked"))
		case bytes.EqualFold(name, []byte("Connection")):
			h.closing = bytes.EqualFold(value, []byte("close"))
		}
	}
}

var errClosing = errors.New("the server closed the connection after its response")

// exchange sends a request and reads the whole response. The body is valid until the next exchange. A response with
// "Connection: close" is an error, too: the load relies on persistent connections.
func (c *conn) exchange(request []byte) (int, []byte, error) {
	c.tls.SetDeadline(time.Now().Add(exchangeTimeout))
	h, err := c.send(request)
	if err != nil {
		return 0, nil, err
	}
	c.content = c.content[:0]
	switch {
	case h.chunked:
		err = c.readChunks()
	case h.length >= 0:
		err = c.readExactly(h.length)
	default:
		return h.status, nil, errors.New("a response with neither a length nor chunks")
	}
	if err == nil && h.closing {
		err = errClosing
	}
	return h.status, c.content, err
}

func (c *conn) readExactly(n int) error {
	have := len(c.content)
	if cap(c.content) < have+n {
		c.content = append(make([]byte, 0, (have+n)*3/2), c.content...)
	}
	c.content = c.content[:have+n]
	_, err := io.ReadFull(c.r, c.content[have:])
	return err
}

func (c *conn) readChunks() error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return err
		}
		if err = c.readExactly(int(size)); err != nil {
			return err
		}
		if _, err = c.r.Discard(2); err != nil || size == 0 {
			return err
		}
	}
}

// stream sends a request with an endless response (a watch) and returns its body.
func (c *conn) stream(request []byte) (io.Reader, error) {
	h, err := c.send(request)
	if err != nil {
		return nil, err
	}
	if h.status != 200 {
		detail := make([]byte, 300)
		n, _ := io.ReadAtLeast(c.r, detail, 1)
		return nil, fmt.Errorf("status %d: %s", h.status, detail[:n])
	}
	c.tls.SetDeadline(time.Time{})
	if h.chunked {
		return httputil.NewChunkedReader(c.r), nil
	}
	return c.r, nil
}

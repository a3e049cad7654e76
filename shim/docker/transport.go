package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/versions"
)

// Observe is called for each engine call that dockershim's metrics counted, with dockershim's operation name, the
// duration and the result. A streaming call counts until the stream is open.
type Observe func(operation string, took time.Duration, err error)

type operation struct {
	name    string // name in the metrics; "" if dockershim did not count it
	limited bool   // must answer within the request timeout
}

// operations lists requests that are counted or limited, by method and path. A star is an id or name; for DELETE it is
// the rest of the path.
var operations = map[string]operation{
	"GET version": {"version", true},
	"GET info":    {"info", true},

	"GET containers/json":       {"list_containers", true},
	"GET containers/*/json":     {"inspect_container", true},
	"POST containers/create":    {"create_container", true},
	"POST containers/*/start":   {"start_container", true},
	"POST containers/*/stop":    {"stop_container", true},
	"POST containers/*/update":  {"update_container", true},
	"DELETE containers/*":       {"remove_container", true},
	"GET containers/*/logs":     {"logs", false},
	"POST containers/*/exec":    {"create_exec", true},
	"GET exec/*/json":           {"inspect_exec", true},
	"POST containers/*/kill":    {"", true},
	"POST containers/*/pause":   {"", true},
	"POST containers/*/unpause": {"", true},
	"POST containers/*/resize":  {"", true},
	"POST exec/*/resize":        {"", true},
	"HEAD containers/*/archive": {"", true},

	"GET images/json":      {"list_images", true},
	"GET images/*/json":    {"inspect_image", true},
	"GET images/*/history": {"image_history", true},
	"POST images/create":   {"pull_image", false},
	"DELETE images/*":      {"remove_image", true},
}

func operationOf(method, path string) operation {
	parts := strings.Split(path, "/")
	key := method + " " + parts[0]
	switch last := parts[len(parts)-1]; {
	case len(parts) > 1 && method == http.MethodDelete:
		key += "/*"
	case len(parts) == 2:
		key += "/" + last
	case len(parts) > 2:
		key += "/*/" + last
	}
	return operations[key]
}

// spanName returns the name of a call in traces, without ids.
func spanName(_ string, r *http.Request) string {
	_, path, versioned := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v"), "/")
	if !versioned || r.URL.Path == "/_ping" {
		return "engine " + r.Method + " " + r.URL.Path
	}
	if name := operationOf(r.Method, path).name; name != "" {
		return "engine " + name
	}
	first, _, _ := strings.Cut(path, "/")
	return "engine " + r.Method + " " + first
}

// transport carries all requests except hijacked ones, for which the library dials itself. It uses the newest API
// version that both the engine and the library support, counts calls and limits the time to an answer.
//
// The library's own negotiation happens only once and has a data race. The library therefore sends its newest version,
// and the transport puts the negotiated version into the paths. dockershim's counterpart is NewInstrumentedInterface.
type transport struct {
	base    http.RoundTripper
	limit   time.Duration // Options.RequestTimeout
	observe Observe       // may be nil

	version     atomic.Pointer[string] // nil until negotiated
	negotiating chan struct{}          // held during a negotiation
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, path, versioned := strings.Cut(r.URL.Path, "/v"+api.DefaultVersion+"/")
	if !versioned {
		return t.ping(r)
	}
	operation, start := operationOf(r.Method, path), time.Now()
	ctx, cancel := r.Context(), func() {}
	limit := t.limitOf(r, operation)
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	var status error // HTTP status of a failed request, for observe; otherwise nil
	var counted bool
	end := func(err error) error {
		if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
			err = refusal{fmt.Errorf("the docker engine has not answered for %s: %w", limit, context.DeadlineExceeded)}
		}
		cancel()
		if t.observe != nil && operation.name != "" && !counted {
			t.observe(operation.name, time.Since(start), cmp.Or(err, status))
		}
		counted = true
		return err
	}
	resp, err := t.send(r.WithContext(ctx), base, path)
	if err != nil {
		return nil, end(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		status = errors.New(resp.Status)
	}
	if operation.limited {
		resp.Body = &body{resp.Body, end}
		return resp, nil
	}
	_ = end(nil)
	return resp, nil
}

type body struct {
	io.ReadCloser
	end func(error) error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF): // EOF ends the call too, because the library does not close all error responses
		_ = b.end(nil)
	case err != nil:
		err = b.end(err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	_ = b.end(nil)
	return err
}

// send sends a request with the negotiated version. If the engine refuses the version request, that response is
// returned.
func (t *transport) send(r *http.Request, base, path string) (*http.Response, error) {
	version := t.version.Load()
	if version == nil {
		refused, negotiated, err := t.negotiate(r, base)
		if refused != nil || err != nil {
			return refused, err
		}
		version = negotiated
	}
	u := *r.URL
	u.Path, u.RawPath = base+"/v"+*version+"/"+path, ""
	r.URL = &u
	return t.base.RoundTrip(r)
}

func (t *transport) negotiate(r *http.Request, base string) (refused *http.Response, version *string, err error) {
	select {
	case t.negotiating <- struct{}{}:
		defer func() { <-t.negotiating }()
	case <-r.Context().Done():
		return nil, nil, r.Context().Err()
	}
	if version := t.version.Load(); version != nil {
		return nil, version, nil
	}
	ask := &http.Request{
		Method: http.MethodGet, Host: r.Host, Header: http.Header{"User-Agent": r.Header["User-Agent"]},
		URL: &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: base + "/_ping"},
	}
	resp, err := t.base.RoundTrip(ask.WithContext(r.Context()))
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		return resp, nil, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 512) // read "OK" so that the connection can be reused
	_ = resp.Body.Close()
	version, err = t.setVersion(resp.Header.Get("Api-Version"))
	return nil, version, err
}

// ping updates the version from the response, because the engine may have been upgraded.
func (t *transport) ping(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil || resp.StatusCode >= http.StatusBadRequest {
		return resp, err
	}
	if _, err := t.setVersion(resp.Header.Get("Api-Version")); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// setVersion rejects an engine that is too old, before a call fails with an obscure error.
func (t *transport) setVersion(engine string) (*string, error) {
	if engine == "" { // an unknown version may be new enough
		engine = minAPI
	}
	if err := checkAPI(engine); err != nil {
		t.version.Store(nil) // later calls must not use the version of the previous engine
		return nil, refusal{err}
	}
	if versions.GreaterThan(engine, api.DefaultVersion) {
		engine = api.DefaultVersion
	}
	t.version.Store(&engine)
	return &engine, nil
}

const engineGrace = 10 * time.Second

// limitOf returns 0 for no limit. An inspection with the container's size is not limited, because the engine may have to
// walk all files.
func (t *transport) limitOf(r *http.Request, o operation) time.Duration {
	if !o.limited || t.limit <= 0 || r.URL.Query().Has("size") && o.name == "inspect_container" {
		return 0
	}
	if o.name != "stop_container" {
		return t.limit
	}
	grace := engineGrace
	if seconds, err := strconv.Atoi(r.URL.Query().Get("t")); err == nil {
		grace = time.Duration(seconds) * time.Second
	}
	if grace < 0 {
		return 0
	}
	return t.limit + grace
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A request is one call that a program made of the engine.
type request struct {
	method, path string // the path without the API version, with the query
	body         []byte
}

// counter stands before the engine and keeps what is asked of it.
type counter struct {
	host string // for DOCKER_HOST

	mu       sync.Mutex
	requests []request
}

var apiVersion = regexp.MustCompile(`^/v[0-9.]+/`)

// startCounter puts a counter before the engine.
func (b *bench) startCounter(name string) (*counter, error) {
	socket := filepath.Join(b.dir, name+".docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	c := &counter{host: "unix://" + socket}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "docker"})
	proxy.Transport, proxy.FlushInterval = b.engine.Transport, -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.keep(r)
		proxy.ServeHTTP(w, r)
	}), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }() // ends with Close
	b.undo = append(b.undo, s.Close)
	return c, nil
}

func (c *counter) keep(r *http.Request) {
	req := request{method: r.Method, path: apiVersion.ReplaceAllString(r.URL.RequestURI(), "/")}
	if r.ContentLength > 0 {
		req.body, _ = io.ReadAll(r.Body) // the engine will say what is missing
		r.Body = io.NopCloser(bytes.NewReader(req.body))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, req)
}

// take returns what was kept and begins again.
func (c *counter) take() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.requests
	c.requests = nil
	return kept
}

// calls counts the engine calls of commands, and those of docker. What each
// of them should be is held by a test (commands/enginecalls_engine_test.go).
func (b *bench) calls(ctx context.Context) error {
	c, err := b.startCounter("calls")
	if err != nil {
		return err
	}
	count := func(program string, args ...string) (figures, error) {
		c.take()
		err := command(ctx, nil, program, args...)
		return one(float64(len(c.take()))), err
	}
	for _, v := range []string{"images", "ps", "inspect " + b.container, "exec " + b.container + " true"} {
		args := strings.Fields(v)
		r := row{What: "engine calls of " + args[0], Unit: calls, PeerName: "docker " + args[0]}
		if r.Ours, err = count(b.crishim, append([]string{"-r", "docker://" + strings.TrimPrefix(c.host, "unix://")}, args...)...); err != nil {
			return err
		}
		if r.Peer, err = count("docker", append([]string{"-H", c.host}, args...)...); err != nil {
			return err
		}
		r.Ratio = one(r.Ours.Median / r.Peer.Median)
		b.add(r)
	}
	return nil
}

// recordPod makes one pod through a serve of its own and returns the calls that
// this made of the engine.
func (b *bench) recordPod(ctx context.Context) (*recording, error) {
	c, err := b.startCounter("record")
	if err != nil {
		return nil, err
	}
	r, err := b.startServe(ctx, "record", c.host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.stop() }()
	config := podConfig("recorded")
	// The first pod may bring the pause image along, and clear up.
	for range 2 {
		c.take()
		id, err := r.runPod(ctx, config)
		made := c.take()
		if err := errors.Join(err, r.removePod(ctx, id)); err != nil {
			return nil, err
		}
		config = podConfig("recorded")
		config.Metadata.Attempt = 1
		if rec, err := newRecording(made, id); err == nil {
			return rec, nil
		}
	}
	return nil, fmt.Errorf("nothing of a pod was recorded")
}

// A recording is the calls that made one pod.
type recording struct {
	requests []request
	id, name string
}

var nameParameter = regexp.MustCompile(`[?&]name=([^&]+)`)

func newRecording(requests []request, id string) (*recording, error) {
	for _, r := range requests {
		if r.method == http.MethodPost && strings.HasPrefix(r.path, "/containers/create") {
			if m := nameParameter.FindStringSubmatch(r.path); m != nil {
				return &recording{requests, id, m[1]}, nil
			}
		}
	}
	return nil, errors.New("no container was created")
}

// replay makes the same calls once more, for a container of another name.
func (b *bench) replay(ctx context.Context, rec *recording, name string) (id string, err error) {
	for _, r := range rec.requests {
		path := strings.ReplaceAll(strings.ReplaceAll(r.path, rec.name, name), rec.id, id)
		body := bytes.ReplaceAll(bytes.ReplaceAll(r.body, []byte(rec.name), []byte(name)), []byte(rec.id), []byte(id))
		if strings.HasPrefix(path, "/events") {
			continue // serve's own, which never ends
		}
		if !strings.HasPrefix(path, "/containers/create") {
			if err := b.call(ctx, r.method, path, bytes.NewReader(body), nil); err != nil {
				return id, err
			}
			continue
		}
		var created struct{ ID string }
		if err := b.call(ctx, r.method, path, bytes.NewReader(body), &created); err != nil {
			return "", err
		}
		id = created.ID
	}
	return id, nil
}

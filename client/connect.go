package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shimTimeout is how long the embedded shim may take to start and to answer:
// it is in this process, but the engine behind it may be busy.
const shimTimeout = 30 * time.Second

// explicit connects to an endpoint that somebody named.
func (c *Conn) explicit(ctx context.Context, o *Options, e Endpoint) (*link, string, error) {
	if e.Docker {
		return c.explicitShim(ctx, o, e)
	}
	if e.Network == "ssh" {
		return c.explicitSSH(ctx, o, e)
	}
	var a Candidate
	for try := 0; ; try++ {
		var l *link
		l, a = o.checkWithin(ctx, e)
		if l != nil {
			a.Chosen = true
			c.Candidates = append(c.Candidates, a)
			return l, a.Endpoint, nil
		}
		again := a.State == StateAbsent || a.State == StateRefused
		if !again || try >= o.MaxRetries || !pause(ctx, retryDelay(try)) {
			break
		}
		o.debugf("endpoint %s: %s; trying again", a.Endpoint, a.Detail)
	}
	c.Candidates = append(c.Candidates, a)
	return nil, "", explicitError(ctx, o, a)
}

func (o *Options) checkWithin(ctx context.Context, e Endpoint) (*link, Candidate) {
	ctx, cancel := context.WithTimeout(ctx, o.connectTimeout())
	defer cancel()
	return o.check(ctx, e)
}

// retryDelay is 0.5 s, 1 s, 2 s, 4 s and then 5 s.
func retryDelay(try int) time.Duration {
	return min(500*time.Millisecond<<min(try, 4), 5*time.Second)
}

// pause waits, and says false when the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func explicitError(ctx context.Context, o *Options, a Candidate) error {
	if err := ctx.Err(); err != nil {
		return &Error{Endpoint: a.Endpoint, Code: codes.Canceled, text: "connect to " + a.Endpoint + ": interrupted", err: err}
	}
	reason := a.reason()
	if a.State == StateHangs {
		reason = fmt.Sprintf("no answer within %s", round(o.connectTimeout()))
	}
	return &Error{
		Endpoint: a.Endpoint, Code: codes.Unavailable,
		text: fmt.Sprintf("connect to %s: %s", a.Endpoint, reason), hint: a.Hint(),
	}
}

// explicitShim starts the embedded shim on the engine that docker:// names,
// or on the one that docker itself would use.
func (c *Conn) explicitShim(ctx context.Context, o *Options, e Endpoint) (*link, string, error) {
	var engine Engine
	if e.Network == "" {
		found, tried := o.findEngineWithin(ctx)
		if found == nil {
			c.Candidates = append(c.Candidates, tried...)
			return nil, "", noEngineError(tried)
		}
		engine = *found
	} else {
		engine = o.engines(e.EngineHost())[0]
		a := Candidate{Endpoint: e.String(), Kind: KindEngine, Name: "Docker"}
		tctx, cancel := context.WithTimeout(ctx, o.connectTimeout())
		o.tryEngine(tctx, &engine, &a)
		cancel()
		if a.State != StateReady {
			c.Candidates = append(c.Candidates, a)
			return nil, "", explicitError(ctx, o, a)
		}
	}
	return c.startShim(ctx, o, engine)
}

func (o *Options) findEngineWithin(ctx context.Context) (*Engine, []Candidate) {
	ctx, cancel := context.WithTimeout(ctx, o.connectTimeout())
	defer cancel()
	return o.findEngine(ctx)
}

// startShim starts the shim and connects to it.
func (c *Conn) startShim(ctx context.Context, o *Options, engine Engine) (*link, string, error) {
	address := engineEndpoint(engine)
	a := Candidate{Endpoint: address, Kind: KindShim, Name: "built-in dockershim"}
	if o.StartShim == nil {
		return nil, "", &Error{Endpoint: address, Code: codes.Unavailable, text: "connect to " + address + ": there is no built-in dockershim here"}
	}
	fail := func(err error) (*link, string, error) {
		a.State, a.Detail = StateFailed, err.Error()
		c.Candidates = append(c.Candidates, a)
		e := &Error{Endpoint: address, Code: status.Code(err), text: "start the built-in dockershim on " + address + ": " + plain(err.Error()), err: err}
		if host, ssh := strings.CutPrefix(address, "docker+"); ssh && strings.HasPrefix(host, "ssh:") {
			e.text = "connect to " + address + ": " + remoteEngineReason(e.text)
			e.hint = "try `ssh " + host + " docker version`: docker has to run there, and this user may use it"
		}
		return nil, "", e
	}
	ctx, cancel := context.WithTimeout(ctx, shimTimeout)
	defer cancel()
	s, err := o.StartShim(ctx, engine)
	if err != nil {
		return fail(err)
	}
	c.shims = append(c.shims, s)
	l, version, err := shimLink(ctx, o, s, engine)
	if err != nil {
		return fail(err)
	}
	l.endpoint = address // what errors name
	a.State, a.API, a.Chosen = StateReady, l.api, true
	a.Detail = version.GetRuntimeName() + " " + version.GetRuntimeVersion()
	c.Candidates = append(c.Candidates, a)
	c.Engine, c.Embedded = engine, true
	return l, address, nil
}

// remoteEngineReason is why an engine behind ssh cannot be used. What the engine's
// client says of it names a host that it has made up, and how it called ssh.
func remoteEngineReason(text string) string {
	if _, said, found := strings.Cut(text, "stderr="); found {
		return strings.TrimSpace(said)
	}
	return "no Docker engine answers there"
}

// shimLink connects to the socket of the embedded shim. Its answer to a Version
// call would be what the engine has just said, with another call to the engine, so
// the shim is only asked where the engine was not.
func shimLink(ctx context.Context, o *Options, s Shim, engine Engine) (*link, *runtimeapi.VersionResponse, error) {
	e, err := ParseEndpoint(s.Endpoint())
	if err != nil {
		return nil, nil, err
	}
	l, err := newLink(o, e)
	if err != nil {
		return nil, nil, err
	}
	if engine.Version == "" || engine.APIVersion == "" {
		l.version, err = l.runtime().Version(ctx, &runtimeapi.VersionRequest{})
	} else {
		l.version = &runtimeapi.VersionResponse{Version: kubeletVersion, RuntimeName: "docker", RuntimeVersion: engine.Version, RuntimeApiVersion: apiV1}
	}
	if err != nil {
		return nil, nil, errors.Join(err, l.close())
	}
	return l, l.version, nil
}

// kubeletVersion is the version of their interface that kubelets insist on.
const kubeletVersion = "0.1.0"

// engineEndpoint is the -r that takes the shim on this engine.
func engineEndpoint(e Engine) string {
	ep, err := ParseEndpoint("docker+" + e.Host)
	if e.Host == "" || err != nil {
		return "docker://"
	}
	return ep.String()
}

// explicitImage connects to an image service of its own. It need not serve
// the runtime service, so the version call may not be there; a question
// about an image that cannot exist shows which name the service has.
func (c *Conn) explicitImage(ctx context.Context, o *Options, e Endpoint) (*link, string, error) {
	embedded, engine := c.Embedded, c.Engine
	defer func() { c.Embedded, c.Engine = embedded, engine }()
	l, address, err := c.explicit(ctx, o, e)
	last := len(c.Candidates) - 1
	if err == nil || e.Docker || e.Network == "ssh" || c.Candidates[last].State != StateNoCRI {
		return l, address, err
	}
	ictx, cancel := context.WithTimeout(ctx, o.connectTimeout())
	defer cancel()
	il, lerr := newLink(o, e)
	if lerr != nil {
		return nil, "", err
	}
	ask := &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "crishim.invalid/none"}}
	for _, api := range []string{apiV1, apiV1alpha2} {
		il.api = api
		_, ierr := il.image().ImageStatus(ictx, ask)
		switch status.Code(ierr) {
		case codes.Unimplemented, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			continue
		}
		c.Candidates[last].State, c.Candidates[last].API, c.Candidates[last].Chosen = StateReady, api, true
		c.Candidates[last].Detail = "image service"
		return il, e.String(), nil
	}
	_ = il.close()
	return nil, "", err
}

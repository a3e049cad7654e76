package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// shimTimeout is how long the embedded shim may take to start and to answer:
// it is in this process, but the engine behind it may be busy.
const shimTimeout = 30 * time.Second

// kubeletVersion is the version of their interface that kubelets insist on.
const kubeletVersion = "0.1.0"

// Connect finds the runtime that the options ask for, or that is there, and
// connects to it. The error is an *Error or a *SyntaxError. It is what PreInitRuntimeService is to
// a kubelet.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	runtime, image, err := o.parseEndpoints()
	if err != nil {
		return nil, err
	}
	c := &Conn{now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	if err := c.connect(ctx, &o, runtime, image); err != nil {
		if cerr := c.Close(); cerr != nil {
			o.debugf("close: %v", cerr)
		}
		return nil, err
	}
	for _, candidate := range c.Candidates {
		name := ""
		if candidate.Name != "" {
			name = " (" + candidate.Name + ")"
		}
		o.debugf("endpoint %s%s: %s: %s, chosen: %t", candidate.Endpoint, name, candidate.State, candidate.Detail, candidate.Chosen)
	}
	c.runtime.probing, c.image.probing = false, false
	c.Runtime, c.Image, c.Version = c.runtime.runtime(), c.image.image(), c.runtime.version
	c.RuntimeEndpoint, c.ImageEndpoint = c.runtime.endpoint, c.image.endpoint
	return c, nil
}

// parseEndpoints reads both endpoints before anything is dialled; nil stands
// for one that was not given.
func (o *Options) parseEndpoints() (runtime, image *Endpoint, err error) {
	parse := func(text string) *Endpoint {
		if text == "" || err != nil {
			return nil
		}
		var e Endpoint
		e, err = ParseEndpoint(text)
		return &e
	}
	runtime, image = parse(o.RuntimeEndpoint), parse(o.ImageEndpoint)
	return runtime, image, err
}

func (c *Conn) connect(ctx context.Context, o *Options, runtime, image *Endpoint) error {
	var list []found
	var err error
	if runtime != nil {
		list, err = o.probeNamed(ctx, *runtime, false)
	} else {
		list, err = o.discover(ctx, false)
	}
	c.Candidates = candidates(list)
	if err != nil {
		return err
	}
	chosen, skipped := chosenOf(list), skippedHint(c.Candidates)
	if c.runtime, err = o.open(ctx, chosen); err != nil {
		return withSkipped(err, skipped)
	}
	c.runtime.skipped = skipped
	c.Embedded, c.Engine = chosen.Kind == KindEngine, chosen.engine

	c.image = c.runtime
	if image == nil || runtime != nil && *image == *runtime || image.String() == c.runtime.endpoint {
		return nil
	}
	list, err = o.probeNamed(ctx, *image, true)
	c.Candidates = append(c.Candidates, candidates(list)...)
	if err == nil {
		c.image, err = o.open(ctx, chosenOf(list))
	}
	return err
}

func chosenOf(list []found) (chosen found) {
	for _, f := range list {
		if f.Chosen {
			chosen = f
		}
	}
	return chosen
}

// probeNamed probes the endpoint that was asked for, again while it is absent or refuses and
// tries are left. All but the last result failed. The image service need not come with
// a runtime service.
func (o *Options) probeNamed(ctx context.Context, e Endpoint, image bool) ([]found, error) {
	for try := 0; ; try++ {
		list := o.probeEndpoint(ctx, e, image)
		var last Candidate
		if n := len(list) - 1; n >= 0 {
			list[n].Chosen = list[n].State == StateReady
			last = list[n].Candidate
		}
		switch {
		case last.Chosen:
			return list, nil
		case ctx.Err() != nil:
			return list, &Error{Endpoint: e.String(), Code: codes.Canceled, text: "connect to " + e.String() + ": interrupted", err: ctx.Err()}
		case try < o.MaxRetries && (last.State == StateAbsent || last.State == StateRefused):
			o.debugf("endpoint %s: %s; trying again", last.Endpoint, last.Detail)
			select {
			case <-time.After(min(500*time.Millisecond<<min(try, 4), 5*time.Second)):
			case <-ctx.Done():
			}
			continue
		case e.Docker && e.Network == "":
			return list, noEngineError(list)
		}
		reason := last.reason()
		if last.State == StateHangs {
			reason = "no answer within " + round(o.limitOf(e)).String()
		}
		return list, &Error{Endpoint: e.String(), Code: codes.Unavailable, text: "connect to " + e.String() + ": " + reason, hint: last.Hint()}
	}
}

// limitOf is how long an endpoint that was asked for may take to answer.
func (o *Options) limitOf(e Endpoint) time.Duration {
	if e.Network == "ssh" && !e.Docker {
		return cmp.Or(o.ConnectTimeout, sshTimeout)
	}
	return cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
}

// probeEndpoint has one result, but for docker://, which may stand for several engines.
func (o *Options) probeEndpoint(ctx context.Context, e Endpoint, image bool) []found {
	ctx, cancel := context.WithTimeout(ctx, o.limitOf(e))
	defer cancel()
	switch {
	case e.Docker:
		return o.probeEngines(ctx, e)
	case e.Network == "ssh":
		return []found{o.probeSSH(ctx, e, image)}
	}
	return []found{o.probeCRI(ctx, e, image)}
}

// open connects to a candidate that is ready: the probe has connected to a runtime already,
// and an engine gets the embedded shim.
func (o *Options) open(ctx context.Context, f found) (*criConn, error) {
	if f.Kind != KindEngine {
		return f.conn, nil
	}
	endpoint := engineEndpoint(f.engine)
	if o.StartShim == nil {
		return nil, &Error{Endpoint: endpoint, Code: codes.Unavailable, text: "connect to " + endpoint + ": there is no embedded dockershim here"}
	}
	ctx, cancel := context.WithTimeout(ctx, shimTimeout)
	defer cancel()
	conn, err := o.startShim(ctx, f.engine)
	if err == nil {
		conn.endpoint = endpoint
		return conn, nil
	}
	e := &Error{Endpoint: endpoint, Code: status.Code(err), text: "start the embedded dockershim on " + endpoint + ": " + plain(err.Error()), err: err}
	if host, ssh := strings.CutPrefix(endpoint, "docker+ssh://"); ssh {
		e.text = "connect to " + endpoint + ": " + remoteEngineReason(e.text)
		e.hint = "try `ssh ssh://" + host + " docker version`: docker has to run there, and this user may use it"
	}
	return nil, e
}

// startShim starts the shim and connects to its socket.
func (o *Options) startShim(ctx context.Context, engine Engine) (*criConn, error) {
	shim, err := o.StartShim(ctx, engine)
	if err != nil {
		return nil, err
	}
	conn, err := o.dialShim(ctx, shim, engine)
	if err != nil {
		if cerr := shim.Close(); cerr != nil {
			o.debugf("close the embedded dockershim: %v", cerr)
		}
		return nil, err
	}
	conn.stop = shim.Close
	return conn, nil
}

// dialShim asks the shim for its version only where the engine was not asked: the shim
// would pass the question on to the engine, which has just answered it.
func (o *Options) dialShim(ctx context.Context, shim Shim, engine Engine) (*criConn, error) {
	e, err := ParseEndpoint(shim.Endpoint())
	if err != nil {
		return nil, err
	}
	conn, err := newConn(o, e)
	if err != nil {
		return nil, err
	}
	conn.version = &runtimeapi.VersionResponse{Version: kubeletVersion, RuntimeName: "docker", RuntimeVersion: engine.Version, RuntimeApiVersion: apiV1}
	if engine.Version == "" || engine.APIVersion == "" {
		if conn.version, err = conn.runtime().Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			return nil, errors.Join(err, conn.close())
		}
	}
	return conn, nil
}

// remoteEngineReason is why an engine behind ssh cannot be used. The engine's client
// names a host that it has made up, and how it called ssh.
func remoteEngineReason(text string) string {
	if _, stderr, found := strings.Cut(text, "stderr="); found {
		return strings.TrimSpace(stderr)
	}
	return "no Docker engine answers there"
}

// engineEndpoint is the -r that takes the shim on this engine.
func engineEndpoint(e Engine) string {
	ep, err := ParseEndpoint("docker+" + e.Host)
	if e.Host == "" || err != nil {
		return "docker://"
	}
	return ep.String()
}

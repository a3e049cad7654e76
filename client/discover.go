package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
)

// probed is the outcome for one known socket.
type probed struct {
	link    *link
	attempt Candidate
}

// survey probes the known sockets and looks for a Docker engine, all at the
// same time. Each result is ready when its channel is closed.
type survey struct {
	known   []probed
	done    []chan struct{}
	engine  *Engine
	engines []Candidate
	engined chan struct{}
	wait    func()
}

func (o *Options) startSurvey(ctx context.Context) *survey {
	known := o.known()
	s := &survey{known: make([]probed, len(known)), done: make([]chan struct{}, len(known)), engined: make(chan struct{})}
	var wg sync.WaitGroup
	for i, k := range known {
		s.done[i] = make(chan struct{})
		wg.Go(func() {
			defer close(s.done[i])
			s.known[i] = o.probeKnown(ctx, k, s)
		})
	}
	wg.Go(func() {
		defer close(s.engined)
		s.engine, s.engines = o.findEngine(ctx)
	})
	s.wait = wg.Wait
	return s
}

// probeKnown probes one socket. A containerd that looks like Docker's own
// waits for the search for an engine, which has the same deadline.
func (o *Options) probeKnown(ctx context.Context, k Known, s *survey) probed {
	l, a := o.check(ctx, Endpoint{Network: "unix", Address: k.Path})
	a.Name = k.Name
	if l != nil && k.Containerd && l.dockersOwn(ctx) {
		<-s.engined
		if s.engine != nil {
			a.State = StateDockersOwn
			a.Detail += ": NetworkReady is false and it has no pod, so it is there for Docker; -r " + a.Endpoint + " takes it all the same"
		}
	}
	return probed{l, a}
}

// automatic takes the first known socket that answers, else the shim.
func (c *Conn) automatic(ctx context.Context, o *Options) error {
	pctx, cancel := context.WithTimeout(ctx, o.probeTimeout())
	s := o.startSurvey(pctx)
	chosen := -1
	for i := range s.known {
		<-s.done[i]
		if s.known[i].attempt.State == StateReady {
			chosen = i
			break
		}
	}
	if chosen < 0 {
		<-s.engined
	}
	s.finish(cancel, chosen)
	c.Candidates = s.attempts(chosen, len(s.known))
	if chosen >= 0 {
		c.runtime, c.RuntimeEndpoint = s.known[chosen].link, s.known[chosen].attempt.Endpoint
		return nil
	}
	if err := ctx.Err(); err != nil {
		return &Error{Code: codes.Canceled, text: "look for a container runtime: interrupted", err: err}
	}
	if s.engine == nil || o.StartShim == nil {
		return nothingError(c.Candidates)
	}
	l, address, err := c.startShim(ctx, o, *s.engine)
	if err != nil {
		return withSetAside(err, c.Candidates)
	}
	c.runtime, c.RuntimeEndpoint = l, address
	l.aside = setAside(c.Candidates)
	return nil
}

// finish ends the probes that are still under way and closes every link but
// the chosen one.
func (s *survey) finish(cancel context.CancelFunc, chosen int) {
	open := make([]bool, len(s.known))
	for i := range s.known {
		select {
		case <-s.done[i]:
			open[i] = true
		default:
		}
	}
	cancel()
	s.wait()
	for i := range s.known {
		if !open[i] {
			s.known[i].attempt.State, s.known[i].attempt.Detail = StateNotTried, "one that goes before it was found first"
		}
		if i != chosen {
			_ = s.known[i].link.close()
		}
	}
}

func (s *survey) attempts(chosen, known int) []Candidate {
	out := make([]Candidate, 0, known+len(s.engines))
	for i, p := range s.known {
		p.attempt.Chosen = i == chosen
		out = append(out, p.attempt)
	}
	return append(out, s.engines...)
}

// Discover looks at everything that Connect would, to the end, and marks what
// Connect would take, without starting the shim. The error is Connect's, as
// far as it is known without a shim; the attempts are complete even then.
func Discover(ctx context.Context, o Options) ([]Candidate, error) {
	runtime, _, err := o.parseEndpoints()
	if err != nil {
		return nil, err
	}
	pctx, cancel := context.WithTimeout(ctx, o.probeTimeout())
	s := o.startSurvey(pctx)
	s.wait()
	chosen := -1
	for i, p := range s.known {
		if runtime == nil && chosen < 0 && p.attempt.State == StateReady {
			chosen = i
		}
	}
	s.finish(cancel, -1)
	out := s.attempts(chosen, len(s.known))
	if runtime != nil {
		return o.probeExplicit(ctx, *runtime, out)
	}
	switch {
	case chosen >= 0:
		return out, nil
	case s.engine == nil:
		return out, nothingError(out)
	}
	out[len(out)-1].Chosen = true
	return out, nil
}

// probeExplicit puts the endpoint that was asked for before the others.
func (o *Options) probeExplicit(ctx context.Context, e Endpoint, rest []Candidate) ([]Candidate, error) {
	var a Candidate
	switch {
	case e.Docker && e.Network == "":
		_, tried := o.findEngineWithin(ctx)
		a = tried[len(tried)-1]
	case e.Docker:
		a = Candidate{Kind: KindEngine, Name: "Docker"}
		tctx, cancel := context.WithTimeout(ctx, o.connectTimeout())
		engine := o.engines(e.EngineHost())[0]
		o.tryEngine(tctx, &engine, &a)
		cancel()
	case e.Network == "ssh":
		var c Conn
		l, _, err := c.explicitSSH(ctx, o, e)
		a = c.Candidates[0]
		if cerr := errors.Join(l.close(), c.Close()); cerr != nil {
			o.debugf("close: %v", cerr)
		}
		if err != nil {
			return append([]Candidate{a}, rest...), err
		}
	default:
		var l *link
		l, a = o.checkWithin(ctx, e)
		_ = l.close()
	}
	a.Endpoint = e.String()
	a.Chosen = a.State == StateReady
	out := []Candidate{a}
	for _, r := range rest {
		if r.Endpoint != a.Endpoint {
			out = append(out, r)
		} else if a.Name == "" {
			out[0].Name = r.Name
		}
	}
	if !a.Chosen {
		return out, explicitError(ctx, o, a)
	}
	return out, nil
}

// setAside names a containerd that answered but was taken for Docker's own.
func setAside(attempts []Candidate) string {
	for _, a := range attempts {
		if a.State == StateDockersOwn {
			return fmt.Sprintf("%s answers too, without pod network and pods; -r %s takes it", a.Endpoint, a.Endpoint)
		}
	}
	return ""
}

func withSetAside(err error, attempts []Candidate) error {
	return (&link{aside: setAside(attempts)}).alsoAside(err)
}

// nothingError lists what was tried. The hint is for the attempt that came
// nearest to an answer.
func nothingError(attempts []Candidate) *Error {
	var list []string
	for _, a := range attempts {
		list = append(list, fmt.Sprintf("%s (%s): %s", a.Endpoint, a.Name, a.reason()))
	}
	hint := "start a container runtime, or name its socket with -r unix:///path (docker:///path for a Docker engine)"
	for _, state := range []string{StateDenied, StateHangs, StateFailed, StateNoCRI, StateRefused} {
		if a, ok := firstIn(attempts, state); ok && a.Hint() != "" {
			hint = a.Hint()
			break
		}
	}
	return &Error{Code: codes.Unavailable, text: "no container runtime found:", list: list, hint: hint}
}

func noEngineError(tried []Candidate) error {
	err := nothingError(tried)
	err.text = "no Docker engine found:"
	if a, ok := firstIn(tried, StateDenied); !ok || a.Hint() == "" {
		err.hint = "start Docker, set DOCKER_HOST, or name its socket with -r docker:///path"
	}
	return err
}

func firstIn(attempts []Candidate, state string) (Candidate, bool) {
	for _, a := range attempts {
		if a.State == state {
			return a, true
		}
	}
	return Candidate{}, false
}

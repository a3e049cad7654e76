package client

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/engine"
)

type found struct {
	Candidate
	conn   *criConn // set for a ready CRI runtime
	engine Engine   // set for KindEngine
}

func (f found) close(o *Options) {
	if err := f.conn.close(); err != nil {
		o.debugf("close %s: %v", f.Endpoint, err)
	}
}

func candidates(list []found) []Candidate {
	var out []Candidate
	for _, f := range list {
		out = append(out, f.Candidate)
	}
	return out
}

// probeNamed probes an explicit endpoint. If the endpoint is missing or refuses, probeNamed retries at most MaxRetries
// times. Probing stops at the first ready engine, so only the last result can be ready.
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
		case (try < o.MaxRetries || o.MaxRetries < 0) && (last.State == StateAbsent || last.State == stateRefused):
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

func (o *Options) limitOf(e Endpoint) time.Duration {
	if (e.Network == "ssh" || e.Network == relayed) && !e.Docker {
		return cmp.Or(o.ConnectTimeout, remoteTimeout)
	}
	return cmp.Or(o.ConnectTimeout, defaultConnectTimeout)
}

// probeEndpoint has one result, except for docker://, which may match several engines. If a Docker engine answers at
// the address of a runtime, the result is that engine.
func (o *Options) probeEndpoint(ctx context.Context, e Endpoint, image bool) []found {
	ctx, cancel := context.WithTimeout(ctx, o.limitOf(e))
	defer cancel()
	switch {
	case e.Docker:
		return o.probeEngines(ctx, e)
	case e.Network == "ssh" && e.Path == "":
		return []found{o.probeHost(ctx, e)}
	case e.Network == "ssh":
		return []found{o.probeSSH(ctx, e, image)}
	}
	f := o.probeCRI(ctx, e, image)
	if f.State == stateDocker && !image && o.StartShim != nil {
		e.Docker = true
		return o.probeEngines(ctx, e)
	}
	return []found{f}
}

// probeCRI dials an endpoint and negotiates the CRI version. The connection of a ready candidate stays open.
func (o *Options) probeCRI(ctx context.Context, e Endpoint, image bool) found {
	f := found{Candidate: Candidate{Endpoint: e.String(), Kind: kindCRI}}
	conn, err := newConn(o, e)
	if err != nil {
		f.State, f.Detail = stateFailed, err.Error()
		return f
	}
	if err := conn.negotiate(ctx, image); err != nil {
		f.State, f.Detail = o.explain(ctx, e, err, conn.lastDialError())
		if err := conn.close(); err != nil {
			o.debugf("close %s: %v", e, err)
		}
		return f
	}
	f.State, f.API, f.Detail, f.conn = StateReady, conn.api, "image service", conn
	if v := conn.version; v != nil {
		f.Detail = v.GetRuntimeName() + " " + v.GetRuntimeVersion()
	}
	return f
}

// negotiate calls Version of both CRI versions. A separate image service may lack that call, so it is asked for the
// status of an image that cannot exist.
func (c *criConn) negotiate(ctx context.Context, image bool) (err error) {
	for _, c.api = range []string{apiV1, apiV1alpha2} {
		if c.version, err = c.runtime().Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unimplemented {
			return err
		}
	}
	if !image {
		return err
	}
	ask := &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "crishim.invalid/none"}}
	for _, c.api = range []string{apiV1, apiV1alpha2} {
		_, asked := c.image().ImageStatus(ctx, ask)
		switch status.Code(asked) {
		case codes.Unimplemented, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		default:
			return nil
		}
	}
	return err
}

// explain derives the state of an endpoint from the dial error or from the error of its Version call.
func (o *Options) explain(ctx context.Context, e Endpoint, err, dialErr error) (state, detail string) {
	if dialErr != nil {
		return dialState(e, dialErr)
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return StateNoCRI, "it speaks gRPC but serves no CRI"
	case codes.DeadlineExceeded:
		return StateHangs, "no answer"
	case codes.Canceled:
		if ctx.Err() == nil {
			return stateFailed, "it has cancelled the call: it may be stopping"
		}
		return StateNotTried, interrupted
	}
	switch p, perr := o.ping(ctx, e.Network, e.Address); {
	case perr != nil:
		return stateFailed, err.Error()
	case p.isDocker():
		return stateDocker, "Docker engine " + p.version
	}
	return stateHTTP, "it speaks HTTP"
}

const interrupted = "interrupted"

func dialState(e Endpoint, err error) (state, detail string) {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return StateAbsent, "no such socket"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return StateDenied, "permission denied"
	case errors.Is(err, syscall.ECONNREFUSED):
		if fi, serr := os.Stat(e.Address); e.Network == "unix" && serr == nil && fi.IsDir() {
			return stateFailed, "it is a directory, not a socket"
		} else if e.Network == "unix" && serr == nil && fi.Mode()&os.ModeSocket == 0 {
			return stateFailed, "it is a file, not a socket"
		}
		return stateRefused, "connection refused"
	case errors.As(err, &dns) && dns.IsNotFound:
		return StateAbsent, "no such host"
	case errors.Is(err, context.Canceled):
		return StateNotTried, interrupted
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return StateHangs, "no answer"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return stateFailed, err.Error()
}

// isDockers reports whether a containerd only serves Docker: Debian's packages leave its CRI plugin enabled, but it has
// no network and no pods.
func (c *criConn) isDockers(ctx context.Context) bool {
	st, err := c.runtime().Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return false
	}
	for _, condition := range st.GetStatus().GetConditions() {
		if condition.GetType() == runtimeapi.NetworkReady && condition.GetStatus() {
			return false
		}
	}
	pods, err := c.runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return err == nil && len(pods.GetItems()) == 0
}

func (o *Options) probeEngines(ctx context.Context, e Endpoint) []found {
	engines := []Engine{{Host: cmp.Or(e.engineHost(), "unix://"+DockerSocket)}}
	if o.Engines != nil {
		engines = o.Engines(e.engineHost())
	}
	var list []found
	for _, one := range engines {
		one.Batch = o.Batch
		f := found{Candidate: Candidate{Endpoint: cmp.Or(engine.WithoutPassword(one.Host), "docker://"), Kind: KindEngine, Name: "Docker"}, engine: one}
		if e.Network != "" {
			f.Endpoint = e.String()
		}
		if one.From != "" {
			f.Name += ", from " + one.From
		}
		o.probeEngine(ctx, &f)
		list = append(list, f)
		if f.State == StateReady {
			break
		}
	}
	return list
}

// probeEngine asks an engine for its version. An engine behind ssh or TLS counts as ready, because the shim reports its
// errors.
func (o *Options) probeEngine(ctx context.Context, f *found) {
	scheme, address, ok := strings.Cut(f.engine.Host, "://")
	switch {
	case f.engine.Err != nil:
		f.State, f.Detail = stateFailed, f.engine.Err.Error()
		return
	case !ok:
		f.State, f.Detail = stateUnsupported, "the address has no scheme, such as unix:// or tcp://"
		return
	case scheme == "ssh", f.engine.TLS != nil:
		f.State, f.Detail = StateReady, "not asked beforehand"
		return
	case scheme == "http":
		scheme = "tcp"
	case scheme != "unix" && scheme != "tcp":
		f.State, f.Detail = stateUnsupported, "the scheme "+scheme+" is not supported"
		return
	}
	switch p, err := o.ping(ctx, scheme, address); {
	case err != nil:
		f.State, f.Detail = dialState(Endpoint{Network: scheme, Address: address}, err)
	case p.isDocker():
		f.State, f.Detail = StateReady, "Docker engine "+p.version
		f.engine.Version, f.engine.APIVersion = p.version, p.api
	default:
		f.State, f.Detail = stateHTTP, cmp.Or(p.failure, "it speaks HTTP, but is no Docker engine")
	}
}

// pong is an engine's version and API version, or the error of any other server.
type pong struct{ version, api, failure string }

func (p pong) isDocker() bool { return p.api != "" }

// ping sends an HTTP request to find out whether a Docker engine listens. net/http's client would log the first bytes
// of a gRPC server and keep the connection after reading the answer.
func (o *Options) ping(ctx context.Context, network, address string) (pong, error) {
	conn, err := o.dial(ctx, network, address)
	if err != nil {
		return pong{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return pong{}, err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return pong{}, cmp.Or(ctx.Err(), err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return pong{}, cmp.Or(ctx.Err(), err)
	}
	defer resp.Body.Close()
	if api := resp.Header.Get("Api-Version"); api != "" {
		// Server: Docker/20.10.24+dfsg1 (linux)
		server, _, _ := strings.Cut(strings.TrimPrefix(resp.Header.Get("Server"), "Docker/"), " ")
		return pong{version: server, api: api}, nil
	}
	if resp.StatusCode < http.StatusBadRequest {
		return pong{}, nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // may be truncated
	text := string(body)
	var answer struct {
		Message string `json:"message"`
	}
	// An engine sends its error as JSON. Other text, such as the text of a proxy, is used as it is.
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		text = answer.Message
	}
	failure := "it answers HTTP " + strings.TrimSpace(resp.Status)
	if text = strings.Join(strings.Fields(text), " "); text != "" {
		failure += ": " + text
	}
	return pong{failure: failure}, nil
}

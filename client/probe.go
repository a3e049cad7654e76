package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// check dials an endpoint and asks for its version, v1 first. The link is
// nil unless the attempt ended ready.
func (o *Options) check(ctx context.Context, e Endpoint) (*link, Candidate) {
	a := Candidate{Endpoint: e.String(), Kind: KindCRI}
	l, err := newLink(o, e)
	if err != nil {
		a.State, a.Detail = StateFailed, err.Error()
		return nil, a
	}
	err = l.negotiate(ctx)
	if err == nil {
		a.State, a.API = StateReady, l.api
		a.Detail = fmt.Sprintf("%s %s", l.version.GetRuntimeName(), l.version.GetRuntimeVersion())
		return l, a
	}
	dialErr := l.lastDialError()
	if cerr := l.close(); cerr != nil {
		o.debugf("close %s: %v", e, cerr)
	}
	o.classify(ctx, &a, e, err, dialErr)
	return nil, a
}

// negotiate asks for the version under both names of the service.
func (l *link) negotiate(ctx context.Context) error {
	// The caller's deadline is the only limit here.
	ctx = WithTimeout(ctx, 0, "--connect-timeout")
	var err error
	for _, api := range []string{apiV1, apiV1alpha2} {
		l.api = api
		l.version, err = l.runtime().Version(ctx, &runtimeapi.VersionRequest{})
		if status.Code(err) != codes.Unimplemented {
			return err
		}
	}
	return err
}

// classify says why a version call did not work out. Where the dial itself
// failed its error says it; where the other end talked, what it talked does.
func (o *Options) classify(ctx context.Context, a *Candidate, e Endpoint, err, dialErr error) {
	a.Detail = err.Error()
	if dialErr != nil {
		a.State, a.Detail = dialState(e, dialErr)
		return
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		a.State, a.Detail = StateNoCRI, "it speaks gRPC but serves no CRI"
	case codes.DeadlineExceeded, codes.Canceled:
		a.State, a.Detail = StateHangs, "no answer"
	default:
		a.State = StateFailed
		if p := o.ping(ctx, e.Network, e.Address); p.docker {
			a.State, a.Detail = StateDocker, "Docker engine "+p.version
		} else if p.http {
			a.State, a.Detail = StateHTTP, "it speaks HTTP"
		}
	}
}

// dialState words what the system said about an address.
func dialState(e Endpoint, err error) (state, detail string) {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return StateAbsent, "no such socket"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return StateDenied, "permission denied"
	case errors.Is(err, syscall.ECONNREFUSED):
		if fi, serr := os.Stat(e.Address); e.Network == "unix" && serr == nil && fi.Mode()&os.ModeSocket == 0 {
			return StateFailed, "it is a " + fileKind(fi) + ", not a socket"
		}
		return StateRefused, "connection refused"
	case errors.As(err, &dns):
		return StateAbsent, "no such host"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &timeout) && timeout.Timeout():
		return StateHangs, "no answer"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return StateFailed, err.Error()
}

func fileKind(fi os.FileInfo) string {
	if fi.IsDir() {
		return "directory"
	}
	return "file"
}

// dockersOwn reports whether a containerd that answers CRI is only there for
// Docker: Debian's packages leave the plugin on, but nobody gave it a
// network or a pod. An error leaves it usable.
func (l *link) dockersOwn(ctx context.Context) bool {
	st, err := l.runtime().Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return false
	}
	for _, c := range st.GetStatus().GetConditions() {
		if c.GetType() == runtimeapi.NetworkReady && c.GetStatus() {
			return false
		}
	}
	pods, err := l.runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return err == nil && len(pods.GetItems()) == 0
}

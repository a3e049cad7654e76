package client

import (
	"context"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Limits of calls by kind, used where nothing else is asked for. A pull, an
// exec and a checkpoint have none: how long they take is the user's affair.
const (
	QueryLimit  = 10 * time.Second // lists, status, stats, streaming URLs
	ChangeLimit = 2 * time.Minute  // create, start, remove, update
	PodLimit    = 4 * time.Minute  // pods, which may wait for the network
)

// limit is how long one call may take and what raises that.
type limit struct {
	d    time.Duration // 0 means no limit
	flag string
}

func (l limit) hint() string {
	if l.flag == "" {
		return ""
	}
	return l.flag + " waits longer"
}

type limitKey struct{}

// WithTimeout limits the calls made with the context it returns to d, or
// lifts their limit when d is zero or less. The flag is named in the error.
func WithTimeout(ctx context.Context, d time.Duration, flag string) context.Context {
	return context.WithValue(ctx, limitKey{}, limit{d: d, flag: flag})
}

// limitFor decides how long a call may take. What the caller put in the
// context goes first, then --timeout, then the kind of call. A stop has its
// grace period on top in each case, else a long one could never end well.
func (o *Options) limitFor(ctx context.Context, method string, req any) limit {
	if l, ok := ctx.Value(limitKey{}).(limit); ok {
		return l
	}
	if _, ok := ctx.Deadline(); ok {
		return limit{} // the caller's own
	}
	d := o.kindLimit(method)
	if d == 0 {
		return limit{}
	}
	if r, ok := req.(*runtimeapi.StopContainerRequest); ok && r.GetTimeout() > 0 {
		d += time.Duration(r.GetTimeout()) * time.Second
	}
	return limit{d: d, flag: "--timeout"}
}

func (o *Options) kindLimit(method string) time.Duration {
	name := method[strings.LastIndexByte(method, '/')+1:]
	var d time.Duration
	switch name {
	case "PullImage", "ExecSync", "CheckpointContainer", "CheckpointPod", "RestorePod":
		return 0
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox":
		d = PodLimit
	case "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources",
		"UpdatePodSandboxResources", "RemoveImage":
		d = ChangeLimit
	default:
		d = QueryLimit
		if o.QueryTimeout > 0 {
			d = o.QueryTimeout
		}
	}
	if o.Timeout > 0 {
		d = o.Timeout
	}
	return d
}

package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

func (s *Server) container(c *call) (*node, v1.ContainerStatus, error) {
	none := v1.ContainerStatus{}
	o, err := s.store.get(c.kind, c.namespace, c.name)
	if err != nil {
		return nil, none, err
	}
	p := o.(*v1.Pod)
	name := c.query.Get("container")
	if name == "" {
		name = p.Annotations["kubectl.kubernetes.io/default-container"]
	}
	if name == "" {
		name = p.Spec.Containers[0].Name
	}
	n := s.nodes[p.Spec.NodeName]
	if n == nil {
		return nil, none, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	for _, all := range [][]v1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for _, status := range all {
			if status.Name == name && status.ContainerID != "" {
				return n, status, nil
			}
		}
	}
	for _, container := range p.Spec.Containers {
		if container.Name == name {
			return nil, none, apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start", name, p.Name))
		}
	}
	return nil, none, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
}

// exec connects the client to the runtime's streaming server. It forwards SPDY and converts WebSocket to SPDY, like an
// API server.
func (s *Server) exec(c *call) error {
	n, container, err := s.container(c)
	if err != nil {
		return err
	}
	ctx, end, err := n.reach(c.ctx)
	if err != nil {
		return err
	}
	defer end()
	is := func(name string) bool { return c.query.Get(name) == "true" || c.query.Get(name) == "1" }
	var o remotecommand.StreamOptions
	if is("stdin") {
		o.Stdin = http.NoBody
	}
	if is("stdout") {
		o.Stdout = io.Discard
	}
	if o.Tty = is("tty"); is("stderr") && !o.Tty {
		o.Stderr = io.Discard
	}
	raw, err := n.runtime.manager.GetExec(ctx, container.ContainerID, c.query["command"], o.Stdin != nil, o.Stdout != nil, o.Stderr != nil, o.Tty)
	if err != nil {
		return err
	}
	target, err := url.Parse(raw)
	if err != nil {
		return err
	}
	if wsstream.IsWebSocketRequest(c.r) {
		return c.webSocket(ctx, target, o)
	}
	proxy := httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.Out.URL = target; r.Out.Host = target.Host },
		ErrorLog: discard,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			c.refuse(apierrors.NewInternalError(err))
		},
	}
	proxy.ServeHTTP(c.w, c.r.WithContext(ctx))
	return nil
}

// Channels of a WebSocket session.
const (
	stdin = iota
	stdout
	stderr
	status
	resize
)

// sizes reads the client's terminal sizes.
type sizes struct{ from *json.Decoder }

func (s sizes) Next() *remotecommand.TerminalSize {
	var size remotecommand.TerminalSize
	if s.from.Decode(&size) != nil {
		return nil
	}
	return &size
}

func (c *call) webSocket(ctx context.Context, target *url.URL, o remotecommand.StreamOptions) error {
	channels := wsstream.ChannelProtocolConfig{Binary: true, Channels: []wsstream.ChannelType{
		stdin: wsstream.ReadChannel, stdout: wsstream.WriteChannel, stderr: wsstream.WriteChannel, status: wsstream.WriteChannel, resize: wsstream.ReadChannel,
	}}
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": channels, "v4.channel.k8s.io": channels})
	conn.SetIdleTimeout(4 * time.Hour)
	_, streams, err := conn.Open(c.w, c.r)
	if err != nil {
		return nil //nolint:nilerr // the client has received the error
	}
	defer conn.Close()
	_, _ = streams[stdout].Write(nil) // tells the client that the session is established
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Stdin != nil {
		o.Stdin = streams[stdin]
	}
	if o.Stdout != nil {
		o.Stdout = streams[stdout]
	}
	if o.Stderr != nil {
		o.Stderr = streams[stderr]
	}
	// This channel ends when the client disconnects.
	sized, toSized := io.Pipe()
	c.server.work.Go(func() {
		_, _ = io.Copy(toSized, streams[resize])
		_ = toSized.Close()
		cancel()
	})
	defer sized.Close()
	if o.Tty {
		o.TerminalSizeQueue = sizes{json.NewDecoder(sized)}
	} else {
		c.server.work.Go(func() { _, _ = io.Copy(io.Discard, sized) })
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, http.MethodPost, target)
	if err == nil {
		err = executor.StreamWithContext(ctx, o)
	}
	_ = json.NewEncoder(streams[status]).Encode(outcome(ctx, err))
	return nil
}

// outcome returns the status at the end of a session: the command's exit status, or the error.
func outcome(ctx context.Context, err error) metav1.Status {
	var exit utilexec.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit) && exit.Exited():
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(exit.ExitStatus())}}},
		}
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return apierrors.NewInternalError(err).ErrStatus
}

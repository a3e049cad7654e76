package stream

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/docker/docker/api/types/container"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	serverside "k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/crishim/crishim/shim/state"
)

func (r *rig) forwardURL(t *testing.T, pod string) *url.URL {
	t.Helper()
	answer, err := r.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(answer.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// forward runs kubectl's port forwarder and returns its local addresses. It ends with the test.
func (r *rig) forward(t *testing.T, pod string, ports ...string) []string {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, r.forwardURL(t, pod))
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	t.Cleanup(func() { close(stop); <-done })
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	bound, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	var local []string
	for _, p := range bound {
		local = append(local, fmt.Sprintf("127.0.0.1:%d", p.Local))
	}
	return local
}

func (r *rig) sandbox(t *testing.T, change func(*container.HostConfig)) string {
	t.Helper()
	return r.container(t, state.TypeSandbox, func(_ *container.Config, h *container.HostConfig) {
		if change != nil {
			change(h)
		}
	})
}

// serveEcho runs an echo server on an address in the pod's network.
func (r *rig) serveEcho(t *testing.T, pod, address string) {
	t.Helper()
	c, err := r.engine.ContainerInspect(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		address = c.NetworkSettings.Networks["bridge"].IPAddress
	}
	netns, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", c.State.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer netns.Close()
	var l net.Listener
	err = netns.Do(func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(address, "7000"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
}

// talk sends text and a half-close, and returns the answer.
func talk(t *testing.T, address, text string) (string, error) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for _, test := range []struct {
		name, address string
		change        func(*container.HostConfig)
	}{
		{name: "loopback of the pod", address: "127.0.0.1"},
		{name: "IPv6 loopback of the pod", address: "::1", change: func(h *container.HostConfig) {
			h.Sysctls = map[string]string{"net.ipv6.conf.all.disable_ipv6": "0", "net.ipv6.conf.lo.disable_ipv6": "0"}
		}},
		{name: "address of the pod only", change: func(h *container.HostConfig) { h.NetworkMode = "bridge" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := r.sandbox(t, test.change)
			r.serveEcho(t, pod, test.address)
			local := r.forward(t, pod, ":7000")[0]
			if answer, err := talk(t, local, "hello"); answer != "hello" || err != nil {
				t.Errorf("got %q, %v", answer, err)
			}
		})
	}
}

func TestPortForwardHostNetwork(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "from the host")
			conn.Close()
		}
	}()
	pod := r.sandbox(t, func(h *container.HostConfig) { h.NetworkMode = "host" })
	local := r.forward(t, pod, fmt.Sprintf(":%d", l.Addr().(*net.TCPAddr).Port))[0]
	if got, err := talk(t, local, ""); got != "from the host" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestPortForwardManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	pod := r.sandbox(t, nil)
	r.serveEcho(t, pod, "127.0.0.1")
	local := r.forward(t, pod, ":7000")[0]
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			text := strings.Repeat(fmt.Sprint(i, " "), 1000)
			if answer, err := talk(t, local, text); answer != text {
				t.Errorf("connection %d: got %d bytes, %v", i, len(answer), err)
			}
		}()
	}
	wg.Wait()
}

// A failed connection reports its reason and does not affect others.
func TestPortForwardTellsTheReason(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	pod := r.sandbox(t, nil)
	r.serveEcho(t, pod, "127.0.0.1")
	conn := r.dialForward(t, pod)
	good, goodErrs := conn.open(t, "7000", "good")
	for _, test := range []struct{ port, want string }{
		{"7009", "connection refused"},
		{"0", "not between"},
		{"junk", "not between"},
	} {
		_, errs := conn.open(t, test.port, "bad "+test.port)
		text, err := io.ReadAll(errs)
		if err != nil || !strings.Contains(string(text), test.want) {
			t.Errorf("port %s: got %q, %v", test.port, text, err)
		}
	}
	if _, err := io.WriteString(good, "still there"); err != nil {
		t.Fatal(err)
	}
	if err := good.Close(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(good)
	if err != nil || string(answer) != "still there" {
		t.Errorf("got %q, %v", answer, err)
	}
	if text, err := io.ReadAll(goodErrs); err != nil || len(text) > 0 {
		t.Errorf("error stream: got %q, %v", text, err)
	}
}

func TestPortForwardEndsWithThePod(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	pod := r.sandbox(t, nil)
	conn := r.dialForward(t, pod)
	if err := r.engine.ContainerKill(t.Context(), pod, "KILL"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-conn.CloseChan():
	case <-time.After(patience):
		t.Error("the connection outlives the pod")
	}
}

type forwardConn struct{ httpstream.Connection }

func (r *rig) dialForward(t *testing.T, pod string) forwardConn {
	t.Helper()
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, r.forwardURL(t, pod))
	conn, _, err := dialer.Dial(serverside.ProtocolV1Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return forwardConn{conn}
}

func (c forwardConn) open(t *testing.T, port, id string) (data, errs httpstream.Stream) {
	t.Helper()
	header := http.Header{}
	header.Set(serverside.PortHeader, port)
	header.Set(serverside.PortForwardRequestIDHeader, id)
	header.Set(serverside.StreamType, serverside.StreamTypeError)
	errs, err := c.CreateStream(header)
	if err != nil {
		t.Fatal(err)
	}
	header = header.Clone()
	header.Set(serverside.StreamType, serverside.StreamTypeData)
	data, err = c.CreateStream(header)
	if err != nil {
		t.Fatal(err)
	}
	return data, errs
}

func TestPortForwardOverWebSocket(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	pod := r.sandbox(t, nil)
	r.serveEcho(t, pod, "127.0.0.1")
	dialer, err := portforward.NewSPDYOverWebsocketDialer(r.forwardURL(t, pod), &rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{":7000"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	ports, _ := f.GetPorts()
	if answer, err := talk(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local), "tunnel"); answer != "tunnel" {
		t.Errorf("got %q, %v", answer, err)
	}
	close(stop)
	<-done
}

func TestPortForwardInARow(t *testing.T) {
	r := newRig(t, Options{})
	pod := r.sandbox(t, nil)
	r.serveEcho(t, pod, "127.0.0.1")
	local := r.forward(t, pod, ":7000")[0]
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	if answer, err := talk(t, local, "x"); answer != "x" { // both ends have then started all goroutines of the connection
		t.Fatalf("got %q, %v", answer, err)
	}
	nothingLeaks := holds(t)
	for i := range load(500, 5000) {
		if answer, err := talk(t, local, "x"); answer != "x" || ctx.Err() != nil {
			t.Fatalf("connection %d: got %q, %v", i, answer, err)
		}
	}
	nothingLeaks(t)
}

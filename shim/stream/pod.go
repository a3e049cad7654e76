package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/shim/state"
)

const dialTime = 30 * time.Second

var (
	errPodEnded = errors.New("the pod has ended")
	errUnseen   = errors.New("the network of the pod cannot be entered from here")
)

type pod struct {
	id      string
	host    bool              // uses the host's network
	process *proctree.Process // process of the sandbox; nil if it is not visible
	ips     func(context.Context) ([]string, error)
}

func (s *Server) pod(ctx context.Context, id string) (*pod, error) {
	c, err := s.running(ctx, id, state.TypeSandbox)
	if err != nil {
		return nil, err
	}
	p := &pod{id: c.ID, host: c.HostConfig != nil && c.HostConfig.NetworkMode.IsHost()}
	if found, err := proctree.Find(c.State.Pid); err == nil && found.InContainer(c.ID) {
		p.process = &found
	}
	var known []string
	if c.NetworkSettings != nil {
		for _, n := range c.NetworkSettings.Networks {
			known = append(known, n.IPAddress, n.GlobalIPv6Address)
		}
	}
	p.ips = func(ctx context.Context) (ips []string, err error) {
		if s.opts.PodIPs != nil {
			ips, err = s.opts.PodIPs(ctx, c.ID)
		}
		return slices.DeleteFunc(slices.Concat(known, ips), func(ip string) bool { return ip == "" }), err
	}
	return p, nil
}

func (p *pod) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	if p.process != nil && p.process.Wait(ctx) == nil {
		cancel(errPodEnded)
	}
}

// dial connects to the pod's loopback, then to its addresses. For a pod in the network of this host it only tries
// loopback. For a pod whose process is not visible it only tries the addresses.
func (p *pod) dial(ctx context.Context, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := p.dialLoopback(ctx, port)
	if err == nil || p.host && p.process != nil || ctx.Err() != nil {
		return conn, err
	}
	ips, ipErr := p.ips(ctx)
	conn, addressErr := dialFirst(ctx, ips, port)
	switch {
	case conn != nil:
		return conn, nil
	case errors.Is(err, errUnseen):
		return nil, errors.Join(err, addressErr, ipErr)
	}
	return nil, err // the pod was reached but does not listen on the port
}

func (p *pod) dialLoopback(ctx context.Context, port uint16) (conn net.Conn, err error) {
	loopback := []string{"127.0.0.1", "::1"}
	if p.process == nil {
		return nil, errUnseen
	}
	if p.host {
		return dialFirst(ctx, loopback, port)
	}
	netns, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", p.process.PID))
	if err != nil {
		return nil, errors.Join(errUnseen, err)
	}
	defer netns.Close()
	if !p.process.Alive() { // the pid may have been reused
		return nil, errPodEnded
	}
	entered := false
	err = netns.Do(func(ns.NetNS) error {
		entered = true
		// A socket stays in the namespace in which it was created.
		conn, err = dialFirst(ctx, loopback, port)
		return err
	})
	if !entered {
		return nil, errors.Join(errUnseen, err)
	}
	return conn, err
}

func dialFirst(ctx context.Context, ips []string, port uint16) (net.Conn, error) {
	first := errors.New("the pod has no address")
	for i, ip := range ips {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
		if err == nil {
			return conn, nil
		}
		if i == 0 {
			first = err
		}
	}
	return nil, first
}

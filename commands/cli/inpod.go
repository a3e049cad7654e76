package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// This file runs in the pods of kubectl-crishim, by the hidden verbs of package kube.

// idle keeps a container running for execs, until a signal or until nothing listens at the mounted socket:
// a runtime that is started again has another socket, which the next container gets.
func idle(ctx context.Context, env *Env) int {
	endpoint, err := client.ParseEndpoint(env.getenv("CONTAINER_RUNTIME_ENDPOINT"))
	if err != nil || endpoint.Network != "unix" {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", endpoint.Address)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			env.Note("crishim: nothing listens at %s any more", endpoint.Address)
			return exitFailed
		case err == nil: // the runtime closes it when it ends, or after a time without a call
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			conn.Read(make([]byte, 1)) //nolint:errcheck // nothing comes
			stop()
			conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return 0
}

const (
	relayEnds     = 5 * time.Second  // until the other side of a relay has ended after standard input
	relayConnects = 30 * time.Second // as long as a client waits for its relay
)

// relay copies between the standard streams and the runtime's socket, or a TCP address of the loopback. It
// ends with the other side, because an exec cannot end its output alone.
func (env *Env) relay(ctx context.Context, args []string) error {
	conn, end, err := env.dialRelayed(ctx, args)
	if err != nil {
		return err
	}
	defer end()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(env.Out, kube.RelayReady); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, env.In) // the other direction ends with it
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		time.AfterFunc(relayEnds, func() { conn.Close() })
	}()
	_, err = io.Copy(env.Out, conn)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return err
}

func (env *Env) dialRelayed(ctx context.Context, args []string) (conn net.Conn, end func(), err error) {
	if len(args) < 2 {
		env.ConnectTimeout = cmp.Or(env.ConnectTimeout, relayConnects)
		runtime, err := env.Connect(ctx) // which starts the embedded dockershim where there is only Docker
		if err != nil {
			return nil, nil, err
		}
		if conn, err = runtime.DialRuntime(ctx); err != nil {
			return nil, nil, Join(err, runtime.Close())
		}
		return conn, func() { _, _ = conn.Close(), runtime.Close() }, nil
	}
	host, _, err := net.SplitHostPort(args[1])
	if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() {
		return nil, nil, fmt.Errorf("%s is not an address of the loopback", Quote(args[1]))
	}
	conn, err = new(net.Dialer).DialContext(ctx, "tcp", args[1])
	return conn, func() { conn.Close() }, err
}

// attend removes kube.NodeWord from a command line. The end of standard input interrupts it.
func (env *Env) attend(args []string, signals chan<- os.Signal) []string {
	if len(args) < 3 {
		return args[:1]
	}
	if columns, err := strconv.Atoi(args[2]); err == nil && columns > 0 {
		env.OutTerminal, env.ErrTerminal, env.Width = true, true, func() int { return columns }
	}
	lookup := env.LookupEnv
	env.LookupEnv = func(name string) (string, bool) { // standard error is shown as lines: nothing is drawn there
		if name == "TERM" {
			return "dumb", true
		}
		return lookup(name)
	}
	from := env.In
	env.In, env.InTerminal = strings.NewReader(""), false
	go func() {
		_, _ = io.Copy(io.Discard, from)
		env.left.Store(true)
		select {
		case signals <- syscall.SIGINT:
		default: // others have come
		}
	}()
	return slices.Delete(slices.Clone(args), 1, 3)
}

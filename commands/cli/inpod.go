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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
)

// The code of this file runs in the pods of kubectl-crishim, which start it with the hidden verbs of package kube.

// idle keeps a container running for execs, until a signal or until nothing listens at the mounted socket. A restarted
// runtime creates a new socket, which only a new container can mount.
func idle(ctx context.Context, p *Process) int {
	endpoint, err := client.ParseEndpoint(p.getenv("CONTAINER_RUNTIME_ENDPOINT"))
	if err != nil || endpoint.Network != "unix" {
		<-ctx.Done()
	}
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", endpoint.Address)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			NewPrinter(p).Note("crishim: nothing listens at %s any more", endpoint.Address)
			return exitFailed
		case err == nil: // the read returns when the runtime ends or closes an idle connection
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
	relayEnds     = 5 * time.Second  // limit for the other side to close after EOF on standard input
	relayConnects = 30 * time.Second // limit of the connection to the runtime; a client waits as long for the relay
)

// relay copies between the standard streams and the runtime's socket, or a TCP address of the loopback. It returns when
// the other side closes its output, because an exec session cannot close its output without ending.
func relay(ctx context.Context, args []string, p *Process) error {
	conn, end, err := dialRelayed(ctx, args, p)
	if err != nil {
		return err
	}
	defer end()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := io.WriteString(p.Out, kube.RelayReady); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(conn, p.In) // after an error, the other direction ends too
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		time.AfterFunc(relayEnds, func() { conn.Close() })
	}()
	_, err = io.Copy(p.Out, conn)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return err
}

func dialRelayed(ctx context.Context, args []string, p *Process) (conn net.Conn, end func(), err error) {
	if len(args) < 2 {
		own := *p
		own.ConnectTimeout = cmp.Or(p.ConnectTimeout, relayConnects)
		runtime, err := NewConnector(NewInvocation(&own, false)).Connect(ctx) // starts the embedded dockershim if the runtime is Docker
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

// attend runs where kubectl-crishim has started a command line in its pod. It removes kube.NodeWord and the terminal's
// width, which kubectl-crishim adds to the command line, and returns a process that has an empty standard input.
// kubectl-crishim keeps the real standard input open until it is interrupted or disconnects. EOF sets left and interrupts
// the command line.
func attend(p *Process, args []string, left *atomic.Bool, signals chan<- os.Signal) (*Process, []string) {
	own := *p
	if len(args) < 3 {
		return &own, args[:1]
	}
	if columns, err := strconv.Atoi(args[2]); err == nil && columns > 0 {
		own.OutTerminal, own.ErrTerminal, own.Width = true, true, func() int { return columns }
	}
	own.LookupEnv = func(name string) (string, bool) { // kubectl-crishim shows standard error line by line, so nothing may be redrawn
		if name == "TERM" {
			return "dumb", true
		}
		return p.LookupEnv(name)
	}
	own.In, own.InTerminal = strings.NewReader(""), false
	go func() {
		_, _ = io.Copy(io.Discard, p.In)
		left.Store(true)
		select {
		case signals <- syscall.SIGINT:
		default: // another signal is pending
		}
	}()
	return &own, slices.Delete(slices.Clone(args), 1, 3)
}

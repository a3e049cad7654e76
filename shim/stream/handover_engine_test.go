package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/crishim/crishim/internal/enginestream"
	"github.com/crishim/crishim/internal/handover"
	"github.com/crishim/crishim/internal/inproc"
)

// sockets are where the servers of rigs hand connections over, by the host of
// their URLs.
var sockets sync.Map

// overHandover is a client that takes the engine's connection.
func overHandover(t *testing.T, streamingURL string) remotecommand.Executor {
	t.Helper()
	u, err := url.Parse(streamingURL)
	if err != nil {
		t.Fatal(err)
	}
	socket, ok := sockets.Load(u.Host)
	if !ok {
		t.Fatalf("nobody hands anything over for %s", u.Host)
	}
	return taker{t: t, url: u, socket: socket.(string)}
}

// taker does with a connection what it has to, and no more.
type taker struct {
	t      *testing.T
	url    *url.URL
	socket string
}

func (k taker) Stream(o remotecommand.StreamOptions) error {
	return k.StreamWithContext(context.Background(), o)
}

func (k taker) request() string {
	return "POST " + k.url.Path + " HTTP/1.1\r\nHost: " + k.url.Host + "\r\nConnection: Upgrade\r\nUpgrade: " + handover.Protocol + "\r\n\r\n"
}

func (k taker) StreamWithContext(ctx context.Context, o remotecommand.StreamOptions) error {
	conn, ok, err := inproc.Dial(k.socket)
	if !ok {
		conn, err = net.Dial("unix", k.socket)
	}
	if err != nil {
		return err
	}
	c := handover.NewClient(conn.(*net.UnixConn))
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err := io.WriteString(conn, k.request()); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.Reader(), nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		return errors.New(answer.Status)
	}
	if q := o.TerminalSizeQueue; q != nil {
		go func() {
			for s := q.Next(); s != nil; s = q.Next() {
				_ = c.Send(handover.FromClient{Size: &handover.Size{Width: s.Width, Height: s.Height}})
			}
		}()
	}
	if err := k.follow(c, o); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// follow does what the server says.
func (k taker) follow(c *handover.Conn, o remotecommand.StreamOptions) error {
	out := enginestream.NewOutput(o.Tty, o.Stdout, o.Stderr)
	var copied sync.WaitGroup
	defer copied.Wait()
	var engine net.Conn
	defer func() {
		if engine != nil {
			_ = engine.Close()
		}
	}()
	for {
		var m handover.FromShim
		if err := c.Receive(&m); err != nil {
			return err
		}
		switch {
		case m.Engine != nil:
			var err error
			if engine, err = c.Taken(); err != nil {
				return err
			}
			if o.Stdin != nil {
				go func() {
					_, _ = io.Copy(engine, o.Stdin)
					_ = engine.(*net.UnixConn).CloseWrite()
				}()
			}
			copied.Go(func() {
				_ = out.Copy(io.MultiReader(bytes.NewReader(m.Engine.Read), engine))
				_ = c.Send(handover.FromClient{Ended: &handover.End{Held: out.Take()}})
			})
		case m.Started:
			_ = out.Open()
		case m.Done != nil:
			return k.end(m.Done, o, engine, &copied)
		}
	}
}

func (k taker) end(done *handover.Done, o remotecommand.StreamOptions, engine net.Conn, copied *sync.WaitGroup) error {
	if engine != nil {
		_ = engine.Close()
	}
	copied.Wait()
	for _, said := range []struct {
		to   io.Writer
		text []byte
	}{{o.Stdout, done.Stdout}, {o.Stderr, done.Stderr}} {
		if len(said.text) > 0 {
			if _, err := said.to.Write(said.text); err != nil {
				return err
			}
		}
	}
	var st statusMessage
	if err := json.Unmarshal(done.Status, &st); err != nil {
		return err
	}
	if st.Status == "Success" {
		return nil
	}
	if st.Reason != "NonZeroExitCode" {
		return errors.New(st.Message)
	}
	code, err := strconv.Atoi(st.Details.Causes[0].Message)
	if err != nil {
		return err
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("status %d", code), Code: code}
}

// A request that would have to be handed over and cannot be leaves its URL good.
func TestHandoverWhereThereIsNone(t *testing.T) {
	r := newRig(t, Options{})
	id := r.app(t)
	var stdout bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &stdout}
	streamingURL := r.execURL(t, id, o, "echo", "hi")
	req, err := http.NewRequest(http.MethodPost, streamingURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", handover.Protocol)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode != http.StatusNotImplemented {
		t.Errorf("got %s", answer.Status)
	}
	if err := overSPDY(t, streamingURL).StreamWithContext(t.Context(), o); err != nil || stdout.String() != "hi\n" {
		t.Errorf("got %v, %q", err, &stdout)
	}
}

// A client that talks nonsense is as good as gone: its process does not stay.
func TestHandoverOfNonsense(t *testing.T) {
	r := newRig(t, Options{})
	for name, text := range map[string]string{
		"no JSON":  "what?\n",
		"too long": strings.Repeat("x", 2<<20),
		"an array": "[]\n",
	} {
		t.Run(name, func(t *testing.T) {
			id := r.app(t)
			u := r.execURL(t, id, remotecommand.StreamOptions{Stdout: io.Discard}, "sleep", "4747")
			k := overHandover(t, u).(taker)
			conn, err := net.Dial("unix", k.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, k.request()); err != nil {
				t.Fatal(err)
			}
			until(t, "the process to start", func() bool { return len(r.processes(t, id, "4747")) > 0 })
			_, _ = io.WriteString(conn, text) // fails where the server does not take all of it
			until(t, "the process to be gone", func() bool { return len(r.processes(t, id, "4747")) == 0 })
		})
	}
}

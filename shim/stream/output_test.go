package stream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
	utilexec "k8s.io/utils/exec"

	"github.com/crishim/crishim/internal/frames"
	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/internal/test"
)

func TestStartCode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason string
		engine int
		want   int
	}{
		{`OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown`, 126, 127},
		{`OCI runtime exec failed: exec failed: container_linux.go:380: starting container process caused: exec: "/x": stat /x: no such file or directory: unknown`, 126, 127},
		{`OCI runtime exec failed: exec failed: unable to start container process: exec: "/etc": permission denied: unknown`, 126, 126},
		{`OCI runtime exec failed: exec failed: unable to start container process: chdir to cwd ("/x") set in config.json failed: no such file or directory: unknown`, 126, 126},
		{"unable to find user nosuch: no matching entries in passwd file", 0, 126},
		{"", 126, 126},
		{"", 0, 126},
	} {
		if got := startCode(test.reason, test.engine); got != test.want {
			t.Errorf("%q: got %d, want %d", test.reason, got, test.want)
		}
	}
}

// engineSends returns an exec's connection to an engine that sends text and ends.
func engineSends(text string) types.HijackedResponse {
	return types.HijackedResponse{Reader: bufio.NewReader(strings.NewReader(text))}
}

func TestOutputOfAProcessPassesThrough(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	text := "OCI runtime exec failed: only said so\r\n"
	o := newOutput(engineSends(text), true, ends{stdout: &stdout, stderr: &stderr})
	if err := o.copy(); err != nil {
		t.Fatal(err)
	}
	if stdout.Len() > 0 {
		t.Errorf("before the process is known to run: got %q", &stdout)
	}
	code, err := o.exitStatus(container.ExecInspect{Pid: 7, ExitCode: 126})
	if err != nil || code != 126 || stdout.String() != text || stderr.Len() > 0 {
		t.Errorf("got %d, %v, %q, %q", code, err, &stdout, &stderr)
	}
	if _, err := io.WriteString(o, "more"); err != nil || stdout.String() != text+"more" {
		t.Errorf("later: got %q, %v", &stdout, err)
	}
}

func TestOutputTooLongToBeAReasonIsNotHeld(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	o := newOutput(engineSends(strings.Repeat("x", 2*maxHeld)), true, ends{stdout: &stdout})
	if err := o.copy(); err != nil || stdout.Len() < maxHeld {
		t.Errorf("got %d bytes, %v", stdout.Len(), err)
	}
}

// A failed start is reported in one sentence, on stderr if there is one.
func TestExitStatusOfACommandThatCannotStart(t *testing.T) {
	t.Parallel()
	raw := `OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown` + "\r\n"
	want := `crishim: exec: "x": executable file not found in $PATH`
	for _, tty := range []bool{false, true} {
		sent := raw
		if !tty {
			var framed bytes.Buffer
			_, _ = stdcopy.NewStdWriter(&framed, stdcopy.Stdout).Write([]byte(raw)) // a buffer never fails
			sent = framed.String()
		}
		var stdout, stderr bytes.Buffer
		o := newOutput(engineSends(sent), tty, ends{stdout: &stdout, stderr: &stderr})
		if err := o.copy(); err != nil {
			t.Fatal(err)
		}
		code, err := o.exitStatus(container.ExecInspect{ExitCode: 126})
		if err != nil || code != ocierror.StatusNotFound {
			t.Errorf("tty %v: got %d, %v", tty, code, err)
		}
		wantOut, wantErr := "", want+"\n"
		if tty {
			wantOut, wantErr = want+"\r\n", ""
		}
		if stdout.String() != wantOut || stderr.String() != wantErr {
			t.Errorf("tty %v: got %q and %q", tty, &stdout, &stderr)
		}
	}
}

func TestExitStatusWithoutReasonIsNeverSuccess(t *testing.T) {
	t.Parallel()
	if code, err := newOutput(engineSends(""), false, ends{}).exitStatus(container.ExecInspect{}); err == nil {
		t.Errorf("got status %d and no error", code)
	}
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		outcome error
		want    string
	}{
		{nil, `{"metadata":{},"status":"Success"}`},
		{fmt.Errorf("wrapped: %w", utilexec.CodeExitError{Err: errors.New("exit status 3"), Code: 3}), `{"metadata":{},"status":"Failure","message":"exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`},
		{errors.New("broken"), `{"metadata":{},"status":"Failure","message":"broken","reason":"InternalError","code":500}`},
	} {
		if got, err := json.Marshal(statusOf(test.outcome)); err != nil || string(got) != test.want {
			t.Errorf("got %s, %v, want %s", got, err, test.want)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, wantA, wantB int }{
		{3, 4, 3, 4}, {20, 3, 7, 3}, {3, 20, 3, 7}, {20, 20, 5, 5}, {0, 20, 0, 10},
	} {
		a, b := fit(make([]byte, test.a), make([]byte, test.b), 10)
		if len(a) != test.wantA || len(b) != test.wantB {
			t.Errorf("%+v: got %d and %d", test, len(a), len(b))
		}
	}
}

func TestTableAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if peerLeft(server.(*net.TCPConn)) {
		t.Error("the client is there")
	}
	// With full buffers the end of the connection does not arrive.
	_ = client.(*net.TCPConn).SetWriteBuffer(1 << 20)
	client.Close()
	test.Until(t, "the client's end to be seen", func() bool { return peerLeft(server.(*net.TCPConn)) })
}

type slowWriter struct {
	bytes.Buffer
	time time.Duration
}

func (w *slowWriter) Write(b []byte) (int, error) {
	time.Sleep(w.time)
	w.time = 0
	return w.Buffer.Write(b)
}

// drain ends an output once the engine is silent, however slowly the client reads.
func TestOutputEndsWhenTheEngineIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, engine := net.Pipe()
		defer engine.Close()
		stdout := &slowWriter{time: time.Minute}
		o := newOutput(types.NewHijackedResponse(ours, ""), true, ends{stdout: stdout})

		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for _, text := range []string{"one ", "two ", "three"} {
				_, _ = io.WriteString(engine, text) // blocked by the slow client
				time.Sleep(900 * time.Millisecond)
			}
		}()
		begin := time.Now()
		o.drain(5 * time.Second)
		o.drain(time.Second)
		o.drain(5 * time.Second) // the shortest limit counts
		if err := o.copy(); err == nil {
			t.Error("got the engine's end, which has not come")
		}
		if took := time.Since(begin); stdout.String() != "one two three" || took != time.Minute+1900*time.Millisecond {
			t.Errorf("got %q after %v", stdout.String(), took)
		}
	})
}

// pieces records the writes to both outputs.
type pieces struct {
	mu  sync.Mutex
	got []string
	err error
}

func (p *pieces) to(name string) io.Writer { return pieceWriter{p, name} }

type pieceWriter struct {
	*pieces
	name string
}

func (w pieceWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, fmt.Sprintf("%s %d", w.name, len(b)))
	return len(b), w.err
}

// Records of fast output are joined. The last waits at most joinTime, a short one is sent at once, and stderr keeps its
// order.
func TestOutputJoinsRecords(t *testing.T) {
	t.Parallel()
	const record = 32 << 10
	synctest.Test(t, func(t *testing.T) {
		ours, engine := net.Pipe()
		p := &pieces{}
		o := newOutput(types.NewHijackedResponse(ours, ""), false, ends{stdout: p.to("out"), stderr: p.to("err")})
		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		copied := make(chan error, 1)
		go func() { copied <- o.copy() }()
		out, errOut := stdcopy.NewStdWriter(engine, stdcopy.Stdout), stdcopy.NewStdWriter(engine, stdcopy.Stderr)
		send := func(w io.Writer, size int) {
			if _, err := w.Write(make([]byte, size)); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		want := func(when string, want ...string) {
			t.Helper()
			p.mu.Lock()
			defer p.mu.Unlock()
			if !slices.Equal(p.got, want) {
				t.Errorf("%s: got %q, want %q", when, p.got, want)
			}
			p.got = nil
		}
		send(out, 1)
		want("a key", "out 1")
		for range 4 {
			send(out, record)
		}
		want("much", fmt.Sprint("out ", frames.Size))
		send(out, record)
		want("a record")
		time.Sleep(joinTime)
		synctest.Wait()
		want("a record, later", fmt.Sprint("out ", record))
		send(out, record)
		send(errOut, 3)
		want("both", fmt.Sprint("out ", record), "err 3")
		send(out, record)
		send(out, 5)
		want("a record and a rest", fmt.Sprint("out ", record+5))
		send(out, record)
		engine.Close()
		if err := <-copied; err != nil {
			t.Error(err)
		}
		want("the end", fmt.Sprint("out ", record))
	})
}

// A client that stops reading ends the copy, even if only a delayed write fails.
func TestOutputOfAClientThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ours, engine := net.Pipe()
		defer engine.Close()
		p := &pieces{err: io.ErrClosedPipe}
		o := newOutput(types.NewHijackedResponse(ours, ""), true, ends{stdout: p.to("out")})
		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		copied := make(chan error, 1)
		go func() { copied <- o.copy() }()
		_, _ = engine.Write(make([]byte, joinSize)) // written with a delay, which fails
		time.Sleep(time.Second)
		_, _ = engine.Write(make([]byte, joinSize))
		if err := <-copied; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("got %v", err)
		}
	})
}

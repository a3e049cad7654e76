package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"
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

func TestOutputOfAProcessPassesThrough(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	o := outputOf(true, ends{stdout: &stdout, stderr: &stderr})
	text := "OCI runtime exec failed: only said so\r\n"
	if err := o.Copy(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if stdout.Len() > 0 {
		t.Errorf("before the process is known to run: got %q", &stdout)
	}
	code, err := o.settle(container.ExecInspect{Pid: 7, ExitCode: 126})
	if err != nil || code != 126 || stdout.String() != text || stderr.Len() > 0 {
		t.Errorf("got %d, %v, %q, %q", code, err, &stdout, &stderr)
	}
	if err := o.Copy(strings.NewReader("more")); err != nil || stdout.String() != text+"more" {
		t.Errorf("later: got %q, %v", &stdout, err)
	}
}

// Why a command was not started is one sentence, on stderr where there is one.
func TestSettleSaysWhatHappened(t *testing.T) {
	t.Parallel()
	raw := `OCI runtime exec failed: exec failed: unable to start container process: exec: "x": executable file not found in $PATH: unknown` + "\r\n"
	want := `crishim: exec: "x": executable file not found in $PATH`
	for _, tty := range []bool{false, true} {
		var stdout, stderr bytes.Buffer
		o := outputOf(tty, ends{stdout: &stdout, stderr: &stderr})
		if err := o.Copy(fromEngine(tty, raw)); err != nil {
			t.Fatal(err)
		}
		code, err := o.settle(container.ExecInspect{ExitCode: 126})
		if err != nil || code != codeNotFound {
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

// fromEngine is how the engine sends text on stdout.
func fromEngine(tty bool, text string) io.Reader {
	var b bytes.Buffer
	if tty {
		b.WriteString(text)
	} else {
		_, _ = stdcopy.NewStdWriter(&b, stdcopy.Stdout).Write([]byte(text)) // a buffer takes all
	}
	return &b
}

func TestSettleWithoutReasonIsNeverSuccess(t *testing.T) {
	t.Parallel()
	if code, err := outputOf(false, ends{}).settle(container.ExecInspect{}); err == nil {
		t.Errorf("got status %d and no error", code)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		outcome     error
		text, asOld string
	}{
		{nil, `{"metadata":{},"status":"Success"}`, ""},
		{fmt.Errorf("wrapped: %w", exitError{3}), `{"metadata":{},"status":"Failure","message":"command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`, "wrapped: command terminated with exit code 3"},
		{errors.New("broken"), `{"metadata":{},"status":"Failure","message":"broken","reason":"InternalError","code":500}`, "broken"},
	} {
		for asJSON, want := range map[bool]string{true: test.text, false: test.asOld} {
			var got bytes.Buffer
			if err := writeOutcome(&got, asJSON, test.outcome); err != nil || got.String() != want {
				t.Errorf("got %s, %v, want %s", &got, err, want)
			}
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
	// With more on the way than fits, the end of the connection does not arrive.
	_ = client.(*net.TCPConn).SetWriteBuffer(1 << 20)
	client.Close()
	until(t, "the client's end to be seen", func() bool { return peerLeft(server.(*net.TCPConn)) })
}

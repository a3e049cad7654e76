package container

import (
	"errors"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func connect(t *testing.T, stub *stubcri.Server) *client.Conn {
	t.Helper()
	conn, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: stub.Endpoint, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestWaitListensToEvents polls only once an hour, so that only an event can end the wait.
func TestWaitListensToEvents(t *testing.T) {
	for _, state := range []string{"exited", "removed", "running"} {
		t.Run(state, func(t *testing.T) {
			stub := stubcri.Start(t, stubcri.Options{})
			id := stub.AddCreated(stub.AddPod("default", "pod"), "web")
			conn := connect(t, stub)
			happens := func() error {
				_, err := conn.Runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
				return err
			}
			switch state {
			case "exited":
				if err := happens(); err != nil {
					t.Fatal(err)
				}
				happens = func() error { stub.Exit(id, 3); return nil }
			case "removed":
				happens = func() error {
					_, err := conn.Runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
					return err
				}
			}
			var out test.Buffer
			printer := cli.NewPrinter(&cli.Process{Out: &out, Err: &out, Now: time.Now})
			ended := make(chan error, 1)
			go func() {
				o := &waitOptions{targets: []string{id}, goal: goal{state: state}, polling: time.Hour, listening: time.Hour}
				ended <- o.run(t.Context(), printer, conn)
			}()
			for stub.Watchers() == 0 || !slices.Contains(stub.Methods(), "ContainerStatus") {
				runtime.Gosched()
			}
			if err := happens(); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("no event ended it")
			}
		})
	}
}

func TestLineMatcher(t *testing.T) {
	entry := func(stream, text string) logfile.Entry { return logfile.Entry{Stream: stream, Text: []byte(text)} }
	m := lineMatcher{expr: regexp.MustCompile("^one line$"), pending: lines{}}
	for _, e := range []logfile.Entry{
		entry(logfile.Stdout, "one "), entry(logfile.Stderr, "one\n"), entry(logfile.Stderr, "line\n"), entry(logfile.Stderr, "one line\r\n"),
	} {
		if err := m.entry(cli.ContainerPath{}, e); err != nil {
			t.Errorf("%q: %v", e.Text, err)
		}
	}
	if m.atEnd() {
		t.Error("half a line matched")
	}
	if err := m.entry(cli.ContainerPath{}, entry(logfile.Stdout, "line\n")); !errors.Is(err, errLineFound) {
		t.Errorf("got %v for a line in two parts", err)
	}
	part := entry(logfile.Stderr, strings.Repeat("x", 16<<10))
	for range 3 * maxPending / len(part.Text) {
		if err := m.entry(cli.ContainerPath{}, part); err != nil || len(m.pending[lineKey{stream: logfile.Stderr}].Text) > 2*maxPending {
			t.Fatalf("a line without an end: %d bytes are kept, %v", len(m.pending[lineKey{stream: logfile.Stderr}].Text), err)
		}
	}
	_ = m.entry(cli.ContainerPath{}, entry(logfile.Stdout, "one line"))
	if !m.atEnd() {
		t.Error("a last line without its end did not match")
	}
}

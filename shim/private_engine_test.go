package shim_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/api"
)

func TestPrivateExec(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	id := c.pod(t, nil).start(t, shell("app", idle))
	process := &api.Process{
		ContainerId: id, Command: []string{"sh", "-c", "echo $COLOUR $(pwd) $(id -un); echo problem >&2; exit 4"},
		Env: []string{"COLOUR=blue"}, WorkingDir: "/etc", User: "alice",
	}
	got, err := c.own.ExecSync(t.Context(), &api.ExecSyncRequest{Process: process})
	if err != nil || string(got.GetStdout()) != "blue /etc alice\n" || string(got.GetStderr()) != "problem\n" || got.GetExitCode() != 4 {
		t.Errorf("sync: got %v, %v", got, err)
	}
	answer, err := c.own.Exec(t.Context(), &api.ExecRequest{Process: process, Stdout: true})
	if err != nil || !strings.HasPrefix(answer.GetUrl(), "http://127.0.0.1:") {
		t.Errorf("exec: got %v, %v", answer, err)
	}
	if _, err := c.own.DetachExec(t.Context(), &api.DetachExecRequest{Url: answer.GetUrl()}); status.Code(err) != codes.NotFound {
		t.Errorf("detach from a session that has not begun: got %v, want NotFound", err)
	}
	if _, err := c.own.Exec(t.Context(), &api.ExecRequest{Process: process}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("exec without streams: got %v, want InvalidArgument", err)
	}
	process.User = "nobody-knows"
	if got, err := c.own.ExecSync(t.Context(), &api.ExecSyncRequest{Process: process}); err == nil && got.GetExitCode() != 126 {
		t.Errorf("exec as an unknown user: got %v, want 126 or an error", got)
	}
}

func TestPrivateLogs(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	id := c.pod(t, nil).start(t, shell("app", "echo one; sleep 1; echo two >&2; echo three"))
	read := func(r *api.ContainerLogsRequest) string {
		t.Helper()
		r.ContainerId = id
		s, err := c.own.ContainerLogs(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for {
			rec, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return strings.Join(out, " ")
			}
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s:%s", rec.GetStream(), rec.GetText()))
		}
	}
	all := read(&api.ContainerLogsRequest{Follow: true, Tail: -1})
	if !strings.HasPrefix(all, "STDOUT:one ") || !strings.Contains(all, "STDERR:two") || !strings.Contains(all, "STDOUT:three") {
		t.Errorf("got %q", all)
	}
	if last := read(&api.ContainerLogsRequest{Tail: 1}); strings.Count(last, ":") != 1 {
		t.Errorf("the last record: got %q", last)
	}
}

func TestPrivateArchives(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	id := p.create(t, shell("app", idle)) // archives need no running container

	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := w.WriteHeader(&tar.Header{Name: "large", Mode: 0o640, Size: int64(len(large))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(large); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	up, err := c.own.WriteArchive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	message := &api.WriteArchiveRequest{ContainerId: id, Path: "/tmp"}
	for chunk := packed.Next(50_000); len(chunk) > 0; chunk = packed.Next(50_000) {
		message.Data = chunk
		if err := up.Send(message); err != nil {
			t.Fatal(err)
		}
		message = &api.WriteArchiveRequest{}
	}
	if _, err := up.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}

	st, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: id, Path: "/tmp/large"})
	if err != nil || st.GetSize() != int64(len(large)) || st.GetName() != "large" {
		t.Errorf("stat: got %v, %v", st, err)
	}
	down, err := c.own.ReadArchive(t.Context(), &api.ReadArchiveRequest{ContainerId: id, Path: "/tmp/large"})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for {
		m, err := down.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got.Write(m.GetData())
	}
	r := tar.NewReader(&got)
	if h, err := r.Next(); err != nil || h.Name != "large" {
		t.Fatalf("got %v, %v", h, err)
	}
	if content, err := io.ReadAll(r); err != nil || !bytes.Equal(content, large) {
		t.Errorf("got %d bytes, %v", len(content), err)
	}
	if _, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: id, Path: "/no/such/file"}); status.Code(err) != codes.NotFound {
		t.Errorf("missing path: got %v, want NotFound", err)
	}
	if _, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: p.id, Path: "/"}); status.Code(err) != codes.NotFound {
		t.Errorf("a sandbox: got %v, want NotFound", err)
	}
}

func TestPrivatePullOfNothing(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	s, err := c.own.PullImage(t.Context(), &api.PullImageRequest{Image: "Not A Name"})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v, want InvalidArgument", err)
	}
}

// A driver that keeps nothing is no reason to say that there is no such call.
func TestPrivateLogsOfADriverThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	id := adopted(t, c, strings.ToLower("crishim-private-logs-"+rand.Text()), &container.Config{
		Cmd: []string{"true"}, Labels: map[string]string{"io.kubernetes.docker.type": "container"},
	}, &container.HostConfig{NetworkMode: "none", LogConfig: container.LogConfig{Type: "none"}})
	s, err := c.own.ContainerLogs(t.Context(), &api.ContainerLogsRequest{ContainerId: id, Tail: -1})
	if err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "does not support reading") {
		t.Errorf("got %v, want the reason", err)
	}
}

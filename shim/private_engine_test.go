package shim_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
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
	id := p.create(t, shell("app", idle)) // archives do not need a running container

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
	message := &api.WriteArchiveRequest{ContainerId: id, Path: []byte("/tmp")}
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

	st, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: id, Path: []byte("/tmp/large")})
	if err != nil || st.GetSize() != int64(len(large)) || string(st.GetName()) != "large" {
		t.Errorf("stat: got %v, %v", st, err)
	}
	down, err := c.own.ReadArchive(t.Context(), &api.ReadArchiveRequest{ContainerId: id, Path: []byte("/tmp/large")})
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
	if _, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: id, Path: []byte("/no/such/file")}); status.Code(err) != codes.NotFound {
		t.Errorf("missing path: got %v, want NotFound", err)
	}
	if _, err := c.own.StatPath(t.Context(), &api.StatPathRequest{ContainerId: p.id, Path: []byte("/")}); status.Code(err) != codes.NotFound {
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

// A driver that keeps nothing is an error, but not Unimplemented.
func TestPrivateLogsOfADriverThatCannotBeRead(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	id := adopted(t, c, "k8s_"+strings.ToLower("crishim-private-logs-"+rand.Text()), &container.Config{
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

// TestPrivateControl pauses, resumes, signals and restarts the same container.
func TestPrivateControl(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	id := p.start(t, shell("app", "trap 'exit 7' USR1; trap '' TERM; date +%N >>/starts; while :; do sleep 0.05; done"))
	pause := func(unpause bool) codes.Code {
		t.Helper()
		return status.Code(freeze(t, func() error {
			_, err := c.own.PauseContainer(t.Context(), &api.PauseContainerRequest{ContainerId: id, Unpause: unpause})
			return err
		}))
	}
	if got := []codes.Code{pause(true), pause(false), pause(false), pause(true)}; !slices.Equal(got, []codes.Code{codes.FailedPrecondition, codes.OK, codes.FailedPrecondition, codes.OK}) {
		t.Errorf("unpause, pause, pause, unpause: got %v", got)
	}
	restart := func(id string, seconds int64) error {
		_, err := c.own.RestartContainer(t.Context(), &api.RestartContainerRequest{ContainerId: id, Timeout: seconds})
		return err
	}
	pause(false)
	if err := restart(id, 0); err != nil { // a paused container that ignores SIGTERM
		t.Fatal(err)
	}
	if got := c.status(t, id).GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a restart it is %s", got)
	}
	if _, err := c.own.SignalContainer(t.Context(), &api.SignalContainerRequest{ContainerId: id, Signal: "SIGNOSUCH"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown signal: got %v", err)
	}
	test.Until(t, "both starts are on file", func() bool {
		got, err := c.own.ExecSync(t.Context(), &api.ExecSyncRequest{Process: &api.Process{ContainerId: id, Command: []string{"cat", "/starts"}}})
		return err == nil && strings.Count(string(got.GetStdout()), "\n") == 2
	})
	if _, err := c.own.SignalContainer(t.Context(), &api.SignalContainerRequest{ContainerId: id, Signal: "USR1"}); err != nil {
		t.Fatal(err)
	}
	test.Until(t, "it ends by the signal's handler", func() bool {
		st := c.status(t, id)
		return st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetExitCode() == 7
	})
	if err := restart(id, 1); err != nil { // an ended container is started again
		t.Fatal(err)
	}
	if _, err := c.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	if err := restart(id, 1); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("in a pod that is stopped: got %v, want FailedPrecondition", err)
	}
	for _, err := range []error{restart("nosuch", 1), restart(p.id, 1)} {
		if status.Code(err) != codes.NotFound {
			t.Errorf("got %v, want NotFound", err)
		}
	}
}

// A copy has the image, environment, mounts and security settings of the container, and another command.
func TestPrivateCopy(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	dir := t.TempDir()
	config := shell("app", "exit 3")
	config.Envs = []*runtimeapi.KeyValue{{Key: "COLOUR", Value: []byte("blue")}}
	config.Mounts = []*runtimeapi.Mount{{HostPath: dir, ContainerPath: "/data", Readonly: true}}
	config.Labels = map[string]string{"io.kubernetes.container.name": "app", "tier": "db"}
	config.Annotations = map[string]string{"io.kubernetes.container.hash": "1"}
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: 1234}, ReadonlyRootfs: true, NoNewPrivs: true,
		Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
	}}
	id := p.start(t, config)
	request := &api.CopyContainerRequest{
		ContainerId: id, PodSandboxId: p.id, Name: "copy", Labels: map[string]string{"mine": "yes"},
		Command: []string{"sh", "-c", "echo $COLOUR $(id -u); touch /x 2>&1; touch /data/x 2>&1; grep -E 'CapEff|NoNewPrivs' /proc/self/status; hostname; sleep 60"},
	}
	answer, err := c.own.CopyContainer(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: answer.GetContainerId()}); err != nil {
		t.Fatal(err)
	}
	st := c.status(t, answer.GetContainerId())
	if st.GetMetadata().GetName() != "copy" || !maps.Equal(st.GetLabels(), map[string]string{"tier": "db", "mine": "yes"}) || len(st.GetAnnotations()) > 0 {
		t.Errorf("got %v", st)
	}
	test.Until(t, "the copy's command has run as the original would have", func() bool {
		s, err := c.own.ContainerLogs(t.Context(), &api.ContainerLogsRequest{ContainerId: answer.GetContainerId(), Tail: -1})
		var text strings.Builder
		for err == nil {
			var record *api.LogRecord
			if record, err = s.Recv(); err == nil {
				fmt.Fprintf(&text, "%s\n", record.GetText())
			}
		}
		return strings.Contains(text.String(), "blue 1234\n") && strings.Count(text.String(), "Read-only file system") == 2 &&
			strings.Contains(text.String(), "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n")
	})
	if _, err := c.own.CopyContainer(t.Context(), request); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a second one: got %v, want AlreadyExists", err)
	}
	for _, wrong := range []*api.CopyContainerRequest{{ContainerId: id, Name: "x"}, {ContainerId: id, Command: []string{"sh"}}, {ContainerId: id, Name: "x", Command: []string{"sh"}}} {
		if _, err := c.own.CopyContainer(t.Context(), wrong); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v, want InvalidArgument", err)
		}
	}
}

// TestPrivateImageUsage checks that an image committed from a container shares the layers of the container's image.
func TestPrivateImageUsage(t *testing.T) {
	t.Parallel()
	c, engine := newCRI(t), enginetest.Require(t)
	const written = 1 << 20
	id := c.pod(t, nil).start(t, shell("app", fmt.Sprintf("head -c %d /dev/zero >/file; echo done; %s", written, idle)))
	test.Until(t, "the file is written", func() bool { return strings.Contains(c.logs(t, id), "done") })
	made, err := engine.ContainerCommit(t.Context(), id, container.CommitOptions{Reference: "disk.test/" + strings.ToLower(rand.Text())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { forgetImage(t, c, made.ID) })
	images, err := c.own.ImageUsage(t.Context(), &api.ImageUsageRequest{Times: true})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]*api.ImageUsage{}
	for _, i := range images.GetImages() {
		of[i.GetId()] = i
	}
	base, top := of[c.status(t, id).GetImageId()], of[made.ID]
	switch {
	case !base.GetUsed() || top == nil || top.GetUsed() || len(top.GetLayers()) == 0:
		t.Errorf("got %v and %v, want that only the container's image is used", base, top)
	case time.Since(time.Unix(0, top.GetCameUnixNano())).Abs() > time.Hour:
		t.Errorf("the image came at %v", time.Unix(0, top.GetCameUnixNano()))
	case images.GetLayers() == api.ImageUsageResponse_ALL:
		last := top.GetLayers()[len(top.GetLayers())-1]
		if !slices.Equal(base.GetLayers(), top.GetLayers()[:len(top.GetLayers())-1]) || images.GetLayerSizes()[last] < written {
			t.Errorf("got layers %v and %v of %v, want one more", base.GetLayers(), top.GetLayers(), images.GetLayerSizes())
		}
	}
}

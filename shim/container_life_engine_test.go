package shim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestContainerLifeCycle(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("life", "trap 'exit 0' TERM; echo ready; while :; do sleep 1 & wait; done")
	config.Labels = map[string]string{"app": "x", "annotation.odd": "1", "io.kubernetes.docker.type": "mine"}
	config.Annotations = map[string]string{"note": "a b\nc"}
	id := p.create(t, config)

	s := c.status(t, id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || s.GetStartedAt() != 0 || s.GetFinishedAt() != 0 || s.GetCreatedAt() <= 0 {
		t.Errorf("created: got %v", s)
	}
	for range 2 { // the second call is a repetition
		if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
			t.Fatalf("start: %v", err)
		}
	}
	s = c.status(t, id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() != 0 {
		t.Errorf("running: got %v", s)
	}
	if s.GetMetadata().GetName() != "life" || s.GetLabels()["annotation.odd"] != "1" || s.GetLabels()["io.kubernetes.docker.type"] != "mine" ||
		len(s.GetLabels()) != 3 || s.GetAnnotations()["note"] != "a b\nc" || len(s.GetAnnotations()) != 1 {
		t.Errorf("identity: got %v", s)
	}
	test.Until(t, "the container can be told to stop", func() bool { return strings.Contains(c.logs(t, id), "ready") })
	for range 2 {
		if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30}); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	s = c.status(t, id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 0 || s.GetReason() != "Completed" || s.GetFinishedAt() < s.GetStartedAt() {
		t.Errorf("exited: got %v", s)
	}
	if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("start of an ended container: got %v, want FailedPrecondition", err)
	}
	for range 2 {
		if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatalf("remove: %v", err)
		}
	}
	if _, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}); status.Code(err) != codes.NotFound {
		t.Errorf("status after removal: got %v, want NotFound", err)
	}
	if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Errorf("stop after removal: %v", err)
	}
}

func TestRemoveRunningContainer(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	id := c.pod(t, nil).start(t, shell("busy", idle))
	if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	list, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
	if err != nil || len(list.GetContainers()) != 0 {
		t.Errorf("got %v, %v; want an empty list", list, err)
	}
}

// TestExitReasons covers Error; TestTheOutOfMemoryReasonIsSeen covers OOMKilled.
func TestExitReasons(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	failed := c.exited(t, p.start(t, shell("failed", "exit 7")))
	if failed.GetExitCode() != 7 || failed.GetReason() != "Error" {
		t.Errorf("exit 7: got %v", failed)
	}
}

// TestStartOfMissingCommand checks that the engine's 404 is not reported as a missing container and that the container
// has exited in all RPCs.
func TestStartOfMissingCommand(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	config := shell("absent", "")
	config.Command = []string{"no-such-command"}
	id := p.create(t, config)
	_, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "executable file not found in $PATH") || strings.Contains(err.Error(), "OCI runtime") {
		t.Errorf("got %v", err)
	}
	s := c.status(t, id)
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetReason() != "ContainerCannotRun" || s.GetExitCode() == 0 || s.GetMessage() == "" {
		t.Errorf("status: got %v", s)
	}
	for state, want := range map[runtimeapi.ContainerState]int{
		runtimeapi.ContainerState_CONTAINER_EXITED: 1, runtimeapi.ContainerState_CONTAINER_CREATED: 0,
	} {
		list, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			Id: id, State: &runtimeapi.ContainerStateValue{State: state},
		}})
		if err != nil || len(list.GetContainers()) != want {
			t.Errorf("list %s: got %v, %v; want %d", state, list, err, want)
		}
	}
}

func TestListContainersFilters(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p, other := c.pod(t, nil), c.pod(t, nil)
	label := map[string]string{"test": p.id[:20]}
	config := func(name, script string) *runtimeapi.ContainerConfig {
		s := shell(name, script)
		s.Labels = label
		return s
	}
	running, created := p.start(t, config("running", idle)), p.create(t, config("created", idle))
	ended := p.start(t, config("ended", "true"))
	c.exited(t, ended)
	elsewhere := other.create(t, config("elsewhere", idle))
	held := p.start(t, config("held", idle)) // paused for the engine, running for CRI
	pause(t, c.engine, held)
	t.Cleanup(func() {
		if err := c.engine.ContainerUnpause(context.WithoutCancel(t.Context()), held); err != nil {
			t.Error(err)
		}
	})

	in := func(s runtimeapi.ContainerState) *runtimeapi.ContainerStateValue {
		return &runtimeapi.ContainerStateValue{State: s}
	}
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"label":               {&runtimeapi.ContainerFilter{LabelSelector: label}, []string{running, held, created, ended, elsewhere}},
		"other label":         {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"test": "none"}}, nil},
		"id":                  {&runtimeapi.ContainerFilter{Id: created}, []string{created}},
		"start of an id":      {&runtimeapi.ContainerFilter{Id: created[:16]}, []string{created}},
		"no such id":          {&runtimeapi.ContainerFilter{Id: strings.Repeat("0", 64)}, nil},
		"sandbox":             {&runtimeapi.ContainerFilter{PodSandboxId: other.id}, []string{elsewhere}},
		"start of sandbox id": {&runtimeapi.ContainerFilter{PodSandboxId: other.id[:16]}, []string{elsewhere}},
		"running":             {&runtimeapi.ContainerFilter{LabelSelector: label, State: in(runtimeapi.ContainerState_CONTAINER_RUNNING)}, []string{running, held}},
		"created":             {&runtimeapi.ContainerFilter{LabelSelector: label, State: in(runtimeapi.ContainerState_CONTAINER_CREATED)}, []string{created, elsewhere}},
		"exited":              {&runtimeapi.ContainerFilter{LabelSelector: label, State: in(runtimeapi.ContainerState_CONTAINER_EXITED)}, []string{ended}},
		"unknown":             {&runtimeapi.ContainerFilter{LabelSelector: label, State: in(runtimeapi.ContainerState_CONTAINER_UNKNOWN)}, nil},
	} {
		r, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: tc.filter})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := map[string]bool{}
		for _, item := range r.GetContainers() {
			got[item.GetId()] = true
		}
		if len(got) != len(tc.want) {
			t.Errorf("%s: got %d containers, want %d", name, len(got), len(tc.want))
		}
		for _, id := range tc.want {
			if !got[id] {
				t.Errorf("%s: %s is missing", name, id)
			}
		}
	}
}

func TestImageIdentityOfContainers(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	img, err := c.image.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: testImage}})
	if err != nil {
		t.Fatal(err)
	}
	want := img.GetImage().GetId()
	for name, spec := range map[string]*runtimeapi.ImageSpec{
		"by-tag": {Image: testImage},
		"by-id":  {Image: want, UserSpecifiedImage: testImage},
	} {
		config := shell(name, idle)
		config.Image = spec
		id := p.create(t, config)
		s := c.status(t, id)
		if s.GetImageId() != want || s.GetImage().GetImage() != testImage {
			t.Errorf("%s: status has image %v and id %s, want %s and %s", name, s.GetImage(), s.GetImageId(), testImage, want)
		}
		list, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
		if err != nil || list.GetContainers()[0].GetImageId() != want || list.GetContainers()[0].GetCreatedAt() != s.GetCreatedAt() {
			t.Errorf("%s: list has %v, %v; want image id %s and the same time", name, list, err, want)
		}
	}
}

// TestCreateTwice checks that a leftover of an unanswered request is replaced, unless the container has run.
func TestCreateTwice(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	first := p.create(t, shell("twice", idle))
	second := p.create(t, shell("twice", idle))
	if first == second {
		t.Error("got the same container")
	}
	if _, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: first}); status.Code(err) != codes.NotFound {
		t.Errorf("the first: got %v, want NotFound", err)
	}
	if _, err := c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: second}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.tryCreate(t, shell("twice", idle)); status.Code(err) != codes.AlreadyExists {
		t.Errorf("while it runs: got %v, want AlreadyExists", err)
	}
	next := shell("twice", idle)
	next.Metadata.Attempt = 1
	if s := c.status(t, p.create(t, next)); s.GetMetadata().GetAttempt() != 1 {
		t.Errorf("next attempt: got %v", s)
	}
}

func TestBadCreateRequests(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	change := func(f func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
		config := shell("bad", idle)
		f(config)
		return config
	}
	for name, tc := range map[string]struct {
		config *runtimeapi.ContainerConfig
		want   codes.Code
	}{
		"nothing":         {nil, codes.InvalidArgument},
		"no name":         {change(func(c *runtimeapi.ContainerConfig) { c.Metadata = nil }), codes.InvalidArgument},
		"no image":        {change(func(c *runtimeapi.ContainerConfig) { c.Image = nil }), codes.InvalidArgument},
		"unknown image":   {change(func(c *runtimeapi.ContainerConfig) { c.Image.Image = "no/such/image:v1" }), codes.NotFound},
		"log path leaves": {change(func(c *runtimeapi.ContainerConfig) { c.LogPath = "../../x" }), codes.InvalidArgument},
		"group without user": {change(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.RunAsGroup = &runtimeapi.Int64Value{Value: 1}
		}), codes.InvalidArgument},
		"unknown user": {change(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.RunAsUsername = "nobody-here"
			c.Linux.SecurityContext.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
		}), codes.InvalidArgument},
		"ambient capability": {change(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Capabilities = &runtimeapi.Capability{AddAmbientCapabilities: []string{"CHOWN"}}
		}), codes.Unimplemented},
		"missing seccomp profile": {change(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/no/such/profile"}
		}), codes.InvalidArgument},
		"target in no pod": {change(func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: "0123"}
		}), codes.NotFound},
		"id-mapped mount": {change(func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/tmp", ContainerPath: "/x", UidMappings: []*runtimeapi.IDMapping{{Length: 1}}}}
		}), codes.Unimplemented},
	} {
		if _, err := p.tryCreate(t, tc.config); status.Code(err) != tc.want {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
	if _, err := c.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: "0123456789", Config: shell("lost", idle), SandboxConfig: p.config,
	}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown sandbox: got %v, want NotFound", err)
	}
}

func TestLogLink(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	path := filepath.Join(p.config.GetLogDirectory(), "talk.log")
	start := func(attempt uint32) (id string) {
		config := shell("talk", "echo hello; "+idle)
		config.Metadata.Attempt = attempt
		id = p.start(t, config)
		if s := c.status(t, id); s.GetLogPath() != path {
			t.Errorf("log path: got %s, want %s", s.GetLogPath(), path)
		}
		return id
	}
	remove := func(id string) {
		if _, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	linked := false
	// The serve of another test may replace a link, because it writes the logs of all containers of the engine.
	for attempt := range uint32(5) {
		id := start(attempt)
		_, linkErr := os.Readlink(path)
		remove(id)
		info, err := os.Lstat(path)
		if linked = linkErr == nil && os.IsNotExist(err); linked {
			break
		}
		if err != nil || !info.Mode().IsRegular() {
			t.Fatalf("got %v; %v, %v after removal; want a link that goes with its container", linkErr, info, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if !linked {
		t.Error("no link goes with its container")
	}

	id := start(5)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// A complete line: the serve of another test may open this log and truncate an incomplete line.
	const kept = "2023-01-01T00:00:00.000000000Z stdout F another's line\n"
	if err := os.WriteFile(path, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	remove(id)
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), kept) {
		t.Errorf("a file that is no link: got %q, %v; want it untouched", b, err)
	}
}

// TestStopWithoutGrace checks that with a timeout of 0 the container has ended when the call returns, even if the stop
// signal was sufficient.
func TestStopWithoutGrace(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	p := c.pod(t, nil)
	for i := range 10 {
		config := shell("stopped", "exec sleep 10000")
		config.Metadata.Attempt = uint32(i)
		config.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		id := p.start(t, config)
		if _, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		l, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
		if err != nil || len(l.GetContainers()) != 1 || l.GetContainers()[0].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("the stopped container %d in the list: %v, %v", i, l.GetContainers(), err)
		}
		if s := c.status(t, id); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetFinishedAt() == 0 {
			t.Errorf("the stopped container %d is %v", i, s)
		}
	}
}

// TestStopEndsTheWholeTree stops and kills containers of the node's process ids, whose first process does not end the
// others. They fork all the time, ignore SIGTERM, and have left the first process's session.
func TestStopEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	c := newCRI(t)
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Linux.SecurityContext.NamespaceOptions = namespaces })
	for name, end := range map[string]func(id string) error{
		"stop": func(id string) error {
			_, err := c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
			return err
		},
		"kill": func(id string) error {
			_, err := c.own.SignalContainer(t.Context(), &api.SignalContainerRequest{ContainerId: id, Signal: "KILL"})
			return err
		},
		"paused": func(id string) error {
			_, err := c.own.PauseContainer(t.Context(), &api.PauseContainerRequest{ContainerId: id})
			if err == nil {
				_, err = c.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1})
			}
			return err
		},
		"remove": func(id string) error {
			_, err := c.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			const forks = `trap '' TERM; while :; do sleep 0.05 & wait; done`
			config := shell(name, `for i in 1 2 3; do setsid sh -c "`+forks+`" & done; echo ready; `+forks)
			config.Linux.SecurityContext.NamespaceOptions = namespaces
			id := p.start(t, config)
			test.Until(t, "the processes are started", func() bool { return strings.Contains(c.logs(t, id), "ready") })
			detail, err := c.engine.ContainerInspect(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			group, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", detail.State.Pid))
			if err != nil {
				t.Fatal(err)
			}
			if err := end(id); err != nil {
				t.Fatal(err)
			}
			if name != "remove" {
				if s := c.exited(t, id); s.GetExitCode() != 137 {
					t.Errorf("got %s %d", s.GetReason(), s.GetExitCode())
				}
			}
			test.Until(t, "all processes have ended", func() bool { return len(processesIn(t, string(group))) == 0 })
		})
	}
}

// processesIn returns the processes of the host with this text in /proc/PID/cgroup.
func processesIn(t *testing.T, group string) (pids []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && string(text) == group {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

package kuberuntime

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// tells sets the configuration in a runtime's verbose status.
func (o *Options) tells(config string, args ...any) {
	o.answer(map[string]func() (proto.Message, error){"Status": func() (proto.Message, error) {
		return &runtimeapi.StatusResponse{Info: map[string]string{"config": fmt.Sprintf(config, args...)}}, nil
	}})
}

// TestOneEngineReachedInTwoWays: an engine with two endpoints is the same runtime. Two engines with the same ID are
// different runtimes.
func TestOneEngineReachedInTwoWays(t *testing.T) {
	t.Parallel()
	const engine = `{"engineID": "E", "dockerRootDir": %q}`
	f := newFixture(t, func(o *Options) { o.tells(engine, "/var/lib/docker") })
	at := func(endpoint, root string) *fixture {
		return newFixture(t, func(o *Options) { o.Dirs, o.Endpoint = f.o.Dirs, endpoint; o.tells(engine, root) })
	}
	serve, other := at("unix:///run/crishim/crishim.sock", "/var/lib/docker"), at("stub", "/srv/docker")
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	if !serve.OwnerOf(ctx, &pod.Pod{UID: "u1"}).Apply || other.OwnerOf(ctx, &pod.Pod{UID: "u1"}).Apply {
		t.Error("an engine's pod must be of apply by whichever way it is reached, and on no other engine")
	}
	if _, err := other.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	unlock, err := f.LockPod(ctx, "default", "web", func() {})
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	locked := make(chan error)
	go func() {
		again, err := serve.LockPod(ctx, "default", "web", func() { close(waits) })
		locked <- errors.Join(err, again())
	}()
	<-waits
	if err := errors.Join(unlock(), <-locked); err != nil {
		t.Error(err)
	}
	if err := serve.removeDirs(ctx, "u1"); err != nil {
		t.Fatal(err)
	}
	record, err := f.Record("u1")
	if err != nil || len(record.Runtimes) != 1 || record.Runtimes["docker E /srv/docker"].Endpoint != "stub" {
		t.Errorf("got %+v, %v, want the other engine's", record, err)
	}
	if err := other.removeDirs(ctx, "u1"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Record("u1"); !errors.Is(err, errNoRecord) {
		t.Errorf("got %v, want that the directory is gone with the last", err)
	}
}

// TestSocketsByTheirFile: a runtime without an ID is identified by its socket, also through links and mounts.
func TestSocketsByTheirFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "a.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Symlink("a.sock", filepath.Join(dir, "link")), os.Link(filepath.Join(dir, "a.sock"), filepath.Join(dir, "mount"))); err != nil {
		t.Fatal(err)
	}
	a := identity{key: socketOf("unix://" + dir + "/a.sock")}
	if key := socketOf(dir + "/link"); key != a.key {
		t.Errorf("through a link got %s, want %s", key, a.key)
	}
	if !a.is(socketOf("unix://"+dir+"/mount"), runtimeRecord{}) || a.is(socketOf("unix://"+dir+"/other"), runtimeRecord{}) {
		t.Error("two paths of one file are one socket, and others are not")
	}
	for _, endpoint := range []string{"docker://", "docker+tcp://host:2375"} { // endpoints without a path
		if got := socketOf(endpoint); got != endpoint {
			t.Errorf("%s: got %s", endpoint, got)
		}
	}
}

// TestRecordsOfManyProcesses: concurrent processes add their runtimes to a record. The record keeps all of them.
func TestRecordsOfManyProcesses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, _ := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	const n = 8
	var wg sync.WaitGroup
	for i := range n {
		one := newFixture(t, func(o *Options) { o.Dirs, o.Endpoint = f.o.Dirs, fmt.Sprint("runtime ", i) })
		wg.Go(func() {
			for range 5 {
				if err := one.recordPod(ctx, p, &pod.Status{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	record, err := f.Record("u1")
	if err != nil || len(record.Runtimes) != n {
		t.Errorf("got %+v, %v, want %d runtimes", record, err, n)
	}
	names, err := listDir(f.o.Dirs.Pod("u1"))
	if err != nil || len(names) != 1 {
		t.Errorf("the directory has %v, %v", names, err)
	}
}

// TestBandwidthAnnotations: the sandbox gets the annotations. On the engine's bridge they have no effect and cause a
// warning.
func TestBandwidthAnnotations(t *testing.T) {
	t.Parallel()
	for plugin, warns := range map[string]int{"bridge": 1, "cni": 0, "": 0} {
		f := newFixture(t, func(o *Options) { o.tells(`{"networkPlugin": %q}`, plugin) })
		p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
		p.Annotations = map[string]string{kube.AnnotationIngress: "10M"}
		for range 2 {
			if _, err := f.Up(deadline(t), p, set, false); err != nil {
				t.Fatal(err)
			}
		}
		warned := 0
		for _, reason := range f.reasons() {
			if reason == eventBandwidth {
				warned++
			}
		}
		if got := f.status(t, p).Sandbox().GetAnnotations()[kube.AnnotationIngress]; warned != warns || got != "10M" {
			t.Errorf("%q: %d warnings, want %d; the sandbox has %q", plugin, warned, warns, got)
		}
	}
}

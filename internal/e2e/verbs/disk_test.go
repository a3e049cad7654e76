package verbs

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/stubcri"
)

// withoutLogs returns the cells of a table without those of logs: other tests have theirs in one of the directories.
func withoutLogs(table string) string {
	var lines strings.Builder
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "logs ") {
			lines.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
		}
	}
	return lines.String()
}

// TestDf shows what a runtime tells that has only CRI, and what is on this host.
func TestDf(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	volumes := filepath.Join(c.vars["CRISHIM_ROOT"], "pods", "left", "volumes", "kubernetes.io~empty-dir", "data")
	if err := os.MkdirAll(volumes, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(volumes, "file"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.run("df", "-v", "--columns", "type,name,count,active,reclaimable", "--no-headers")
	want := `images 3 1 at most 4.3MB
images docker.io/library/busybox:latest 1 1 0B
images registry.example.com/app:v1 1 0 at most 4.3MB
images registry.k8s.io/pause:3.9 1 0 0B
containers 3 2 8.19kB
containers default/web/nginx 1 1 0B
containers prod/db/migrate 1 0 8.19kB
containers prod/db/postgres 1 1 0B
volumes 1 1 0B
volumes pod left 1 1 0B
`
	if diff := cmp.Diff(want, withoutLogs(r.out)); diff != "" || r.code != 0 || r.err != "" {
		t.Errorf("exit %d, stderr %q; (-want +got):\n%s", r.code, r.err, diff)
	}
	r = c.run("df", "-o", "json")
	var document struct {
		Usage []struct {
			Type    string
			Size    *struct{ Bytes uint64 }
			Objects []any
		}
	}
	if err := json.Unmarshal([]byte(r.out), &document); err != nil || len(document.Usage) != 4 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, u := range document.Usage {
		if len(u.Objects) > 0 || u.Size == nil || u.Type == "volumes" && u.Size.Bytes < 1<<20 {
			t.Errorf("got %+v", u)
		}
	}
}

// TestDfOfWhatIsNotKnown: df names a runtime without statistics, and fails if the runtime does not answer in time.
func TestDfOfWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{})
	seedNode(c.stub)
	for _, call := range []string{"ListContainerStats", "ContainerStats", "ImageFsInfo"} {
		c.stub.Fail(call, status.Error(codes.Unimplemented, "disabled"))
	}
	line := []string{"df", "--no-headers", "--columns", "type,size,reclaimable,note"}
	r := c.run(line...)
	if want := "images - at most 4.3MB"; r.code != 0 || !strings.Contains(strings.Join(strings.Fields(r.out), " "), want) || strings.Count(r.out, "stubcri does not tell") < 2 || r.err != "" {
		t.Errorf("got %+v, want that the runtime does not tell", r)
	}
	c.stub.Before("ListContainerStats", func(ctx context.Context) { <-ctx.Done() })
	r = c.run(append([]string{"--timeout", "100ms"}, line...)...)
	if r.code != 1 || !strings.Contains(r.out, "images ") || !strings.Contains(r.err, "--timeout waits longer") {
		t.Errorf("got %+v, want the rest, and what has taken too long", r)
	}
}

// TestPruneFilters by labels, and refuses what the runtime does not know.
func TestPruneFilters(t *testing.T) {
	t.Parallel()
	c := withStub(t, stubcri.Options{Change: func(answer proto.Message) {
		if m, ok := answer.(*runtimeapi.ImageStatusResponse); ok && m.GetImage() != nil && m.GetInfo() != nil {
			label := "other"
			if strings.Contains(strings.Join(m.GetImage().GetRepoTags(), " "), "kept") {
				label = "keep"
			}
			m.Info = map[string]string{"info": `{"imageSpec": {"config": {"Labels": {"` + label + `": "yes"}}}}`}
		}
	}})
	for _, tag := range []string{"kept:1", "gone:1"} {
		c.stub.AddImage(tag)
	}
	for filter, want := range map[string]string{
		"label!=keep": "gone:1", "label=other=yes": "gone:1", "label=keep": "kept:1", "reference=kept": "kept:1", "label=keep=no": "",
	} {
		r := c.run("rmi", "--prune", "--dry-run", "--filter", filter, "--filter", "reference=:1")
		all := "Would free: 0B\n"
		if want != "" {
			all = "Would delete: docker.io/library/" + want + "\nWould free: at most 4.3MB\n"
		}
		if r.code != 0 || r.out != all {
			t.Errorf("%s: got %+v, want %q", filter, r, all)
		}
	}
	if r := c.run("rmi", "--prune", "--until", time.Hour.String()); r.code != 1 || !strings.Contains(r.err, "stubcri does not tell when an image came") || r.out != "" {
		t.Errorf("got %+v, want that the time is not known", r)
	}
	for _, line := range [][]string{{"rmi", "--until", "1h", "busybox"}, {"rmi", "--filter", "label=a", "busybox"}, {"rmi", "--prune", "--filter", "label"}, {"rmi", "--prune", "--until", "-1h"}} {
		if r := c.run(line...); r.code != 2 {
			t.Errorf("%v: got %+v, want wrong usage", line, r)
		}
	}
}

package image

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestPruneKeepsUsedImages: prune keeps the image of a volume, an image that only the user's name refers to, and the
// sandbox image of a containerd that does not pin it.
func TestPruneKeepsUsedImages(t *testing.T) {
	stub := stubcri.Start(t, stubcri.Options{Change: func(answer proto.Message) {
		switch m := answer.(type) {
		case *runtimeapi.StatusResponse:
			m.Info = map[string]string{"config": `{"sandboxImage":"old/pause:3.1"}`}
		case *runtimeapi.ListContainersResponse:
			for _, c := range m.GetContainers() {
				c.ImageId, c.ImageRef = "", "sha256:of-another-platform"
				c.Image = &runtimeapi.ImageSpec{Image: c.ImageRef, UserSpecifiedImage: "docker.io/library/used:1"}
			}
		}
	}})
	for _, tag := range []string{"used:1", "volume:1", "old/pause:3.1", "unused:1"} {
		stub.AddImage(tag)
	}
	stub.AddContainer(stub.AddPod("default", "web"), "app", func(c *runtimeapi.ContainerConfig) {
		c.Image = &runtimeapi.ImageSpec{Image: "used:1"}
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: "volume:1"}}}
	})
	conn, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: stub.Endpoint, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out, errOut test.Buffer
	printer := cli.NewPrinter(&cli.Process{Out: &out, Err: &errOut, Now: time.Now})
	o := &rmiOptions{prune: true}
	o.All = true
	if err := o.run(t.Context(), printer, conn); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "Deleted: docker.io/library/busybox:latest\nDeleted: docker.io/library/unused:1\nFreed: at most 8.6MB\n" {
		t.Errorf("got %q, want only the unused images deleted", got)
	}
}

// TestPruneLooksAgain: an image that comes into use between the list and its removal stays.
func TestPruneLooksAgain(t *testing.T) {
	stub := stubcri.Start(t, stubcri.Options{})
	stub.AddImage("spare:1")
	conn, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: stub.Endpoint, LookupEnv: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var out, errOut test.Buffer
	printer := cli.NewPrinter(&cli.Process{Out: &out, Err: &errOut, Now: time.Now})
	o := &rmiOptions{prune: true}
	o.All = true
	var once sync.Once
	looks := 0
	stub.Before("ListContainers", func(context.Context) {
		if looks++; looks > 1 { // the second list precedes the removal
			once.Do(func() {
				stub.AddCreated(stub.AddPod("default", "web"), "app", func(c *runtimeapi.ContainerConfig) { c.Image = &runtimeapi.ImageSpec{Image: "spare:1"} })
			})
		}
	})
	if err := o.run(t.Context(), printer, conn); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "Freed: 0B\n" || !strings.Contains(errOut.String(), "is in use by now, and stays") {
		t.Errorf("got %q and %q, want that the image stays", got, errOut.String())
	}
}

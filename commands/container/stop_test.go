package container

import (
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestStopAllAnnounces: stop --all lists the containers before it stops them.
func TestStopAllAnnounces(t *testing.T) {
	stub := stubcri.Start(t, stubcri.Options{})
	web := stub.AddPod("default", "web")
	stub.AddContainer(web, "app")
	stub.AddContainer(web, "proxy")
	var out, errOut test.Buffer
	printer := cli.NewPrinter(&cli.Process{Out: &out, Err: &errOut, Now: time.Now})
	o := &stopOptions{Targets: cli.Targets{All: true}, dirs: pod.DefaultDirs(func(string) (string, bool) { return "", false })}
	if err := o.run(t.Context(), printer, connect(t, stub)); err != nil {
		t.Fatal(err)
	}
	if got := errOut.String(); !strings.HasPrefix(got, "stopping 2 containers:\n  default/web/") {
		t.Errorf("got %q", got)
	}
}

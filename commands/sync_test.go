package commands

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// TestSyncShowsACrashLoop has a container that ends each time: ps and pods say so while sync waits for the next
// start, describe after sync has ended that nobody starts it again. The log of sync has colours on a terminal.
func TestSyncShowsACrashLoop(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "crash.yaml"), []byte(strings.ReplaceAll(applyPod1, "name: main", "name: crashing")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.stub.AfterStart("crashing", func(id string) { c.stub.Exit(id, 3) })
	vars := map[string]string{"CRI_CONFIG_FILE": c.file("none.yaml", ""), "CONTAINER_RUNTIME_ENDPOINT": c.stub.Endpoint, "CRISHIM_ROOT": c.vars["CRISHIM_ROOT"]}
	var out test.Buffer
	env := &cli.Env{
		In: strings.NewReader(""), Out: &out, Err: t.Output(), OutTerminal: true, Now: time.Now, Version: "v0.0.0-test", ConnectTimeout: time.Minute,
		LookupEnv: func(key string) (string, bool) { value, ok := vars[key]; return value, ok },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- Main(ctx, []string{"crishim", "sync", directory}, env) }()
	defer func() { cancel(); <-ended }()
	until := func(what string, line ...string) {
		t.Helper()
		pattern := regexp.MustCompile(what)
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r := c.run(line...)
			if pattern.MatchString(r.out) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%v: %+v, want %s", line, r, what)
			}
		}
	}
	until(`(?m)^crashing +CrashLoopBackOff, next in `, "ps", "-a", "--columns", "name,state")
	until(`(?m)^web +0/1 +CrashLoopBackOff, next in `, "pods", "--columns", "name,ready,state")
	if log := regexp.MustCompile(`\x1b\[2m[0-9:]{8}\x1b\[0m default/web/crashing:\x1b\[33m warning:\x1b\[0m exited with status 3`); !log.MatchString(out.String()) {
		t.Errorf("no end in colours: %q", out.String())
	}
	cancel()
	ended <- <-ended
	until(`(?m)^crashing +Exited \(3\) `, "ps", "-a", "--columns", "name,state")
	until(`(?m)^Made by: .* it is not probed or restarted any more$`, "describe", "web")
}

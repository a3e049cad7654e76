package verbs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crishim/crishim/commands"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// syncs runs sync until stop is called. until waits for a line of another verb's output.
func syncs(t *testing.T, c *commandTest, directory string) (until func(what string, line ...string), stop func(), out *test.Buffer) {
	t.Helper()
	out = &test.Buffer{}
	vars := map[string]string{"CRI_CONFIG_FILE": c.file("none.yaml", ""), "CONTAINER_RUNTIME_ENDPOINT": c.stub.Endpoint, "CRISHIM_ROOT": c.vars["CRISHIM_ROOT"]}
	env := &cli.Process{
		In: strings.NewReader(""), Out: out, Err: t.Output(), OutTerminal: true, Now: time.Now, Version: "v0.0.0-test", ConnectTimeout: time.Minute,
		LookupEnv: func(key string) (string, bool) { value, ok := vars[key]; return value, ok },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- commands.Main(ctx, []string{"crishim", "sync", directory}, env) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	until = func(what string, line ...string) {
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
	return until, stop, out
}

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
	until, stop, out := syncs(t, c, directory)
	until(`(?m)^crashing +CrashLoopBackOff, next in `, "ps", "-a", "--columns", "name,state")
	until(`(?m)^web +0/1 +CrashLoopBackOff, next in `, "pods", "--columns", "name,ready,state")
	until(`"state": "CrashLoopBackOff",\n`, "top", "--once", "-o", "json")
	if log := regexp.MustCompile(`\x1b\[2m[0-9:]{8}\x1b\[0m default/web/crashing:\x1b\[33m warning:\x1b\[0m exited with status 3`); !log.MatchString(out.String()) {
		t.Errorf("no end in colours: %q", out.String())
	}
	stop()
	until(`(?m)^crashing +Exited \(3\) `, "ps", "-a", "--columns", "name,state")
	until(`(?m)^Made by: .* it is not probed or restarted any more$`, "describe", "web")
}

// TestSyncShowsWhatIsNotThere: a pod without a sandbox and a manifest that is wrong are in the tables and in why, for as long as sync runs.
func TestSyncShowsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := podTest(t)
	c.stub.Fail("RunPodSandbox", errors.New("no network"))
	directory := t.TempDir()
	for name, text := range map[string]string{"web.yaml": applyPod1, "wrong.yaml": "kind: Pod\n"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	until, stop, _ := syncs(t, c, directory)
	columns := []string{"--columns", "name,namespace,ready,state"}
	until(`(?m)^web +default +0/1 +FailedCreatePodSandBox`, append([]string{"pods"}, columns...)...)
	until(`(?m)^wrong.yaml +- +0/0 +InvalidManifest`, append([]string{"pods"}, columns...)...)
	until(`default/web.*FailedCreatePodSandBox`, "top", "--once")
	until(`(?m)^Pod: +default/web\nState: +FailedCreatePodSandBox, 0/1 ready`, "describe", "web")
	until(`sync cannot read \S*/wrong.yaml: `, "why")
	for _, verb := range []string{"describe", "delete"} {
		if got := c.run(verb, "wrong.yaml"); got.code != 1 || !strings.Contains(got.err, "/wrong.yaml is a manifest with errors: `crishim why` shows them\n") {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	until(`(?m)^$`, "pods", "-q")
	stop()
	until(`(?m)\A[^w]*web +[^w]*\z`, append([]string{"pods"}, columns...)...)
}

// TestSyncShowsTheEndOfARemovedPod: a finished pod keeps its state after its containers were removed.
func TestSyncShowsTheEndOfARemovedPod(t *testing.T) {
	t.Parallel()
	for code, want := range map[int32]string{0: "Completed", 3: "Error"} {
		c := podTest(t)
		directory := t.TempDir()
		if err := os.WriteFile(filepath.Join(directory, "web.yaml"), []byte(strings.Replace(applyPod1, "spec:", "spec:\n  restartPolicy: Never", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.stub.AfterStart("main", func(id string) { c.stub.Exit(id, code) })
		until, stop, _ := syncs(t, c, directory)
		columns := []string{"pods", "--columns", "name,state"}
		until(`(?m)^web +`+want+`$`, columns...)
		if r := c.run("rmp", "-f", "default/web"); r.code != 0 {
			t.Errorf("got %+v", r)
		}
		until(`(?m)^web +`+want+`$`, columns...)
		until(`(?m)^State: +`+want, "describe", "web")
		stop()
	}
}

package reliability

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/crishim/crishim/internal/test"
)

// clientLines returns the commands to kill by the state they need: nothing, a pod, a created or a running container.
// POD, CONTAINER and NAME are placeholders for its objects.
func clientLines() map[string][]string {
	return map[string][]string{
		"":        {"runp POD.json", "apply -f POD.yaml", "run -d --name NAME --label test=NAME --no-pull IMAGE sleep 1000", "images", "inspecti IMAGE"},
		"pod":     {"create POD MAIN.json POD.json", "stopp POD", "rmp -f POD", "inspectp POD", "pods"},
		"created": {"start CONTAINER", "rm CONTAINER", "cp /etc/hostname CONTAINER:/tmp/x"},
		"running": {
			"stop -t 1 CONTAINER", "rm -f CONTAINER", "stopp POD", "rmp -f POD", "update --cpu-share 512 CONTAINER", "exec CONTAINER sleep 1000", "exec --sync CONTAINER sleep 1000",
			"cp CONTAINER:/etc/passwd -", "logs CONTAINER", "ps -a", "inspect CONTAINER", "stats", "statsp", "gc --dry-run",
		},
	}
}

// TestCommandKilledInTheMiddleOnEngine kills a command with SIGKILL during an engine call, both with an embedded shim
// and through serve. Lists are correct afterwards, the pod can be removed, and nothing is left of the command. With
// CRISHIM_TEST_LONG=1 it is killed in each of its calls.
func TestCommandKilledInTheMiddleOnEngine(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "a private /run needs root")
	}
	h := newHost(t)
	var all sync.WaitGroup
	for state, lines := range clientLines() {
		all.Go(func() {
			t.Run("with "+state, func(t *testing.T) {
				c := newClientKiller(t, h)
				for i, line := range lines {
					through := []string{embedded(c.proxy.Host), c.serve.endpoint()}
					if os.Getenv("CRISHIM_TEST_LONG") == "" {
						through = through[i%2 : i%2+1]
					}
					for _, endpoint := range through {
						c.kill(t, endpoint, state, line)
					}
				}
				c.serve.stop()
			})
		})
	}
	all.Wait()
}

// clientKiller runs commands with their own /run/crishim.
type clientKiller struct {
	*killer
	run string
}

func newClientKiller(t *testing.T, h host) *clientKiller {
	t.Helper()
	return &clientKiller{newKiller(t, h), t.TempDir()}
}

// start starts a command and returns a function that kills it and a channel that is closed at its end.
func (c *clientKiller) start(t *testing.T, endpoint string, args []string) (kill func(), ended <-chan struct{}) {
	t.Helper()
	cmd := c.host.crishim(t, endpoint).shell(context.WithoutCancel(t.Context()),
		`mkdir -p /run/crishim && mount --bind "$0" /run/crishim && exec crishim "$@"`)
	cmd.Args = append([]string{"sh", "-c", cmd.Args[2], c.run}, args...)
	cmd.SysProcAttr = newMounts()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	return func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL) }, done
}

// kill runs a command repeatedly and kills it in a different call each time.
func (c *clientKiller) kill(t *testing.T, endpoint, state, line string) {
	t.Helper()
	last := 0 // last call to kill in, for commands whose calls do not end
	if strings.HasPrefix(line, "exec") && os.Getenv("CRISHIM_TEST_LONG") != "" {
		last = c.callsOfExec(t, endpoint, state, line)
	}
	for n := 1; ; n++ {
		p := c.inState(t, state)
		args := c.words(t, p, line)
		if strings.HasPrefix(line, "apply") { // apply labels containers like a kubelet
			p.label = "io.kubernetes.pod.name=" + p.config.GetMetadata().GetName()
		}
		var killed atomic.Bool
		reach := make(chan func(), 1) // receives the kill function once the command runs
		var once sync.Once
		c.proxy.Set(func(call int, name string) fault {
			// One read-only call represents all.
			if call < n || call > 1 && name[0] == 'G' && os.Getenv("CRISHIM_TEST_LONG") == "" && !c.reads(line) {
				return fault{}
			}
			return fault{During: func() {
				once.Do(func() {
					killed.Store(true)
					(<-reach)()
				})
			}}
		})
		kill, ended := c.start(t, endpoint, args)
		reach <- kill
		if strings.HasPrefix(line, "exec") { // an exec runs until it is killed
			wait(t, func() error {
				if len(reach) > 0 {
					return fmt.Errorf("%s makes no call", line)
				}
				return nil
			})
		}
		<-ended
		c.proxy.Set(nil)
		once.Do(func() {}) // no more kills from here on
		t.Logf("%s through %s, killed in call %d: %t", line, strings.SplitN(endpoint, ":", 2)[0], n, killed.Load())
		// The next command removes the leftovers of the killed one.
		if next, done := c.start(t, embedded(c.host.endpoint()), []string{"pods"}); next != nil {
			<-done
		}
		if left, err := os.ReadDir(c.run); err != nil || len(left) != 0 {
			t.Errorf("%s: left in /run/crishim: %v, %v", line, left, err)
		}
		c.truthful(t, p)
		wait(t, func() error { // pending engine operations may finish late
			ids, err := p.sandboxes(t.Context(), c.serve)
			if err != nil {
				return err
			}
			for _, p.id = range ids {
				if err := p.stop(t.Context(), c.serve); err != nil {
					return err
				}
				if err := p.remove(t.Context(), c.serve); err != nil {
					return err
				}
			}
			return p.left(t.Context())
		})
		if !killed.Load() || os.Getenv("CRISHIM_TEST_LONG") == "" || n == last {
			return
		}
	}
}

// callsOfExec returns the number of calls that an exec makes until its process runs.
func (c *clientKiller) callsOfExec(t *testing.T, endpoint, state, line string) int {
	t.Helper()
	p := c.inState(t, state)
	c.proxy.Set(nil)
	kill, ended := c.start(t, endpoint, c.words(t, p, line))
	wait(t, func() error { return p.runs(t.Context(), "sleep 1000") })
	calls := len(c.proxy.Calls())
	kill()
	<-ended
	c.gone(t, p)
	return calls
}

func (c *clientKiller) reads(line string) bool {
	switch strings.Fields(line)[0] {
	case "images", "inspecti", "inspectp", "pods", "logs", "ps", "inspect", "stats", "statsp", "gc", "cp":
		return true
	}
	return false
}

func (c *clientKiller) inState(t *testing.T, state string) *pod {
	t.Helper()
	p := c.host.pod(t)
	for i, f := range []func(context.Context) error{
		func(ctx context.Context) error { return p.run(ctx, c.serve) },
		func(ctx context.Context) error { return p.create(ctx, c.serve) },
		func(ctx context.Context) error { return p.start(ctx, c.serve) },
	} {
		if i >= map[string]int{"": 0, "pod": 1, "created": 2, "running": 3}[state] {
			break
		}
		if err := f(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (c *clientKiller) words(t *testing.T, p *pod, line string) []string {
	t.Helper()
	name := p.config.GetMetadata().GetName()
	manifest := p.file(t, "pod.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: reliability, labels: {test: %s}}
spec:
  containers: [{name: main, image: %q, imagePullPolicy: Never, command: [sleep, "1000"]}]
`, name, name, testImage))
	return strings.Fields(strings.NewReplacer(
		"POD.json", p.json(t, p.config), "POD.yaml", manifest, "MAIN.json", p.json(t, p.container()),
		"POD", p.id, "CONTAINER", p.containerID, "NAME", name, "IMAGE", testImage,
	).Replace(line))
}

package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	urfave "github.com/urfave/cli/v2"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/auth"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// podRuntime is the pod runtime with its connection.
type podRuntime struct {
	*kuberuntime.Manager
	conn *client.Conn
	dirs pod.Dirs
}

type podRuntimeOptions struct {
	steps       func(kuberuntime.Event) // shows each event; nil: events are not shown
	progress    bool                    // show the progress of pulls
	registerer  prometheus.Registerer
	serial      bool
	qps         float64
	burst       int
	pullsWait   bool // a pull beyond the rate waits for its turn
	plugins     cli.CredentialPlugins
	limitedSwap bool
	singleOOM   bool // an OOM kill ends one process instead of the container
}

// connectHere connects to a runtime of this host, because pods from manifests have directories on the host.
func connectHere(ctx context.Context, connector *cli.Connector) (*client.Conn, error) {
	conn, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if remote := conn.Remote(); remote != "" {
		return nil, cli.Join(fmt.Errorf("pods from manifests keep volumes and logs on the runtime's host, and %s is another one", remote), conn.Close())
	}
	return conn, nil
}

func openCollector(ctx context.Context, connector *cli.Connector) (*client.Conn, *diagnose.Collector, error) {
	conn, err := connectHere(ctx, connector)
	if err != nil {
		return nil, nil, err
	}
	c, err := diagnose.Open(ctx, conn, diagnose.Options{Dirs: pod.DefaultDirs(connector.LookupEnv), Now: connector.Now})
	if err != nil {
		return nil, nil, cli.Join(err, conn.Close())
	}
	return conn, c, nil
}

func openPodRuntime(ctx context.Context, printer *cli.Printer, connector *cli.Connector, o podRuntimeOptions) (*podRuntime, error) {
	host, err := criconfig.ReadHost()
	if err != nil {
		return nil, err
	}
	if err := o.setUp(&host); err != nil {
		return nil, err
	}
	conn, err := connectHere(ctx, connector)
	if err != nil {
		return nil, err
	}
	r := &podRuntime{conn: conn, dirs: pod.DefaultDirs(connector.LookupEnv)}
	ko := kuberuntime.ConnOptions(conn)
	ko.Dirs, ko.Host, ko.Now = r.dirs, host, printer.Now
	ko.Auth = func(ctx context.Context, image string) (*runtimeapi.AuthConfig, error) {
		// A credential helper may hang. The kubelet has the same limit for its credential plugins.
		ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("none after a minute"))
		defer cancel()
		return auth.Lookup(ctx, image, auth.Options{LookupEnv: connector.LookupEnv, Plugins: o.plugins.Plugins, Stderr: printer.Err})
	}
	ko.Events, ko.Registerer = keepEvents(printer, r.dirs, o.steps), o.registerer
	ko.SerialPulls, ko.PullQPS, ko.PullBurst, ko.PullsWait = o.serial, o.qps, o.burst, o.pullsWait
	if o.progress {
		ko.Pull = cli.PullInLines(printer, conn)
	}
	r.Manager, err = kuberuntime.New(ctx, ko)
	if err != nil {
		return nil, cli.Join(err, conn.Close())
	}
	return r, nil
}

// setUp adds the settings to host, and checks that the host supports them.
func (o podRuntimeOptions) setUp(host *criconfig.Host) error {
	host.LimitedSwap, host.SingleProcessOOMKill = o.limitedSwap, o.singleOOM
	if o.limitedSwap && !host.CgroupV2 {
		return errors.New("--limited-swap needs cgroup v2, and this host has cgroup v1")
	}
	return nil
}

func (r *podRuntime) close() error {
	r.Manager.Close()
	return r.conn.Close()
}

// keepEvents shows each event and stores it for describe. A failed write causes a single warning, because pods do not
// depend on stored events.
func keepEvents(printer *cli.Printer, dirs pod.Dirs, steps func(kuberuntime.Event)) func(kuberuntime.Event) {
	var once sync.Once
	return func(e kuberuntime.Event) {
		if steps != nil {
			steps(e)
		}
		if err := kuberuntime.AppendEvent(dirs, e); err != nil {
			once.Do(func() { printer.Warn("events are not kept: %w", err) })
		}
	}
}

// stepLines writes each event as a line to stderr.
func stepLines(printer *cli.Printer) func(kuberuntime.Event) {
	return func(e kuberuntime.Event) {
		name := e.Namespace + "/" + e.Pod
		if e.Container != "" {
			name += "/" + e.Container
		}
		mark := ""
		if e.Warning {
			mark = "warning: "
		}
		printer.Note("%s: %s%s", name, mark, e.Message)
	}
}

func lockPod(ctx context.Context, printer *cli.Printer, r *podRuntime, namespace, name string) (unlock func(), err error) {
	release, err := r.LockPod(ctx, namespace, name, func() {
		printer.Warn("pod %s/%s: waiting for another crishim that works on it", namespace, name)
	})
	if err != nil {
		return nil, fmt.Errorf("lock the pod: %w", err)
	}
	return func() {
		if err := release(); err != nil {
			printer.Warn("pod %s/%s: unlock: %w", namespace, name, err)
		}
	}, nil
}

func manifestFlag(to *[]string) urfave.Flag {
	return cli.StringsFlag(to, "filename", "Read manifests from `FILE`, from the files of a directory, or from stdin (-)", "f")
}

func recursiveFlag(to *bool) urfave.Flag {
	return cli.BoolFlag(to, "recursive", "Read directories recursively", "R")
}

// inputOptions has the flags of apply and sync for reading manifests.
type inputOptions struct{ manifest.Options }

func (o *inputOptions) flags() []urfave.Flag {
	return []urfave.Flag{
		cli.IntFlag(&o.Replicas, "replicas", "Run `N` pods of each Deployment, ReplicaSet and StatefulSet"),
		cli.BoolFlag(&o.Strict, "strict", "Refuse kinds that need an API server instead of skipping them"),
		cli.LabelsFlag(&o.NodeLabels, "node-labels", "Set labels `KEY=VALUE` of this node for nodeSelector and node affinity"),
		cli.StringFlag(&o.VolumeDir, "volume-dir", "Create a directory in `DIR` for each PersistentVolumeClaim, even if the manifests do not define it"),
	}
}

const maxReplicas = 1000

func (o *inputOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if c.IsSet("replicas") && (o.Replicas < 1 || o.Replicas > maxReplicas) {
		return cli.Usagef("invalid --replicas %d: must be between 1 and %d", o.Replicas, maxReplicas)
	}
	for _, key := range slices.Sorted(maps.Keys(o.NodeLabels)) {
		if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(o.NodeLabels[key])); len(problems) > 0 {
			return cli.Usagef("invalid --node-labels %s=%s: %s", key, o.NodeLabels[key], strings.Join(problems, "; "))
		}
	}
	if o.AnyClaim = c.IsSet("volume-dir"); !o.AnyClaim {
		o.VolumeDir = in.PodDirs().Claims()
	}
	if o.VolumeDir == "" {
		return cli.Usagef("invalid --volume-dir: must not be empty")
	}
	o.VolumeDir, err = filepath.Abs(o.VolumeDir)
	return err
}

// withSubdirectories returns paths with the directories below them. Hidden directories are left out, like hidden files.
func withSubdirectories(paths []string) (all []string, err error) {
	for _, path := range paths {
		if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
			all = append(all, path) // the reader of the manifests reports the error
			continue
		}
		root := path + "/" // the slash makes WalkDir follow a link at path
		err := filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case at != root && e.IsDir() && strings.HasPrefix(e.Name(), "."):
				return fs.SkipDir
			case e.IsDir():
				all = append(all, filepath.Clean(at))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// podWait has the flags of apply and sync for waiting.
type podWait struct {
	kuberuntime.Wait
	text    cli.WaitText
	timeout time.Duration
}

func (w *podWait) flags() []urfave.Flag {
	timeout := cli.DurationFlag(&w.timeout, "wait-timeout", "With --wait: give up after `DURATION`, 0 for never (default after six crashes in a row)")
	return []urfave.Flag{cli.WaitFlag{GenericFlag: &urfave.GenericFlag{
		Name: "wait", Value: &w.text,
		Usage: "Wait until pods are ready, or have succeeded if their restartPolicy is Never or OnFailure; --wait=ready waits until all are ready",
	}}, timeout}
}

// check reads the flags. Without --wait-timeout a crash loop ends the wait.
func (w *podWait) check(c *urfave.Context) error {
	limited := c.IsSet("wait-timeout")
	if !limited {
		w.MaxBackOff = kuberuntime.DefaultMaxBackOff
	}
	on, err := strconv.ParseBool(w.text.String())
	switch {
	case w.text == "ready":
		w.Until = kuberuntime.UntilReady
	case err == nil && on:
		w.Until = kuberuntime.UntilDone
	case err != nil && c.IsSet("wait"):
		return cli.Usagef("invalid --wait=%s: must be --wait or --wait=ready", w.text)
	}
	if limited && w.Until == kuberuntime.UntilStarted {
		return cli.Usagef("--wait-timeout needs --wait")
	}
	return nil
}

func (w *podWait) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, w.timeout, fmt.Errorf("--wait-timeout of %s is over", w.timeout))
}

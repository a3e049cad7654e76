package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/logfile"
)

// Values of Logs, which select the containers whose logs are in a bundle.
const (
	LogsAll       = "all"
	LogsUnhealthy = "unhealthy"
	LogsNone      = "none"
)

// Node is the CRI runtime of the node, with the options for its parts.
type Node struct {
	Conn *client.Conn
	Logs string // LogsAll, LogsUnhealthy or LogsNone
	Tail int    // lines of each log
	Keep Keep
}

// callsLimit is the time limit of a part that makes many CRI calls.
const callsLimit = time.Minute

// Parts returns the parts that make CRI calls.
func (n *Node) Parts() []Part {
	return []Part{{"conditions", callsLimit, n.conditions}, {"pods", callsLimit, n.pods}, {"containers", callsLimit, n.containers}, {"images", callsLimit, n.images}}
}

func (n *Node) conditions(ctx context.Context) (func(*Report), error) {
	s, err := n.Conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	return func(r *Report) {
		r.Status = message{}
		r.Status.pick(s.GetStatus(), conditionFields)
	}, err
}

func (n *Node) pods(ctx context.Context) (func(*Report), error) {
	list, err := n.Conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	all := make([]message, len(list.GetItems()))
	failed := each(ctx, len(all), func(ctx context.Context, i int) error {
		p := list.GetItems()[i]
		s, err := n.Conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: true})
		all[i] = newPod(p, s)
		return err
	})
	return func(r *Report) { r.Pods = all }, cmp.Or(err, failed)
}

func (n *Node) containers(ctx context.Context) (func(*Report), error) {
	list, err := n.Conn.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	pods, podsErr := n.Conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	names := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, p := range pods.GetItems() {
		names[p.GetId()] = p.GetMetadata()
	}
	stats, statsErr := n.Conn.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	use := map[string]*runtimeapi.ContainerStats{}
	for _, s := range stats.GetStats() {
		use[s.GetAttributes().GetId()] = s
	}
	all, logs := make([]message, len(list.GetContainers())), make([]File, len(list.GetContainers()))
	failed := each(ctx, len(all), func(ctx context.Context, i int) error {
		c := list.GetContainers()[i]
		s, err := n.Conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
		pod, log := names[c.GetPodSandboxId()], ""
		all[i], log = newContainer(c, s, pod, use[c.GetId()], n.Keep)
		elsewhere := n.Conn.Remote() != "" // log paths exist on the remote host only
		unstarted := c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED
		if log = cmp.Or(s.GetStatus().GetLogPath(), log); err != nil || log == "" || elsewhere || unstarted || n.Logs == LogsNone || n.Logs != LogsAll && !isUnhealthy(c, s.GetStatus()) {
			return err
		}
		name := fmt.Sprintf("%s/%s/%s/%d/%.12s", pod.GetNamespace(), pod.GetName(), c.GetMetadata().GetName(), c.GetMetadata().GetAttempt(), c.GetId())
		logs[i], err = n.log(ctx, log, name)
		return err
	})
	return func(r *Report) {
		r.Containers = all
		for _, f := range logs {
			if f.Name != "" {
				r.Files = append(r.Files, f)
			}
		}
	}, errors.Join(err, podsErr, statsErr, failed)
}

// UnsafeInName matches characters that are unsafe in file names.
var UnsafeInName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// logBytes limits the size of a log and of a file of the host.
const logBytes = 1 << 20

// log returns the last lines of a container's log. The text of the lines is not redacted.
func (n *Node) log(ctx context.Context, path, of string) (File, error) {
	var text []byte
	begun := map[string]bool{} // whether the last entry of a stream is a partial line
	err := logfile.Read(ctx, path, logfile.Options{Tail: n.Tail}, func(e logfile.Entry) error {
		if !begun[e.Stream] {
			text = fmt.Appendf(text, "%s %s ", e.Time.UTC().Format(time.RFC3339Nano), e.Stream)
		}
		begun[e.Stream] = e.Partial()
		text = append(text, e.Text...)
		text = text[max(0, len(text)-logBytes):]
		return nil
	})
	if err != nil {
		err = fmt.Errorf("log of %s: %w", of, err)
	}
	name := UnsafeInName.ReplaceAllString(strings.ReplaceAll(of, "/", "_"), "-")
	return File{"logs/" + strings.Trim(name[max(0, len(name)-150):], ".-") + ".log", strings.ToValidUTF8(string(text), "\uFFFD")}, err
}

func (n *Node) images(ctx context.Context) (func(*Report), error) {
	list, err := n.Conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return func(r *Report) {
		for _, i := range list.GetImages() {
			image := message{}
			image.pick(i, imageFields)
			r.Images = append(r.Images, image)
		}
	}, err
}

// each calls ask for each index, a few at a time. It stops after a timeout, because the runtime hangs.
func each(ctx context.Context, n int, ask func(context.Context, int) error) error {
	errs := make([]error, n)
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(4)
	for i := range n {
		work.Go(func() error {
			if errs[i] = ask(ctx, i); status.Code(errs[i]) == codes.DeadlineExceeded {
				return errs[i]
			}
			return nil
		})
	}
	return cmp.Or(work.Wait(), errors.Join(errs...))
}

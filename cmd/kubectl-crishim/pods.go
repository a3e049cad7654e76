package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/proctree"
)

const (
	startTimeout = 2 * time.Minute // limit for a pod to start
	quietTime    = 3 * time.Second // delay before a terminal shows the reason for waiting
	askTimeout   = 3 * time.Second // limit for a query about the reason of a failure
	endTimeout   = 10 * time.Second
)

// pods manages the pods in which command lines run. All are in one namespace.
type pods struct {
	cluster   *cluster
	options   *options
	namespace string
	owner     string
	process   string
	say       func(error) // tells a user at a terminal why a pod waits
	warn      func(error) // may be called concurrently

	standing map[string]*corev1.Pod   // pods of the DaemonSet by node
	kept     map[string][]*corev1.Pod // pods kept by earlier command lines, by node

	stop       context.CancelFunc // stops the watch
	background sync.WaitGroup     // the watch, removals and relay sessions
	watching   sync.Once

	mu      sync.Mutex           // guards the fields below
	made    map[string]types.UID // pods to remove: uids by name; "" until the create request is answered
	seen    map[string]*corev1.Pod
	failure error         // error of the watch
	changed chan struct{} // closed at the next change of seen or failure
}

// newPods lists crishim's pods and starts to remove leftovers.
func newPods(ctx context.Context, c *cluster, o *options, warn func(error)) (*pods, error) {
	p := &pods{
		cluster: c, options: o, standing: map[string]*corev1.Pod{}, kept: map[string][]*corev1.Pod{}, made: map[string]types.UID{},
		seen: map[string]*corev1.Pod{}, changed: make(chan struct{}), say: func(error) {}, warn: warn, stop: func() {},
	}
	p.owner, p.process = identity()
	p.namespace = c.namespace
	if !o.namespaceGiven || o.pod != "" {
		_, err := c.api.Namespaces().Get(ctx, kube.ClusterNamespace, metav1.GetOptions{})
		switch {
		case !apierrors.IsNotFound(err): // a user who may not get the namespace may still use it
			p.namespace = kube.ClusterNamespace
		case o.namespaceGiven: // with pod/NAME, --namespace is that pod's, so crishim's pods go to the default namespace
			p.namespace = metav1.NamespaceDefault
		}
	}
	list, err := c.api.Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, requestError(err, "list", "pods in namespace "+p.namespace)
	}
	for i := range list.Items {
		p.classify(&list.Items[i])
	}
	return p, nil
}

// classify records a pod that command lines can use, and removes a leftover.
func (p *pods) classify(pod *corev1.Pod) {
	node, ours, kept := pod.Spec.NodeName, pod.Labels[labelOwner] == p.owner, pod.Labels[labelKept] != ""
	switch {
	case pod.DeletionTimestamp != nil:
	case pod.Labels[kube.LabelManagedBy] != kube.ManagedByKubectl:
		if p.namespace == kube.ClusterNamespace && isRunning(pod) && hasRuntime(pod) {
			p.standing[node] = pod
		}
	case ours && (over(pod) != "" || !kept && proctree.HasEnded(pod.Annotations[annotationProcess])):
		p.remove(pod.Name, pod.UID)
	case hasExpired(pod):
		p.background.Go(func() { _ = p.delete(pod.Name, pod.UID) }) // may be forbidden for another user's pod
	case ours && kept && isRunning(pod) && hasRuntime(pod):
		p.kept[node] = append(p.kept[node], pod)
	}
}

const selector = kube.LabelApp + "=" + kube.LabelAppValue

func isRunning(pod *corev1.Pod) bool {
	return over(pod) == "" && slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == kube.ClusterContainer && c.State.Running != nil
	})
}

// hasExpired reports whether a pod has ended and its deadline has passed, so that no user's command still waits for it.
func hasExpired(pod *corev1.Pod) bool {
	life := pod.Spec.ActiveDeadlineSeconds
	return over(pod) != "" && life != nil && time.Since(pod.CreationTimestamp.Time) > time.Duration(*life)*time.Second
}

// hasRuntime reports whether a pod has the node's runtime socket and namespaces. Labels do not prove that a pod is
// crishim's: any user who may create pods can set them, and such a pod could read input and fake output. Only users who
// are root on nodes anyway can create pods with the runtime socket.
func hasRuntime(pod *corev1.Pod) bool {
	return pod.Spec.HostPID && pod.Spec.HostNetwork && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeRuntime && v.HostPath != nil })
}

// allows reports whether the rights of a pod include the rights that a command line needs.
func allows(rights, needed string) bool {
	order := []string{kube.RightsRead, kube.RightsChange, kube.RightsHost}
	return slices.Contains(order, needed) && slices.Index(order, rights) >= slices.Index(order, needed)
}

// on returns a running pod on a node for a command line, and a function that releases the pod.
func (p *pods) on(ctx context.Context, node string, line cli.NodeLine) (*corev1.Pod, func(), error) {
	p.watching.Do(func() {
		var ctx context.Context
		ctx, p.stop = context.WithCancel(context.Background())
		p.background.Go(func() { p.watch(ctx) })
	})
	pod := p.standing[node]
	if pod != nil && p.options.image == "" && line.Socket == "" && allows(pod.Labels[kube.LabelRights], line.Rights) {
		return pod, func() {}, nil
	}
	image, err := p.options.imageOrDefault()
	if err != nil {
		return nil, nil, err
	}
	pod = nil
	for _, kept := range p.kept[node] {
		switch {
		case pod == nil && allows(kept.Labels[kube.LabelRights], line.Rights) && kept.Spec.Containers[0].Image == image &&
			(line.Socket == "" || kept.Annotations[annotationSocket] == socketOf(&corev1.Node{}, line.Socket)):
			pod = kept
		case !p.options.keep:
			p.remove(kept.Name, kept.UID)
		}
	}
	if pod != nil {
		return pod, p.releaser(pod), nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	on, err := p.cluster.node(ctx, node)
	if err != nil {
		return nil, nil, err
	}
	pod = podFor(on, line, image, p.options.keep)
	pod.Namespace = p.namespace
	pod.Name = podName(node)
	pod.Labels[labelOwner], pod.Annotations[annotationProcess] = p.owner, p.process
	if p.options.keep {
		pod.Labels[labelKept] = "true"
	}
	if pod, err = p.create(ctx, pod); err != nil {
		return nil, nil, err
	}
	release := p.releaser(pod)
	running, err := p.start(ctx, pod)
	if err != nil {
		p.remove(pod.Name, pod.UID)
		return nil, nil, err
	}
	return running, release, nil
}

func (p *pods) releaser(pod *corev1.Pod) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.options.keep {
		delete(p.made, pod.Name)
		return func() {}
	}
	p.made[pod.Name] = pod.UID
	return func() { p.remove(pod.Name, pod.UID) }
}

// podName returns a unique name of at most 63 characters. It contains the node's name, shortened if necessary and with
// dashes in place of dots.
func podName(node string) string {
	const prefix, unique = "crishim-", 6
	short := strings.Trim(strings.ReplaceAll(node, ".", "-")[:min(len(node), validation.DNS1123LabelMaxLength-len(prefix)-unique-1)], "-")
	return prefix + short + "-" + rand.String(unique)
}

// create ignores the end of ctx during the request, because an interrupted request may have created the pod.
func (p *pods) create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.made[pod.Name] = ""
	p.mu.Unlock()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	created, err := p.cluster.api.Pods(p.namespace).Create(limited, pod, metav1.CreateOptions{})
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return created, nil
	case errors.As(err, &answer):
		// Not created, or the API server timed out. A later command line finds a pod that was created anyway.
		p.mu.Lock()
		delete(p.made, pod.Name)
		p.mu.Unlock()
	default:
		p.remove(pod.Name, "")
	}
	return nil, requestError(err, "create", "pods in namespace "+p.namespace)
}

func (p *pods) start(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		seen, changed, err := p.look(pod.Name)
		switch {
		case err != nil:
			return nil, err
		case seen == nil || seen.UID != pod.UID:
			seen = pod
		}
		if isRunning(seen) {
			return seen, nil
		}
		if why := stuck(seen); why != "" {
			return nil, fmt.Errorf("its pod does not start: %s", why)
		}
		select {
		case <-changed:
		case <-quiet.C:
			p.say(fmt.Errorf("the pod on node %s waits: %s", pod.Spec.NodeName, pendingReason(seen, p.events(ctx, seen))))
		case <-ctx.Done():
			return nil, fmt.Errorf("its pod does not start: %s", pendingReason(seen, p.events(context.WithoutCancel(ctx), seen)))
		}
	}
}

// events returns the pod's events, or nil without permission.
func (p *pods) events(ctx context.Context, pod *corev1.Pod) []corev1.Event {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	list, err := p.cluster.api.Events(p.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return list.Items
}

func (p *pods) watch(ctx context.Context) {
	note := func(do func()) {
		p.mu.Lock()
		defer p.mu.Unlock()
		do()
		close(p.changed)
		p.changed = make(chan struct{})
	}
	for ctx.Err() == nil {
		watcher, err := p.cluster.api.Pods(p.namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			if apierrors.IsForbidden(err) {
				note(func() { p.failure = requestError(err, "watch", "pods in namespace "+p.namespace) })
				return
			}
		} else {
			for event := range watcher.ResultChan() {
				pod, ok := event.Object.(*corev1.Pod)
				if !ok {
					break
				}
				if event.Type == watch.Deleted && pod.DeletionTimestamp == nil {
					pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				}
				note(func() { p.seen[pod.Name] = pod })
			}
			watcher.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second / 2): // the server may end watches at once
		}
	}
}

// look returns the last known state of a pod, and a channel that is closed at the next change.
func (p *pods) look(name string) (*corev1.Pod, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[name], p.changed, p.failure
}

func (p *pods) remove(name string, uid types.UID) {
	p.mu.Lock()
	delete(p.made, name)
	p.mu.Unlock()
	p.background.Go(func() {
		if err := p.delete(name, uid); err != nil {
			p.warn(fmt.Errorf("pod %s/%s stays, until it ends by itself: %w", p.namespace, name, requestError(err, "delete", "pods")))
		}
	})
}

func (p *pods) delete(name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	o := metav1.DeleteOptions{}
	if uid != "" {
		o.Preconditions = metav1.NewUIDPreconditions(string(uid))
	}
	err := p.cluster.api.Pods(p.namespace).Delete(ctx, name, o)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// end removes the remaining pods and waits for all removals.
func (p *pods) end() {
	p.mu.Lock()
	left := p.made
	p.made = map[string]types.UID{}
	p.mu.Unlock()
	for name, uid := range left {
		p.remove(name, uid)
	}
	p.stop()
	p.background.Wait()
}

// identity returns ids of the user and of this process. The user's id is valid in this PID namespace until the next
// boot. A pod whose process has ended is a leftover.
func identity() (owner, process string) {
	scope := cmp.Or(proctree.Scope(), rand.String(20)) // without a scope, this user's earlier pods are not recognized
	if self, err := proctree.Find(os.Getpid()); err == nil {
		process = self.Mark()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", scope, os.Getuid()))
	return hex.EncodeToString(sum[:8]), process
}

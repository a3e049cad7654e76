package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

type State int

const (
	Ready    State = iota
	NotReady       // the kubelet is gone: pods keep running, and calls do not get through
	Hanging        // reports ready, but the kubelet does nothing and answers no calls
	Stuck          // accepts pods, which stay pending with an event, because it cannot create sandboxes
)

type node struct {
	Node
	server  *Server
	runtime *nodeRuntime
	address string

	mu      sync.Mutex // guards the fields below
	state   State
	changed chan struct{} // closed at the next change of the state
	cut     chan struct{} // closed when the sessions are cut
}

// nodeRuntime is a local container runtime that nodes may share.
type nodeRuntime struct {
	conn    *client.Conn
	manager *kuberuntime.Manager
}

func (s *Server) addNode(ctx context.Context, o Node) error {
	r := s.runtimes[o.Endpoint]
	if r == nil {
		var err error
		if r, err = s.openRuntime(ctx, o.Endpoint); err != nil {
			return fmt.Errorf("node %s: %w", o.Name, err)
		}
		s.runtimes[o.Endpoint] = r
	}
	n := &node{Node: o, server: s, runtime: r, changed: make(chan struct{}), cut: make(chan struct{})}
	s.nodes[o.Name] = n
	host, err := criconfig.ReadHost()
	if err != nil {
		return err
	}
	n.address = host.IPs[0]
	labels := map[string]string{v1.LabelHostname: o.Name, v1.LabelOSStable: "linux"}
	maps.Copy(labels, o.Labels)
	annotations := map[string]string{}
	if strings.HasPrefix(o.Endpoint, "unix://") {
		annotations["kubeadm.alpha.kubernetes.io/cri-socket"] = o.Endpoint
	}
	maps.Copy(annotations, o.Annotations)
	kubelet := "v1.34.0"
	if strings.HasPrefix(o.Endpoint, "docker:") {
		kubelet = "v1.23.17" // last version with dockershim
	}
	_, err = s.store.create(kindOf("nodes"), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: labels, Annotations: annotations},
		Status: v1.NodeStatus{
			Conditions: readiness(Ready),
			Addresses:  []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: n.address}, {Type: v1.NodeHostName, Address: o.Name}},
			NodeInfo:   v1.NodeSystemInfo{KubeletVersion: kubelet, OperatingSystem: "linux", ContainerRuntimeVersion: r.conn.Version.GetRuntimeName() + "://" + r.conn.Version.GetRuntimeVersion()},
		},
	})
	return err
}

func (s *Server) openRuntime(ctx context.Context, endpoint string) (*nodeRuntime, error) {
	conn, err := client.Connect(ctx, client.Options{
		RuntimeEndpoint: endpoint, LookupEnv: os.LookupEnv, ConnectTimeout: time.Minute,
		StartShim: func(ctx context.Context, e client.Engine) (client.Shim, error) {
			return shim.StartEmbedded(ctx, shim.Options{Engine: docker.Options{Endpoint: &e}})
		},
	})
	if err != nil {
		return nil, err
	}
	host, err := criconfig.ReadHost()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	o := kuberuntime.ConnOptions(conn)
	o.Host, o.Dirs, o.Events = host, pod.Dirs{Root: filepath.Dir(s.logs), Logs: s.logs}, s.podEvent
	m, err := kuberuntime.New(ctx, o)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &nodeRuntime{conn, m}, nil
}

func (s *Server) podEvent(e kuberuntime.Event) {
	s.mu.Lock()
	w := s.workers[types.UID(e.UID)]
	s.mu.Unlock()
	if w == nil {
		return
	}
	kind := v1.EventTypeNormal
	if e.Warning {
		kind = v1.EventTypeWarning
	}
	s.event(w.pod, kind, e.Reason, e.Message)
}

func readiness(state State) []v1.NodeCondition {
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
	if state == NotReady {
		c.Status, c.Reason, c.Message = v1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	return []v1.NodeCondition{c}
}

func (n *node) is() State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

func (n *node) set(state State, cut bool) {
	n.mu.Lock()
	n.state = state
	close(n.changed)
	n.changed = make(chan struct{})
	if cut {
		close(n.cut)
		n.cut = make(chan struct{})
	}
	n.mu.Unlock()
	o, err := n.server.store.get(kindOf("nodes"), "", n.Name)
	if err == nil {
		n.server.store.update(kindOf("nodes"), o, func(o object) bool {
			o.(*v1.Node).Status.Conditions = readiness(state)
			return true
		})
	}
	n.server.mu.Lock()
	defer n.server.mu.Unlock()
	for _, w := range n.server.workers {
		if w.node == n {
			w.notify()
		}
	}
}

// reach waits for the kubelet to accept a call, like the API server. The returned context ends when the node vanishes
// or end is called.
func (n *node) reach(ctx context.Context) (_ context.Context, end func(), err error) {
	for {
		n.mu.Lock()
		state, changed, cut := n.state, n.changed, n.cut
		n.mu.Unlock()
		switch state {
		case NotReady:
			return nil, nil, dialError(n, "connect: no route to host")
		case Hanging:
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
		}
		ctx, cancel := context.WithCancelCause(ctx)
		done := make(chan struct{})
		n.server.work.Go(func() {
			defer close(done)
			select {
			case <-cut:
				cancel(dialError(n, "read: connection timed out"))
			case <-ctx.Done():
			}
		})
		return ctx, func() {
			cancel(nil)
			<-done
		}, nil
	}
}

func dialError(n *node, why string) error {
	return apierrors.NewInternalError(fmt.Errorf("error dialing backend: dial tcp %s:10250: %s", n.address, why))
}

// Package kubeapi is a small Kubernetes API server for tests, whose nodes are real container
// runtimes on this machine: a pod that is created is run by package kuberuntime on the CRI
// endpoint of its node, and an exec is a CRI exec. kubectl and client-go work with it:
//
//	s := kubeapi.Start(t, kubeapi.Options{Nodes: kubeapi.Nodes(50, "unix:///run/containerd/containerd.sock")})
//	exec.Command("kubectl", "--kubeconfig", s.Kubeconfig, "get", "nodes")
//	s.SetState("node-07", kubeapi.NotReady)
//
// Many nodes may share one runtime. SetState, Vanish and Forbid are the faults that a test may
// ask for; others are real ones, such as an image that the runtime cannot pull. hack/kubeapi runs
// the server on its own.
//
// In reading order: server.go starts and ends it; kinds.go lists the kinds of objects, for discovery and
// kubectl get; store.go has lists and watches; nodes.go has the nodes; pods.go runs pods, as a
// kubelet; daemonsets.go makes the pods of DaemonSets; sessions.go has exec.
//
// Its limits: objects can be read, listed, watched, created and deleted, with label selectors and the
// field selectors that kubectl uses. It speaks JSON only; no paging, quota, default values but those of
// pods, or service account tokens. A wrong token is refused, but roles are only kept: Forbid takes
// rights away. The scheduler takes the first ready node that the nodeSelector allows, once; a DaemonSet
// gets its pods when it is created; the objects of a namespace outlive it.
// Pods have what package kuberuntime can do: no ConfigMaps, Secrets, Services or persistent
// volumes. exec has no protocols before v4.
package kubeapi

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Options are the cluster to begin with.
type Options struct {
	Nodes []Node
	// Dir has the kubeconfig and the directories of pods; Start takes one of the test's where it is empty.
	Dir string
	// Audit receives a line for each request: its verb, resource, object and outcome. May be nil.
	Audit func(line string)
}

// Node is one node of the cluster.
type Node struct {
	Name string
	// Endpoint is its runtime's, as crishim's -r takes it: unix:///run/containerd/containerd.sock, or
	// docker://HOST for the embedded shim.
	Endpoint string
	Labels   map[string]string
	// Annotations are added to that of kubeadm with the runtime's socket.
	Annotations map[string]string
	// HostPaths says where paths of the node are on this machine. A hostPath volume of one of these paths, or of
	// something below it, is mounted from there.
	HostPaths map[string]string
}

// Nodes returns n nodes on one runtime: node-01, node-02, ...
func Nodes(n int, endpoint string) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%02d", i+1), Endpoint: endpoint}
	}
	return nodes
}

// Server is a running API server.
type Server struct {
	// Kubeconfig is the path of a file with its address, certificate and user.
	Kubeconfig string
	URL        string

	o        Options
	logs     string // of pods
	http     *httptest.Server
	ctx      context.Context // of everything that goes on
	stop     context.CancelFunc
	store    *store
	nodes    map[string]*node
	runtimes map[string]*nodeRuntime // by endpoint
	work     sync.WaitGroup          // requests, pods

	mu        sync.Mutex // guards what follows
	closed    bool
	workers   map[types.UID]*worker // pods that the runtimes may have
	forbidden map[string]bool       // "verb resource"
	requests  []string
}

// user and token are in the kubeconfig.
const user, token = "tester", "crishim-test"

// Start runs a server until the test ends.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// New connects to the nodes' runtimes and serves until Close.
func New(ctx context.Context, o Options) (*Server, error) {
	s := &Server{
		o: o, logs: filepath.Join(o.Dir, "kubelet", "logs"), store: newStore(), nodes: map[string]*node{}, runtimes: map[string]*nodeRuntime{},
		workers: map[types.UID]*worker{}, forbidden: map[string]bool{},
	}
	// A test's context ends before its Cleanup. Clients see for themselves what libraries log of their connections.
	s.ctx, s.stop = context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klog.Logger{}))
	for _, namespace := range []string{"default", "kube-system"} {
		if _, err := s.store.create(kindOf("namespaces"), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Status: v1.NamespaceStatus{Phase: v1.NamespaceActive}}); err != nil {
			return nil, err
		}
	}
	for _, n := range o.Nodes {
		if err := s.addNode(ctx, n); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	for _, r := range s.runtimes {
		s.work.Go(func() { s.relist(r) })
	}
	s.http = httptest.NewUnstartedServer(s.handler())
	s.http.Config.BaseContext = func(net.Listener) context.Context { return s.ctx }
	s.http.Config.ErrorLog = discard
	s.http.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.http.StartTLS()
	s.URL, s.Kubeconfig = s.http.URL, filepath.Join(o.Dir, "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	config := fmt.Sprintf(kubeconfig, s.URL, base64.StdEncoding.EncodeToString(ca), user, token)
	if err := os.WriteFile(s.Kubeconfig, []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

const kubeconfig = `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: %[3]s}}]
clusters: [{name: test, cluster: {server: %[1]q, certificate-authority-data: %[2]s}}]
users: [{name: %[3]s, user: {token: %[4]s}}]
`

// discard is for servers whose clients see what is wrong.
var discard = log.New(io.Discard, "", 0)

// Close ends the sessions, and removes the pods from the runtimes and the kubeconfig. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	if s.http != nil {
		s.http.CloseClientConnections()
		s.http.Close()
	}
	s.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var group errgroup.Group
	for _, w := range maps.Clone(s.workers) {
		group.Go(func() error {
			for {
				err := w.remove(ctx, 0)
				if err == nil || ctx.Err() != nil {
					return err
				}
				select { // a runtime with much to do may need another try
				case <-time.After(retryAfter):
				case <-ctx.Done():
				}
			}
		})
	}
	errs := []error{group.Wait()}
	for _, r := range s.runtimes {
		r.manager.Close()
		errs = append(errs, r.conn.Close())
	}
	if s.Kubeconfig != "" {
		errs = append(errs, os.Remove(s.Kubeconfig), os.RemoveAll(filepath.Dir(s.logs)))
	}
	return errors.Join(errs...)
}

// closeTimeout bounds how long Close works on pods.
const closeTimeout = 2 * time.Minute

// SetState changes how a node behaves from now on. Sessions that run go on.
func (s *Server) SetState(name string, state State) { s.nodes[name].set(state, false) }

// Vanish makes a node NotReady, and cuts its sessions.
func (s *Server) Vanish(name string) { s.nodes[name].set(NotReady, true) }

// Forbid makes the server answer 403 to a verb of a resource, such as "create" and "pods/exec", until allow is called.
func (s *Server) Forbid(verb, resource string) (allow func()) {
	set := func(forbidden bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forbidden[verb+" "+resource] = forbidden
	}
	set(true)
	return func() { set(false) }
}

// Requests returns the requests so far: "create pods/exec default/web".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Pods returns the pods of the API server, also those that are being deleted.
func (s *Server) Pods() []*v1.Pod {
	objects, _ := s.store.list(&selection{kind: kindOf("pods"), labels: labels.Everything(), fields: fields.Everything()})
	pods := make([]*v1.Pod, len(objects))
	for i, o := range objects {
		pods[i] = o.(*v1.Pod)
	}
	return pods
}

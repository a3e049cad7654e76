// Package kubeapi is a small Kubernetes API server for tests. Its nodes are real local container runtimes: package
// kuberuntime runs the pods on the CRI endpoint of their node, and an exec is a CRI exec. It works with kubectl and
// client-go:
//
//	s := kubeapi.Start(t, kubeapi.Options{Nodes: kubeapi.Nodes(50, "unix:///run/containerd/containerd.sock")})
//	exec.Command("kubectl", "--kubeconfig", s.Kubeconfig, "get", "nodes")
//	s.SetState("node-07", kubeapi.NotReady)
//
// Nodes may share a runtime. SetState, Vanish and Forbid inject faults; other faults are real, such as an image that
// the runtime cannot pull. hack/kubeapi runs the server on its own.
//
// In reading order: server.go starts and stops it; kinds.go lists the resource types, for discovery and kubectl get;
// store.go has lists and watches; nodes.go has the nodes; pods.go runs pods like a kubelet; daemonsets.go creates the
// pods of DaemonSets; sessions.go has exec.
//
// Limits: objects can be read, listed, watched, created and deleted, with label selectors and kubectl's field
// selectors. It supports JSON only, and no paging, quota, defaults except for pods, or service account tokens. An
// invalid token is rejected, but roles are only stored: use Forbid to revoke rights. The scheduler picks the first
// ready node that matches the nodeSelector, once. A DaemonSet gets its pods when it is created. Deleting a namespace
// keeps its objects. Pods support what package kuberuntime does: no ConfigMaps, Secrets, Services or persistent
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

type Options struct {
	Nodes []Node
	// Dir is for the kubeconfig and the directories of pods. If empty, Start uses a directory of the test.
	Dir string
	// Audit receives a line for each request: verb, resource, object and result. May be nil.
	Audit func(line string)
}

type Node struct {
	Name string
	// Endpoint is the runtime's endpoint as for crishim's -r: unix:///run/containerd/containerd.sock, or docker://HOST
	// for the embedded shim.
	Endpoint string
	Labels   map[string]string
	// Annotations are added to kubeadm's annotation with the runtime's socket.
	Annotations map[string]string
	// HostPaths maps paths of the node to local paths, for hostPath volumes.
	HostPaths map[string]string
}

// Nodes returns n nodes that share a runtime: node-01, node-02, ...
func Nodes(n int, endpoint string) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{Name: fmt.Sprintf("node-%02d", i+1), Endpoint: endpoint}
	}
	return nodes
}

type Server struct {
	// Kubeconfig is the path of a file with the server's address, certificate and user.
	Kubeconfig string
	URL        string

	o        Options
	logs     string // directory of pod logs
	http     *httptest.Server
	ctx      context.Context // for all background work
	stop     context.CancelFunc
	store    *store
	nodes    map[string]*node
	runtimes map[string]*nodeRuntime // by endpoint
	work     sync.WaitGroup          // requests and pods

	mu        sync.Mutex // guards the fields below
	closed    bool
	workers   map[types.UID]*worker // pods that the runtimes may have
	forbidden map[string]bool       // "verb resource"
	requests  []string
}

const user, token = "tester", "crishim-test"

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
	// A test's context ends before its Cleanup functions. Library logs about connections are discarded, because clients
	// see the errors.
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

// discard is for servers whose clients see the errors.
var discard = log.New(io.Discard, "", 0)

// Close ends the sessions and removes the pods from the runtimes, and the kubeconfig. It may be called twice.
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
				select { // a busy runtime may need another attempt
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

// closeTimeout limits how long Close removes pods.
const closeTimeout = 2 * time.Minute

// SetState changes the behaviour of a node. Running sessions continue.
func (s *Server) SetState(name string, state State) { s.nodes[name].set(state, false) }

func (s *Server) Vanish(name string) { s.nodes[name].set(NotReady, true) }

// Forbid makes the server respond with 403 to a verb on a resource, such as "create" and "pods/exec", until allow is
// called.
func (s *Server) Forbid(verb, resource string) (allow func()) {
	set := func(forbidden bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forbidden[verb+" "+resource] = forbidden
	}
	set(true)
	return func() { set(false) }
}

// Requests returns the requests so far, in the form "create pods/exec default/web".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Pods returns all pods of the API server, including those being deleted.
func (s *Server) Pods() []*v1.Pod {
	objects, _ := s.store.list(&selection{kind: kindOf("pods"), labels: labels.Everything(), fields: fields.Everything()})
	pods := make([]*v1.Pod, len(objects))
	for i, o := range objects {
		pods[i] = o.(*v1.Pod)
	}
	return pods
}

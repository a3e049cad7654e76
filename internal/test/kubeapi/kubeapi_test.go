package kubeapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/kubeapi"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// cluster is a server with three nodes, two of which share a runtime.
type cluster struct {
	*kubeapi.Server
	t    *testing.T
	stub *stubcri.Server
	http *http.Client
}

func start(t *testing.T) *cluster {
	t.Helper()
	stub, other := stubcri.Start(t, stubcri.Options{}), stubcri.Start(t, stubcri.Options{})
	stub.AddImage("busybox:test")
	nodes := kubeapi.Nodes(2, stub.Endpoint)
	nodes[1].Labels = map[string]string{"disk": "ssd"}
	third := kubeapi.Node{Name: "node-03", Endpoint: other.Endpoint}
	c := &cluster{Server: kubeapi.Start(t, kubeapi.Options{Nodes: append(nodes, third)}), t: t, stub: stub}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	c.http = &http.Client{Transport: transport}
	return c
}

// call makes a request and decodes the response. It returns the Status of a failed request.
func (c *cluster) call(method, path, body string, into any) *metav1.Status {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.URL+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer crishim-test")
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		failure := &metav1.Status{}
		if err := json.Unmarshal(data, failure); err != nil {
			c.t.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
		return failure
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			c.t.Fatalf("%s %s: %v: %s", method, path, err, data)
		}
	}
	return nil
}

const pods = "/api/v1/namespaces/default/pods"

func podOn(name, node string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q, "labels": {"app": "test"}}, "spec": {"nodeName": %q,
"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "busybox:test"}]}}`, name, node)
}

func (c *cluster) run(name, node string) {
	c.t.Helper()
	if failure := c.call("POST", pods, podOn(name, node), nil); failure != nil {
		c.t.Fatal(failure)
	}
	test.Until(c.t, "pod "+name+" to be ready", func() bool {
		return slices.ContainsFunc(c.Pods(), func(p *v1.Pod) bool { return p.Name == name && isReady(p) })
	})
}

func isReady(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

// session runs a command in a pod, over WebSocket or over SPDY like older clients.
func (c *cluster) session(ctx context.Context, transport, name, in string, out, errw io.Writer, command ...string) error {
	c.t.Helper()
	u, err := url.Parse(c.URL + pods + "/" + name + "/exec?" + url.Values{"command": command, "stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"}}.Encode())
	if err != nil {
		c.t.Fatal(err)
	}
	config := &rest.Config{Host: c.URL, BearerToken: "crishim-test", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	var executor remotecommand.Executor
	if transport == "WebSocket" {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	} else {
		executor, err = remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(in), Stdout: out, Stderr: errw})
}

var transports = []string{"WebSocket", "SPDY"}

func TestExec(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.run("web", "node-02")
	for _, transport := range transports {
		var out, errw bytes.Buffer
		err := c.session(t.Context(), transport, "web", "typed\n", &out, &errw, "sh", "-c", "cat; echo wrong >&2; exit 3")
		var exit utilexec.ExitError
		if !errors.As(err, &exit) || exit.ExitStatus() != 3 || out.String() != "typed\n" || errw.String() != "wrong\n" {
			t.Errorf("%s: %v, stdout %q, stderr %q", transport, err, out.String(), errw.String())
		}
		if err := c.session(t.Context(), transport, "web", "", io.Discard, io.Discard, "true"); err != nil {
			t.Errorf("%s: %v", transport, err)
		}
	}
	if got := c.Requests(); !slices.Contains(got, "create pods/exec default/web") {
		t.Error(got)
	}
	if failure := c.call("DELETE", pods+"/web", "", nil); failure != nil {
		t.Fatal(failure)
	}
	test.Until(t, "the pod to be gone", func() bool { return len(c.Pods()) == 0 })
	if pods, containers := c.stub.Left(); pods+containers > 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
}

// TestVanishingNode checks that sessions on the node end with an error.
func TestVanishingNode(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i, transport := range transports {
		node := fmt.Sprintf("node-%02d", i+1)
		c.run(node, node)
		begun := &test.Buffer{}
		ended := make(chan error, 1)
		go func() {
			ended <- c.session(t.Context(), transport, node, "", begun, io.Discard, "sh", "-c", "echo begun; exec sleep 1000")
		}()
		test.Until(t, "the session", func() bool { return begun.String() != "" })
		c.Vanish(node)
		// SPDY then has no status, which client-go treats as success.
		if err := <-ended; transport == "WebSocket" && (err == nil || !strings.Contains(err.Error(), "read: connection timed out")) {
			t.Errorf("%s: %v", transport, err)
		}
		if err := c.session(t.Context(), transport, node, "", io.Discard, io.Discard, "true"); err == nil || !strings.Contains(err.Error(), "no route to host") {
			t.Errorf("%s to a node that is gone: %v", transport, err)
		}
		var got v1.Node
		if c.call("GET", "/api/v1/nodes/"+node, "", &got); got.Status.Conditions[0].Status != v1.ConditionUnknown {
			t.Errorf("%+v", got.Status.Conditions)
		}
	}
	// Without its kubelet a pod is only removed by a forced deletion.
	c.call("DELETE", pods+"/node-01", "", nil)
	c.call("DELETE", pods+"/node-02", `{"gracePeriodSeconds": 0}`, nil)
	if got := c.Pods(); len(got) != 1 || got[0].Name != "node-01" || got[0].DeletionTimestamp == nil {
		t.Errorf("%+v", got)
	}
	c.SetState("node-01", kubeapi.Ready)
	test.Until(t, "the pod to be gone", func() bool { return len(c.Pods()) == 0 })
}

func TestStatesOfNodes(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.run("web", "node-01")
	exec := func() error { return c.session(t.Context(), "WebSocket", "web", "", io.Discard, io.Discard, "true") }
	c.SetState("node-01", kubeapi.Hanging)
	// A WebSocket handshake ends at the deadline of its context, but not on cancellation.
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.session(ctx, "WebSocket", "web", "", io.Discard, io.Discard, "true"); err == nil {
		t.Error("hanging: the command ended well")
	}
	c.call("POST", pods, podOn("waits", "node-01"), nil)
	c.SetState("node-01", kubeapi.Stuck)
	var events v1.EventList
	test.Until(t, "an event", func() bool {
		c.call("GET", "/api/v1/namespaces/default/events?fieldSelector="+url.QueryEscape("involvedObject.name=waits"), "", &events)
		return len(events.Items) > 0
	})
	if e := events.Items[0]; e.Type != v1.EventTypeWarning || e.Reason != "FailedCreatePodSandBox" {
		t.Errorf("%+v", e)
	}
	var p v1.Pod
	if c.call("GET", pods+"/waits", "", &p); p.Status.Phase != v1.PodPending || p.Status.Conditions[0].Type != v1.PodScheduled {
		t.Errorf("%+v", p.Status)
	}
	if err := exec(); err != nil {
		t.Errorf("of a pod that runs on: %v", err)
	}
	c.SetState("node-01", kubeapi.Ready)
	test.Until(t, "the pod to be ready", func() bool {
		c.call("GET", pods+"/waits", "", &p)
		return isReady(&p)
	})
	if err := exec(); err != nil {
		t.Errorf("ready again: %v", err)
	}
}

// TestImageThatCannotBePulled checks an error of the runtime.
func TestImageThatCannotBePulled(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.stub.Fail("PullImage", errors.New("no such repository"))
	c.call("POST", pods, strings.Replace(podOn("web", "node-01"), "busybox:test", "none:1", 1), nil)
	var p v1.Pod
	test.Until(t, "the reason", func() bool {
		c.call("GET", pods+"/web", "", &p)
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting.Reason != "ContainerCreating"
	})
	if w := p.Status.ContainerStatuses[0].State.Waiting; !strings.HasSuffix(w.Reason, "ImagePull") && !strings.HasSuffix(w.Reason, "PullBackOff") {
		t.Errorf("%+v", w)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.Forbid("create", "pods/exec")
	c.run("web", "node-01")
	for _, one := range []struct{ method, path, body, message string }{
		{"POST", pods + "/web/exec", "", `pods "web" is forbidden: User "tester" cannot create resource "pods/exec" in API group "" in the namespace "default"`},
		{"POST", "/api/v1/namespaces/none/pods", podOn("web", ""), `namespaces "none" not found`},
		{"POST", pods, podOn("web", ""), `pods "web" already exists`},
		{"POST", pods, strings.Replace(podOn("bad", ""), "busybox:test", "", 1), `Pod "bad" is invalid: spec.containers[0].image: Required value`},
		{"GET", pods + "/none", "", `pods "none" not found`},
		{"GET", "/api/v1/nodes/none", "", `nodes "none" not found`},
		{"GET", pods + "?labelSelector=%3D%3D", "", "found '==', expected: !, identifier, or 'end of string'"},
		{"DELETE", pods + "/web", `{"preconditions": {"uid": "other"}}`, `Operation cannot be fulfilled on pods "web": the UID in the precondition (other) does not match the UID in record (` + string(c.Pods()[0].UID) + ")"},
	} {
		if failure := c.call(one.method, one.path, one.body, nil); failure == nil || failure.Message != one.message {
			t.Errorf("%s %s: got %v, want %s", one.method, one.path, failure, one.message)
		}
	}
	// The pod's nodeSelector matches no node, so it stays pending without a kubelet.
	c.call("POST", pods, `{"metadata": {"name": "homeless"}, "spec": {"nodeSelector": {"disk": "tape"}, "containers": [{"name": "main", "image": "busybox:test"}]}}`, nil)
	var p v1.Pod
	if c.call("GET", pods+"/homeless", "", &p); p.Status.Conditions[0].Reason != v1.PodReasonUnschedulable {
		t.Errorf("%+v", p.Status)
	}
	if failure := c.call("DELETE", pods+"/homeless", "", nil); failure != nil || len(c.Pods()) != 1 {
		t.Errorf("%v, %d pods", failure, len(c.Pods()))
	}
}

func TestDaemonSet(t *testing.T) {
	t.Parallel()
	c := start(t)
	const sets = "/apis/apps/v1/namespaces/default/daemonsets"
	pod := strings.Replace(podOn("x", ""), `"name": "x", `, "", 1)
	set := fmt.Sprintf(`{"metadata": {"name": "set"}, "spec": {"selector": {"matchLabels": {"app": "test"}}, "template": %s}}`, strings.Replace(pod, `"nodeName": "",`, "", 1))
	var got struct {
		Status struct{ DesiredNumberScheduled, NumberReady int }
	}
	if failure := c.call("POST", sets, set, nil); failure != nil {
		t.Fatal(failure)
	}
	test.Until(t, "the DaemonSet", func() bool {
		c.call("GET", sets+"/set", "", &got)
		return got.Status.NumberReady >= 2 && got.Status.DesiredNumberScheduled == 3
	})
	var list v1.PodList
	c.call("GET", "/api/v1/pods?labelSelector=app%3Dtest&fieldSelector=spec.nodeName%3Dnode-03", "", &list)
	if len(list.Items) != 1 {
		t.Errorf("%d pods on the third node", len(list.Items))
	}
	c.call("DELETE", sets+"/set", "", nil)
	test.Until(t, "the pods to be gone", func() bool { return len(c.Pods()) == 0 })
}

// TestWatch checks that a watch from the version of a list misses no change.
func TestWatch(t *testing.T) {
	t.Parallel()
	c := start(t)
	var list v1.PodList
	c.call("GET", pods, "", &list)
	c.run("web", "node-01")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+pods+"?watch=true&labelSelector=app%3Dtest&resourceVersion="+list.ResourceVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer crishim-test")
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	var types []string
	for len(types) == 0 || types[len(types)-1] != "DELETED" {
		var event struct {
			Type   string
			Object v1.Pod
		}
		if err := events.Decode(&event); err != nil {
			t.Fatal(err)
		}
		if types = append(types, event.Type); event.Type == "MODIFIED" && isReady(&event.Object) && event.Object.DeletionTimestamp == nil {
			c.call("DELETE", pods+"/web", "", nil)
		}
	}
	if types[0] != "ADDED" || !slices.Contains(types, "MODIFIED") {
		t.Error(types)
	}
}

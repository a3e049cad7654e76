package kuberuntime

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestUserNamespaces: each pod with hostUsers: false has its own ids as long as its directory exists.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}))
	up := func(name string) *v1.Pod {
		t.Helper()
		p, set := parse(t, `
  hostUsers: false
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {}}]
`)
		p.Name, p.UID = name, types.UID(name)
		if _, err := f.Up(deadline(t), p, set, false); err != nil {
			t.Fatal(err)
		}
		return p
	}
	// sandboxes returns the first id of each created sandbox.
	sandboxes := func() (firsts []uint32) {
		for _, call := range f.stub.Calls() {
			if r, ok := call.Request.(*runtimeapi.RunPodSandboxRequest); ok {
				firsts = append(firsts, r.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetUids()[0].GetHostId())
			}
		}
		return firsts
	}
	one := up("one")
	up("two")
	ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	config := f.created()[0]
	want := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	if diff := cmp.Diff(want, config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, mount := range config.GetMounts() {
		if cmp.Diff(ids, mount.GetUidMappings(), protocmp.Transform())+cmp.Diff(ids, mount.GetGidMappings(), protocmp.Transform()) != "" {
			t.Errorf("got %v", mount)
		}
	}
	text, err := os.ReadFile(f.userNamespaceFile("two"))
	const file = `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	if err != nil || string(text) != file {
		t.Errorf("got %s, %v", text, err)
	}
	// A second sandbox of a pod has the same ids. After the removal of the pod, a new pod gets these ids.
	f.stub.StopPod(f.status(t, one).Sandbox().GetId())
	up("one")
	if err := f.Remove(deadline(t), nil, f.status(t, one), nil); err != nil {
		t.Fatal(err)
	}
	up("three")
	if diff := cmp.Diff([]uint32{65536, 131072, 65536, 65536}, sandboxes()); diff != "" {
		t.Error(diff)
	}
}

// TestUserNamespaceThatCannotBeRead: no ids are allocated while an unreadable file may record any range.
func TestUserNamespaceThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}))
	if err := os.MkdirAll(f.o.Dirs.Pod("other"), 0o750); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{}", `{"uidMappings":[{"hostId":5}]}`, `{"uidMappings":[{"hostId":0}]}`} {
		if err := os.WriteFile(f.userNamespaceFile("other"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, set := parse(t, "  hostUsers: false\n  containers: [{name: a, image: \"busybox:1\"}]\n")
		_, err := f.Up(deadline(t), p, set, false)
		if want := "ids for the pod's user namespace: read " + f.userNamespaceFile("other"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

package kuberuntime

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withFeatures sets the features of the runtime and of its default handler.
func withFeatures(runtime *runtimeapi.RuntimeFeatures, handler *runtimeapi.RuntimeHandlerFeatures) func(*Options) {
	return func(o *Options) {
		o.answer(map[string]func() (proto.Message, error){"Status": func() (proto.Message, error) {
			return &runtimeapi.StatusResponse{
				Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
					{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
				}},
				Features: runtime, RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "other"}, {Features: handler}},
			}, nil
		}})
	}
}

// created returns the configurations of the containers that were created.
func (f *fixture) created() (out []*runtimeapi.ContainerConfig) {
	for _, call := range f.stub.Calls() {
		if r, ok := call.Request.(*runtimeapi.CreateContainerRequest); ok {
			out = append(out, r.GetConfig())
		}
	}
	return out
}

// TestFeaturesThatTheRuntimeLacks: a field that the runtime would ignore is an error with its path, before the sandbox
// is created.
func TestFeaturesThatTheRuntimeLacks(t *testing.T) {
	t.Parallel()
	const mount = `
  containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]}]
  volumes: [{name: v, emptyDir: {}}]
`
	const groups = `
  securityContext: {supplementalGroupsPolicy: Strict}
  containers: [{name: a, image: "busybox:1"}]
`
	const users = `
  hostUsers: false
  containers: [{name: a, image: "busybox:1"}]
`
	for name, c := range map[string]struct {
		spec, want string
		change     func(*Options)
	}{
		"no user namespaces":        {users, "spec.hostUsers: Forbidden: stubcri does not say that it has user namespaces for pods", withFeatures(nil, nil)},
		"it has user namespaces":    {users, "", withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true})},
		"no policy for groups":      {groups, "spec.securityContext.supplementalGroupsPolicy: Forbidden: stubcri does not say that it has the policy Strict", withFeatures(nil, nil)},
		"no recursive mounts":       {mount, "spec.containers[1].volumeMounts[0].recursiveReadOnly: Forbidden: stubcri does not say that it has recursive read-only mounts", withFeatures(nil, nil)},
		"not of this handler":       {mount, "recursive read-only mounts", withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true})},
		"it has the policy":         {groups, "", withFeatures(&runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}, nil)},
		"it has recursive mounts":   {mount, "", withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true})},
		"IfPossible is not refused": {strings.ReplaceAll(mount, "Enabled", "IfPossible"), "", withFeatures(nil, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.change)
			p, set := parse(t, c.spec)
			_, err := f.Up(deadline(t), p, set, false)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if made, _ := f.stub.Left(); c.want != "" && made != 0 {
				t.Error("a sandbox was made")
			}
		})
	}
}

// TestRecursiveReadOnlyIfPossible: mounts are recursively read-only if the runtime supports it.
func TestRecursiveReadOnlyIfPossible(t *testing.T) {
	t.Parallel()
	for _, possible := range []bool{true, false} {
		f := newFixture(t, withFeatures(nil, &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: possible}))
		p, set := parse(t, `
  containers:
  - name: a
    image: "busybox:1"
    volumeMounts:
    - {name: v, mountPath: /v, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: v, mountPath: /w, readOnly: true}
  volumes: [{name: v, emptyDir: {}}]
`)
		if _, err := f.Up(deadline(t), p, set, false); err != nil {
			t.Fatal(err)
		}
		mounts := f.created()[0].GetMounts()
		if mounts[0].GetRecursiveReadOnly() != possible || mounts[1].GetRecursiveReadOnly() {
			t.Errorf("possible: %v, got %v", possible, mounts)
		}
	}
}

package state

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

func TestSandboxSurvivesTheEngine(t *testing.T) {
	t.Parallel()
	want := Sandbox{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "we_b", Namespace: "n/s", Uid: "u", Attempt: 7},
		Labels:      map[string]string{"a": "b", "annotation.x": "1", "io.kubernetes.docker.type": "2", "io.crishim.name": "3", "": "4"},
		Annotations: map[string]string{"note": strings.Repeat("x", 5000), "annotation.y": "5"},

		RuntimeHandler: "kata",
		Created:        time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Ports:          []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 53, HostPort: 5353, HostIp: "::1"}},
		Network:        "cni",
		PID:            runtimeapi.NamespaceMode_CONTAINER,
	}
	labels, err := EncodeSandbox(want, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := DecodeSandbox("/k8s_POD_any", labels)
	if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestContainerSurvivesTheEngine(t *testing.T) {
	t.Parallel()
	want := Container{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2},
		Pod:         &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"},
		SandboxID:   "s",
		LogPath:     "/var/log/pods/x/0.log",
		Image:       "busybox",
		Labels:      map[string]string{"io.kubernetes.container.name": "app", "io.kubernetes.sandbox.id": "trap"},
		Annotations: map[string]string{"k": "v"},
		Created:     time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	got, ok := DecodeContainer("/k8s_any", EncodeContainer(want, nil))
	if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestSandboxesOfOtherShims(t *testing.T) {
	t.Parallel()
	labels := map[string]string{
		LabelType: TypeSandbox, kube.LabelContainerName: "POD", kube.LabelPodName: "web", kube.LabelPodNamespace: "prod", kube.LabelPodUID: "1-2",
		"app": "web", "annotation.kubernetes.io/config.source": "api",
	}
	for name, c := range map[string]struct {
		engineName string
		attempt    uint32
	}{
		"a plain name":           {"/k8s_POD_web_prod_1-2_3", 3},
		"a name after conflicts": {"/k8s_POD_web_prod_1-2_3_0badcafe", 3},
		"a name of another kind": {"/k8s_POD_web", 0},
	} {
		got, ok := DecodeSandbox(c.engineName, labels)
		want := Sandbox{
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "1-2", Attempt: c.attempt},
			Labels:      map[string]string{kube.LabelPodName: "web", kube.LabelPodNamespace: "prod", kube.LabelPodUID: "1-2", "app": "web"},
			Annotations: map[string]string{"kubernetes.io/config.source": "api"},
			PID:         runtimeapi.NamespaceMode_CONTAINER,
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
			t.Errorf("%s: got + instead of -:\n%s", name, diff)
		}
	}
}

func TestContainersOfOtherShims(t *testing.T) {
	t.Parallel()
	got, ok := DecodeContainer("/k8s_app_web_prod_u_4", map[string]string{LabelType: TypeContainer, LabelSandboxID: "s", LabelLogPath: "/l"})
	want := Container{
		Metadata:  &runtimeapi.ContainerMetadata{Name: "app", Attempt: 4},
		Pod:       &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u"},
		SandboxID: "s", LogPath: "/l", Labels: map[string]string{}, Annotations: map[string]string{},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestStrangersAreNotDecoded(t *testing.T) {
	t.Parallel()
	for _, labels := range []map[string]string{nil, {}, {LabelType: "x"}} {
		if _, ok := DecodeSandbox("/k8s_POD_a_b_c_0", labels); ok {
			t.Errorf("%v was taken for a sandbox", labels)
		}
		if _, ok := DecodeContainer("/k8s_x_a_b_c_0", labels); ok {
			t.Errorf("%v was taken for a container", labels)
		}
	}
}

func TestDamagedLabelsAreReadAsFarAsTheyGo(t *testing.T) {
	t.Parallel()
	got, ok := DecodeSandbox("/k8s_POD_a_b_c_9", map[string]string{
		LabelType: TypeSandbox, labelOwnPorts: "{", labelOwnAttempt: "x", labelOwnCreated: "yesterday", labelOwnPID: "?",
	})
	if !ok || got.Metadata.GetAttempt() != 9 || got.Ports != nil || !got.Created.IsZero() || got.PID != runtimeapi.NamespaceMode_POD {
		t.Errorf("got %+v", got)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	pod := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u", Attempt: 1}
	for want, got := range map[string]string{
		"k8s_POD_web_prod_u_1":          SandboxName(pod),
		"k8s_app_web_prod_u_2":          ContainerName(pod, &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}),
		"k8s_POD_a-b-c___0":             SandboxName(&runtimeapi.PodSandboxMetadata{Name: "a/b c"}),
		"k8s_POD_web_prod_u_1_000000ff": AlternativeName(SandboxName(pod), 255),
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMatchLabels(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"a": "1", "b": ""}
	for want, selectors := range map[bool][]map[string]string{
		true:  {nil, {"a": "1"}, {"a": "1", "b": ""}},
		false: {{"a": "2"}, {"c": ""}, {"a": "1", "c": ""}},
	} {
		for _, selector := range selectors {
			if MatchLabels(labels, selector) != want {
				t.Errorf("%v: got %v", selector, !want)
			}
		}
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("a", "annotation.a")
	f.Add("io.crishim.label.x", "io.kubernetes.docker.type")
	f.Fuzz(func(t *testing.T, label, annotation string) {
		labels, annotations := map[string]string{label: "1"}, map[string]string{annotation: "2"}
		gotLabels, gotAnnotations := decodeLabels(encodeLabels(labels, annotations))
		if !maps.Equal(labels, gotLabels) || !maps.Equal(annotations, gotAnnotations) {
			t.Errorf("got %v and %v, want %v and %v", gotLabels, gotAnnotations, labels, annotations)
		}
	})
}

func FuzzDecodeName(f *testing.F) {
	f.Add("/k8s_POD_web_prod_u_1")
	f.Add("k8s______")
	f.Fuzz(func(t *testing.T, name string) {
		p, ok := decodeName(name)
		if again, ok2 := decodeName(encodeName(p)); ok && nameForbidden.FindString(strings.TrimPrefix(name, "/")) == "" && (!ok2 || again != p) {
			t.Errorf("got %+v, want %+v", again, p)
		}
	})
}

var hostile = map[string]string{
	LabelType: TypeContainer, LabelSandboxID: "another", LabelLogPath: "/etc/cron.d/x",
	LabelOwnName: "n", labelOwnPod: "p", labelOwnNamespace: "kube-system", labelOwnUID: "v", labelOwnAttempt: "9", labelOwnCreated: "2030-01-02T03:04:05Z",
	labelOwnPorts: `[{"protocol":"TCP","host_port":22}]`, labelOwnHandler: "h", labelOwnImage: "i", labelOwnNetwork: "cni", labelOwnPID: "NODE", labelOwnLogDir: "/",
	LabelOwnMounts: `[{"path":"/x","id":"sha256:1"}]`, LabelOwnLimits: `{"files":{"../../../../etc/passwd":""}}`, LabelOwner: "shim",
	labelOwnSandbox: "another", labelOwnImageLabels: `["app","io.crishim.sandbox-id"]`,
	"io.crishim.label.app": "trap", "annotation.note": "trap", "annotation.more": "x", "maintainer": "x",
	kube.LabelPodName: "etcd", kube.LabelPodNamespace: "kube-system", kube.LabelPodUID: "v", kube.LabelContainerName: "etcd",
}

// ofImage merges the labels of a container and its image as the engine does.
func ofImage(labels map[string]string) map[string]string {
	all := maps.Clone(hostile)
	maps.Copy(all, labels)
	return all
}

func TestLabelsOfAnImageSayNothing(t *testing.T) {
	t.Parallel()
	pod := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"}
	for name, want := range map[string]Container{
		"everything": {
			Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, Pod: pod, SandboxID: "s", LogPath: "/l", LogDir: "/", Image: "busybox",
			Labels: map[string]string{"app": "x", kube.LabelPodName: "web"}, Annotations: map[string]string{"note": "y"},
			Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), ImageMounts: []ImageMount{{Path: "/m"}}, Limits: "{}",
		},
		"as little as there can be": {
			Metadata: &runtimeapi.ContainerMetadata{}, Pod: &runtimeapi.PodSandboxMetadata{}, SandboxID: "s", Labels: map[string]string{}, Annotations: map[string]string{},
			Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		},
	} {
		got, ok := DecodeContainer("/k8s_app_web_ns_u_2", ofImage(EncodeContainer(want, hostile)))
		if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
			t.Errorf("%s: got + instead of -:\n%s", name, diff)
		}
	}
	want := Sandbox{Metadata: pod, Labels: map[string]string{"app": "x"}, Annotations: map[string]string{}, Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	labels, err := EncodeSandbox(want, hostile)
	if err != nil {
		t.Fatal(err)
	}
	sandbox, ok := DecodeSandbox("/k8s_POD_web_ns_u_0", ofImage(labels))
	if diff := cmp.Diff(want, sandbox, protocmp.Transform()); !ok || diff != "" {
		t.Errorf("sandbox: got + instead of -:\n%s", diff)
	}
}

// In a container of another shim, labels of the image cannot be distinguished from those of CRI. crishim's own labels
// are known to come from the image.
func TestLabelsOfAnImageInAContainerOfAnotherShim(t *testing.T) {
	t.Parallel()
	got, ok := DecodeContainer("/k8s_app_web_prod_u_4", ofImage(map[string]string{
		LabelType: TypeContainer, LabelSandboxID: "s", LabelLogPath: "/l", "annotation.note": "y", "annotation.more": "y",
		kube.LabelPodName: "web", kube.LabelPodNamespace: "prod", kube.LabelPodUID: "u", kube.LabelContainerName: "app",
	}))
	want := Container{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 4}, Pod: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u"},
		SandboxID: "s", LogPath: "/l", Annotations: map[string]string{"note": "y", "more": "y"},
		Labels: map[string]string{"maintainer": "x", kube.LabelPodName: "web", kube.LabelPodNamespace: "prod", kube.LabelPodUID: "u", kube.LabelContainerName: "app"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); !ok || diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestOnlyANameMakesAPodsContainer(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "/", "/web", "web", "/k8s", "/xk8s_a_b_c_d_0", "/project-k8s_POD_1"} {
		if _, ok := DecodeContainer(name, hostile); ok {
			t.Errorf("%q was taken for a container", name)
		}
		if _, ok := DecodeSandbox(name, map[string]string{LabelType: TypeSandbox}); ok {
			t.Errorf("%q was taken for a sandbox", name)
		}
	}
	if _, ok := DecodeSandbox("/k8s_app_web_ns_u_0", map[string]string{LabelType: TypeSandbox}); ok {
		t.Error("a container of a pod was taken for a sandbox")
	}
}

package shim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/docker"
)

var engineSeeds = []string{
	`{}`, `null`, `[]`, `""`, `{"Id":"a","State":null,"Config":null,"HostConfig":null,"NetworkSettings":null}`,
	`{"Id":"abc","Created":"2026-01-02T03:04:05.6Z","Path":"/pause","Name":"/k8s_POD_web_default_uid_0","Image":"sha256:1","RestartCount":-1,
	"State":{"Status":"running","Running":true,"Pid":0,"ExitCode":137,"OOMKilled":true,"StartedAt":"2026-01-02T03:04:05Z","FinishedAt":"0001-01-01T00:00:00Z","Error":"x"},
	"Config":{"Labels":{"io.kubernetes.docker.type":"podsandbox","io.kubernetes.pod.name":"web","io.crishim.attempt":"-1","io.crishim.created":"x","io.crishim.ports":"[{"},"User":"0:0","Image":"busybox"},
	"HostConfig":{"NetworkMode":"host","PidMode":"container:x","IpcMode":"shareable","UsernsMode":"host","CgroupParent":"/x","Resources":{"CpuShares":-1,"Memory":-1},"PortBindings":{"80/tcp":[{"HostPort":"x"}]}},
	"NetworkSettings":{"Networks":{"bridge":{"IPAddress":"x","GlobalIPv6Address":"::1"},"none":null}},"Mounts":[{"Type":"bind","Source":"/a","Destination":"/b","Propagation":"x"}]}`,
	`{"Id":"abc","Names":["/k8s_main_web_default_uid_99999999999999999999"],"Image":"busybox","ImageID":"sha256:1","Created":-1,"State":"exited","Status":"Exited (1)",
	"Labels":{"io.kubernetes.docker.type":"container","io.kubernetes.sandbox.id":"abc","io.kubernetes.container.logpath":"/l","annotation.a":"b"},
	"NetworkSettings":{"Networks":{"x":null}},"Mounts":null}`,
	`{"Id":"sha256:1","RepoTags":["a:b","<none>:<none>",""],"RepoDigests":["a@sha256:1","<none>@<none>"],"Size":-1,"VirtualSize":9223372036854775807,"Config":{"User":"a:b:c","Labels":null},"RootFS":{"Layers":[]},"GraphDriver":{"Data":null}}`,
	`{"ID":"x","ServerVersion":"20.10","CgroupDriver":"x","CgroupVersion":"3","Runtimes":{"runc":{}},"DriverStatus":[[],["a"]],"ApiVersion":"x","SystemTime":"never","LayersSize":-1,"Containers":[null],"Images":[null]}`,
	`{"Type":"container","Action":"die","Actor":{"ID":"abc","Attributes":{"io.kubernetes.docker.type":"container"}},"timeNano":-1}`,
}

var oneObject = regexp.MustCompile(`/(containers|images)/.+/json$|/info$|/version$|/system/df$|/stats$`)

// FuzzEngineAnswers calls all RPCs with an engine that returns the same JSON for each request. The shim must not panic,
// and its answers must be encodable: gRPC requires valid UTF-8.
func FuzzEngineAnswers(f *testing.F) {
	for _, seed := range engineSeeds {
		f.Add(seed)
	}
	var now atomic.Value
	now.Store("{}")
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		answer, _ := now.Load().(string)
		text := answer
		if !oneObject.MatchString(r.URL.Path) {
			text = "[" + answer + "," + answer + "]"
		}
		_, _ = w.Write([]byte(text))
	}))
	f.Cleanup(engine.Close)
	s, err := New(Options{Engine: docker.Options{Host: strings.Replace(engine.URL, "http://", "tcp://", 1)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = s.Close() })
	a := s.service
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) || len(text) > 64<<10 {
			return
		}
		now.Store(text) // the calls are sequential
		ctx := t.Context()
		check := func(m proto.Message, err error) {
			t.Helper()
			if err != nil {
				if text := docker.Text(err); text == "" {
					t.Error("an error without a word")
				}
				return
			}
			if _, err := proto.Marshal(m); err != nil {
				t.Errorf("%T cannot be sent: %v", m, err)
			}
		}
		pods, err := a.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		check(pods, err)
		containers, err := a.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		check(containers, err)
		pod, err := a.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "abc", Verbose: true})
		check(pod, err)
		container, err := a.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "abc", Verbose: true})
		check(container, err)
		images, err := a.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		check(images, err)
		image, err := a.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "busybox"}, Verbose: true})
		check(image, err)
		fs, err := a.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		check(fs, err)
		version, err := a.Version(ctx, &runtimeapi.VersionRequest{})
		check(version, err)
		status, err := a.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		check(status, err)
		config, err := a.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		check(config, err)
		if utf8.ValidString(text) {
			stats, err := a.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
			check(stats, err)
		}
	})
}

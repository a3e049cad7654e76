package stubcri

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Calls that were added to CRI over time.
var (
	streamedLists = []string{
		"StreamPodSandboxes", "StreamContainers", "StreamContainerStats", "StreamPodSandboxStats", "StreamPodSandboxMetrics", "StreamImages",
	}
	podMetrics = []string{"ListMetricDescriptors", "ListPodSandboxMetrics"}
	podStats   = []string{"PodSandboxStats", "ListPodSandboxStats"}
)

// Profiles returns options that imitate current and some unusual older runtimes, by name: the calls and fields that
// they have.
func Profiles() map[string]Options {
	bigLists := Options{MaxSend: 64 << 10}
	return map[string]Options{
		"containerd 1.6": {
			Name: "containerd", Version: "1.6.33", APIs: []string{"v1", "v1alpha2"}, RuntimeAPIVersion: "v1", IgnoreImageFilter: true,
			Unimplemented: slices.Concat(streamedLists, podMetrics, []string{"GetContainerEvents", "CheckpointContainer", "RuntimeConfig", "UpdatePodSandboxResources"}),
			Change:        withoutNewFields,
		},
		"containerd 1.7": {
			Name: "containerd", Version: "1.7.24", APIs: []string{"v1", "v1alpha2"}, RuntimeAPIVersion: "v1", IgnoreImageFilter: true,
			Unimplemented: slices.Concat(streamedLists, podMetrics, []string{"CheckpointContainer", "RuntimeConfig", "UpdatePodSandboxResources"}),
			Change:        withoutNewFields,
		},
		"containerd 2": {
			Name: "containerd", Version: "2.0.2", IgnoreImageFilter: true,
			Unimplemented: slices.Concat(streamedLists, podMetrics, []string{"UpdatePodSandboxResources"}),
		},
		"CRI-O": {
			Name: "cri-o", Version: "1.31.2", Unimplemented: slices.Concat(streamedLists, podMetrics),
			Errors: map[string]error{"GetContainerEvents": errors.New("kubernetes pod lifecycle events are not enabled")},
			Change: bareImageIDs, LabelPods: true, LogStartErrors: true,
		},
		"cri-dockerd": {
			Name: "docker", Version: "26.1.5", RuntimeAPIVersion: "1.45.0", Change: withoutInfo,
			Unimplemented: slices.Concat(streamedLists, podMetrics, podStats, []string{"GetContainerEvents", "CheckpointContainer", "UpdatePodSandboxResources"}),
		},
		"dockershim 1.23": {
			Name: "docker", Version: "20.10.24", APIs: []string{"v1alpha2"}, RuntimeAPIVersion: "1.41.0",
			Unimplemented: slices.Concat(streamedLists, podMetrics, []string{"GetContainerEvents", "CheckpointContainer", "RuntimeConfig", "UpdatePodSandboxResources"}),
			Errors:        map[string]error{"PodSandboxStats": errors.New("not implemented"), "ListPodSandboxStats": errors.New("not implemented")},
			Change: func(answer proto.Message) {
				withoutInfo(answer)
				withoutNewFields(answer)
			},
		},
		"only lists": {Unimplemented: slices.Concat(streamedLists, podMetrics, podStats, []string{
			"RuntimeConfig", "ContainerStats", "ListContainerStats", "GetContainerEvents", "ImageFsInfo",
		})},
		"ignores filters": {IgnoreFilters: true},
		"big lists":       bigLists,
		"big lists in one piece only": {
			MaxSend: bigLists.MaxSend, Unimplemented: streamedLists,
		},
		"no metadata":   {Change: withoutMetadata},
		"empty answers": {Change: empty},
	}
}

// withoutNewFields removes fields that were added to CRI after Kubernetes 1.27.
func withoutNewFields(answer proto.Message) {
	switch m := answer.(type) {
	case *runtimeapi.StatusResponse:
		m.RuntimeHandlers, m.Features = nil, nil
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.GetContainers() {
			c.ImageId = ""
		}
	case *runtimeapi.ContainerStatusResponse:
		m.Status.ImageId, m.Status.User = "", nil
	case *runtimeapi.ImageFsInfoResponse:
		m.ContainerFilesystems = nil
	}
}

// bareImageIDs writes image ids in CRI-O's form.
func bareImageIDs(answer proto.Message) {
	bare := func(id *string) { *id = strings.TrimPrefix(*id, "sha256:") }
	switch m := answer.(type) {
	case *runtimeapi.ListImagesResponse:
		for _, image := range m.GetImages() {
			bare(&image.Id)
		}
	case *runtimeapi.ImageStatusResponse:
		if m.GetImage() != nil {
			bare(&m.Image.Id)
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.GetContainers() {
			bare(&c.ImageId)
			bare(&c.ImageRef)
		}
	case *runtimeapi.ContainerStatusResponse:
		bare(&m.Status.ImageId)
		bare(&m.Status.ImageRef)
	}
}

func withoutInfo(answer proto.Message) {
	m := answer.ProtoReflect()
	if field := m.Descriptor().Fields().ByName("info"); field != nil && field.IsMap() {
		m.Clear(field)
	}
}

// withoutMetadata removes all optional fields of an object.
func withoutMetadata(answer proto.Message) {
	withoutInfo(answer)
	switch m := answer.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		for _, p := range m.GetItems() {
			p.Metadata, p.Labels, p.Annotations = nil, nil, nil
		}
	case *runtimeapi.PodSandboxStatusResponse:
		m.Status.Metadata, m.Status.Network, m.Status.Linux = nil, nil, nil
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.GetContainers() {
			c.Metadata, c.Image, c.Labels, c.ImageRef, c.ImageId = nil, nil, nil, "", ""
		}
	case *runtimeapi.ContainerStatusResponse:
		m.Status.Metadata, m.Status.Image, m.Status.Resources, m.Status.LogPath = nil, nil, nil, ""
	case *runtimeapi.ListImagesResponse:
		for _, image := range m.GetImages() {
			image.RepoTags, image.RepoDigests, image.Spec = nil, nil, nil
		}
	case *runtimeapi.ListContainerStatsResponse:
		for _, st := range m.GetStats() {
			st.Attributes, st.Cpu, st.Memory, st.WritableLayer = nil, nil, nil, nil
		}
	case *runtimeapi.ListPodSandboxStatsResponse:
		for _, st := range m.GetStats() {
			st.Attributes, st.Linux = nil, nil
		}
	case *runtimeapi.ListPodSandboxMetricsResponse:
		for _, p := range m.GetPodMetrics() {
			for _, metric := range p.GetMetrics() {
				metric.Value, metric.LabelValues = nil, nil
			}
		}
	case *runtimeapi.ImageFsInfoResponse:
		for _, fs := range m.GetImageFilesystems() {
			fs.FsId, fs.UsedBytes, fs.InodesUsed = nil, nil, nil
		}
	}
}

// empty removes all fields except the ids of listed objects.
func empty(answer proto.Message) {
	switch m := answer.(type) {
	case *runtimeapi.VersionResponse:
	case *runtimeapi.ListPodSandboxResponse:
		for i, p := range m.GetItems() {
			m.Items[i] = &runtimeapi.PodSandbox{Id: p.GetId()}
		}
	case *runtimeapi.ListContainersResponse:
		for i, c := range m.GetContainers() {
			m.Containers[i] = &runtimeapi.Container{Id: c.GetId()}
		}
	case *runtimeapi.ListImagesResponse:
		for i, image := range m.GetImages() {
			m.Images[i] = &runtimeapi.Image{Id: image.GetId()}
		}
	case *runtimeapi.ListContainerStatsResponse:
		for i := range m.GetStats() {
			m.Stats[i] = &runtimeapi.ContainerStats{}
		}
	case *runtimeapi.ListPodSandboxStatsResponse:
		for i := range m.GetStats() {
			m.Stats[i] = &runtimeapi.PodSandboxStats{}
		}
	default:
		proto.Reset(answer)
	}
}

package stubcri

import (
	"cmp"
	"context"
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *runtimeService) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	apis := r.s.o.APIs
	if apis == nil {
		apis = []string{"v1"}
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: cmp.Or(r.s.o.Name, "stubcri"), RuntimeVersion: cmp.Or(r.s.o.Version, "1.0.0"),
		RuntimeApiVersion: cmp.Or(r.s.o.RuntimeAPIVersion, slices.Min(apis)),
	}, nil
}

func (r *runtimeService) Status(_ context.Context, req *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: !r.s.o.NoNetwork}
	if r.s.o.NoNetwork {
		network.Reason, network.Message = "NetworkPluginNotReady", "no CNI configuration"
	}
	resp := &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: true}, network,
		}},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true}}},
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if req.GetVerbose() {
		resp.Info = map[string]string{"config": `{"podCIDR":"` + r.s.PodCIDR() + `"}`, "golang": `"go1.26"`}
		maps.Copy(resp.Info, r.s.o.Info)
	}
	return resp, nil
}

func (r *runtimeService) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_SYSTEMD}}, nil
}

func (r *runtimeService) UpdateRuntimeConfig(_ context.Context, req *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.podCIDR = req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR is what the last UpdateRuntimeConfig set.
func (s *Server) PodCIDR() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podCIDR
}

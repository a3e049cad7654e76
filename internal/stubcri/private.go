package stubcri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// privateService is crishim's own service, of which the stub has the pull.
type privateService struct {
	api.UnimplementedCrishimServer
	s *Server
}

// PullImage pulls as CRI's does and tells of two layers, one of which was
// there.
func (p *privateService) PullImage(r *api.PullImageRequest, out api.Crishim_PullImageServer) error {
	res, err := (&imageService{s: p.s}).PullImage(out.Context(), &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: r.GetImage()},
		Auth:  &runtimeapi.AuthConfig{Username: r.GetUsername(), Password: r.GetPassword()},
	})
	if err != nil {
		return err
	}
	for _, m := range []*api.PullImageResponse{
		{Layer: "latest", Status: "Pulling from app"},
		{Layer: "0123456789ab", Status: "Pulling fs layer"},
		{Layer: "cdef01234567", Status: "Already exists"},
		{Layer: "0123456789ab", Status: "Downloading", Current: 1_000, Total: 2_000},
		{Layer: "0123456789ab", Status: "Pull complete"},
		{Status: "Status: Downloaded newer image for app"},
		{ImageId: res.GetImageRef()},
	} {
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}

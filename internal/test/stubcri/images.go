package stubcri

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	s *Server
}

func (s *Server) AddImage(tags ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addImage(tags...).GetId()
}

// Image changes an image in place, with the server's lock held.
func (s *Server) Image(ref string, change func(*runtimeapi.Image)) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	img := s.findImage(ref)
	if img == nil {
		s.t.Fatalf("no image %q", ref)
	}
	change(img)
}

func (s *Server) addImage(tags ...string) *runtimeapi.Image {
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(tags, " "))))
	img := &runtimeapi.Image{Id: "sha256:" + sum, Size: 4_300_000}
	for _, tag := range tags {
		tag = normal(tag)
		img.RepoTags = append(img.RepoTags, tag)
		repo := tag[:strings.LastIndexByte(tag, ':')]
		img.RepoDigests = append(img.RepoDigests, repo+"@sha256:"+sum)
	}
	s.images[img.Id] = img
	return img
}

// normal returns the full form of a reference: busybox is docker.io/library/busybox:latest.
func normal(ref string) string {
	first, rest, slash := strings.Cut(ref, "/")
	switch {
	case !slash:
		ref = "docker.io/library/" + ref
	case !strings.ContainsAny(first, ".:") && first != "localhost" && rest != "":
		ref = "docker.io/" + ref
	}
	if i := strings.LastIndexByte(ref, ':'); !strings.Contains(ref, "@") && i < strings.LastIndexByte(ref, '/') {
		ref += ":latest"
	}
	return ref
}

func (s *Server) findImage(ref string) *runtimeapi.Image {
	if ref == "" {
		return nil
	}
	full := normal(ref)
	for _, img := range s.images {
		bare := strings.TrimPrefix(img.GetId(), "sha256:")
		if img.GetId() == ref || bare == ref || slices.Contains(img.GetRepoTags(), full) || slices.Contains(img.GetRepoDigests(), full) {
			return img
		}
		if len(ref) >= 12 && strings.HasPrefix(bare, strings.TrimPrefix(ref, "sha256:")) {
			return img
		}
	}
	return nil
}

func (i *imageService) ListImages(_ context.Context, req *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return &runtimeapi.ListImagesResponse{Images: i.s.listImages(req.GetFilter().GetImage().GetImage())}, nil
}

func (s *Server) listImages(ref string) []*runtimeapi.Image {
	if ref != "" && !s.o.IgnoreFilters && !s.o.IgnoreImageFilter {
		if img := s.findImage(ref); img != nil {
			return []*runtimeapi.Image{proto.CloneOf(img)}
		}
		return nil
	}
	var out []*runtimeapi.Image
	for _, img := range s.images {
		out = append(out, proto.CloneOf(img))
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Image) int { return strings.Compare(a.GetId(), b.GetId()) })
	return out
}

func (i *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	resp := &runtimeapi.ImageStatusResponse{}
	if img := i.s.findImage(req.GetImage().GetImage()); img != nil {
		resp.Image = proto.CloneOf(img)
	}
	if req.GetVerbose() && resp.Image != nil {
		resp.Info = map[string]string{"info": `{"imageSpec":{"config":{"Cmd":["sh"]}}}`}
	}
	return resp, nil
}

// PullImage finds all images except those whose name contains "missing", and requires a password for names with
// "private".
func (i *imageService) PullImage(_ context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := req.GetImage().GetImage()
	switch {
	case ref == "":
		return nil, status.Error(codes.InvalidArgument, "the image reference is empty")
	case strings.Contains(ref, "missing"):
		return nil, status.Errorf(codes.NotFound, "pull %s: no such repository", ref)
	case strings.Contains(ref, "private") && req.GetAuth().GetPassword() == "":
		return nil, status.Errorf(codes.PermissionDenied, "pull %s: authorization required", ref)
	}
	img := i.s.findImage(ref)
	if img == nil {
		img = i.s.addImage(ref)
	}
	return &runtimeapi.PullImageResponse{ImageRef: img.GetId()}, nil
}

func (i *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	if img := i.s.findImage(req.GetImage().GetImage()); img != nil {
		delete(i.s.images, img.GetId())
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (i *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	fs := []*runtimeapi.FilesystemUsage{{
		Timestamp: i.s.now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var/lib/stubcri"},
		UsedBytes: &runtimeapi.UInt64Value{Value: 4_300_000}, InodesUsed: &runtimeapi.UInt64Value{Value: 42},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}

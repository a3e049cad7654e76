// Package private implements the service of package api for crishim's command line. Its calls have parameters or results
// that CRI does not have. They forward to other services of the shim or to the engine.
package private

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	shimcontainer "github.com/crishim/crishim/shim/container"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/logs"
	"github.com/crishim/crishim/shim/state"
	"github.com/crishim/crishim/shim/stream"
)

type Engine interface {
	logs.Engine
	Info(ctx context.Context) (system.Info, error)
	Events(ctx context.Context, options events.ListOptions) (<-chan events.Message, <-chan error)
	ContainerDiff(ctx context.Context, id string) ([]container.FilesystemChange, error)
	ContainerStatPath(ctx context.Context, id, path string) (container.PathStat, error)
	CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error)
	CopyToContainer(ctx context.Context, id, path string, content io.Reader, o container.CopyToContainerOptions) error
}

type Service struct {
	api.UnimplementedCrishimServer
	Engine     Engine
	Streams    *stream.Server
	Images     *image.Service
	Containers *shimcontainer.Service
}

func (s *Service) Exec(ctx context.Context, r *api.ExecRequest) (*api.ExecResponse, error) {
	request := execRequest(r.GetProcess())
	request.TTY, request.Stdin, request.Stdout, request.Stderr = r.GetTty(), r.GetStdin(), r.GetStdout(), r.GetStderr()
	url, err := s.Streams.ExecURL(ctx, request)
	if err != nil {
		return nil, err
	}
	return &api.ExecResponse{Url: url}, nil
}

func (s *Service) ExecSync(ctx context.Context, r *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	answer, err := s.Streams.RunSync(ctx, execRequest(r.GetProcess()), time.Duration(r.GetTimeoutMs())*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return &api.ExecSyncResponse{Stdout: answer.GetStdout(), Stderr: answer.GetStderr(), ExitCode: answer.GetExitCode()}, nil
}

func execRequest(p *api.Process) stream.ExecRequest {
	return stream.ExecRequest{
		ContainerID: p.GetContainerId(),
		Cmd:         p.GetCommand(),
		Env:         p.GetEnv(),
		WorkingDir:  p.GetWorkingDir(),
		User:        p.GetUser(),
	}
}

func (s *Service) DetachExec(_ context.Context, r *api.DetachExecRequest) (*api.DetachExecResponse, error) {
	return &api.DetachExecResponse{}, s.Streams.Detach(r.GetUrl())
}

func (s *Service) PullImage(r *api.PullImageRequest, out api.Crishim_PullImageServer) error {
	request := &runtimeapi.PullImageRequest{
		Image: &runtimeapi.ImageSpec{Image: r.GetImage()},
		Auth: &runtimeapi.AuthConfig{
			Username: r.GetUsername(), Password: r.GetPassword(), ServerAddress: r.GetServerAddress(),
			IdentityToken: r.GetIdentityToken(), RegistryToken: r.GetRegistryToken(),
		},
	}
	id, err := s.Images.PullReporting(out.Context(), request, func(m image.Progress) {
		// If the client is gone, the call's context ends the pull.
		_ = out.Send(&api.PullImageResponse{
			Layer: m.ID, Status: m.Status, Current: m.ProgressDetail.Current, Total: m.ProgressDetail.Total,
		})
	})
	if err != nil {
		return err
	}
	return out.Send(&api.PullImageResponse{ImageId: id})
}

func (s *Service) ContainerLogs(r *api.ContainerLogsRequest, out api.Crishim_ContainerLogsServer) error {
	if err := s.known(out.Context(), r.GetContainerId()); err != nil {
		return err
	}
	o := logs.ReadOptions{Follow: r.GetFollow(), Tail: int(r.GetTail())}
	if ns := r.GetSinceUnixNano(); ns != 0 {
		o.Since = time.Unix(0, ns)
	}
	if ns := r.GetUntilUnixNano(); ns != 0 {
		o.Until = time.Unix(0, ns)
	}
	err := logs.Read(out.Context(), s.Engine, r.GetContainerId(), o, func(rec logs.Record) error {
		answer := &api.LogRecord{UnixNano: rec.Time.UnixNano(), Text: rec.Text, Partial: rec.Partial}
		if rec.Stderr {
			answer.Stream = api.LogRecord_STDERR
		}
		return out.Send(answer)
	})
	if errdefs.IsNotImplemented(err) { // the log driver cannot read logs; Unimplemented would mean that crishim lacks this RPC
		return fmt.Errorf("%s: %w", err.Error(), errdefs.ErrFailedPrecondition)
	}
	return err
}

// known rejects ids of sandboxes and of containers outside pods, which are not CRI containers.
func (s *Service) known(ctx context.Context, id string) error {
	_, err := state.FindContainer(ctx, s.Engine, id)
	return err
}

// changesAtOnce is the number of changes per message. Paths may be long, because containers choose them.
const changesAtOnce = 1000

func (s *Service) ContainerChanges(r *api.ContainerChangesRequest, out api.Crishim_ContainerChangesServer) error {
	if err := s.known(out.Context(), r.GetContainerId()); err != nil {
		return err
	}
	changes, err := s.Engine.ContainerDiff(out.Context(), r.GetContainerId())
	if err != nil {
		return fmt.Errorf("changes of container %q: %w", r.GetContainerId(), err)
	}
	for some := range slices.Chunk(changes, changesAtOnce) {
		m := &api.ContainerChangesResponse{}
		for _, c := range some {
			m.Changes = append(m.Changes, &api.FileChange{Kind: c.Kind.String(), Path: []byte(c.Path)})
		}
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) StatPath(ctx context.Context, r *api.StatPathRequest) (*api.PathStat, error) {
	if err := s.known(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	st, err := s.Engine.ContainerStatPath(ctx, r.GetContainerId(), string(r.GetPath()))
	if err != nil {
		return nil, aboutPath(r.GetPath(), r.GetContainerId(), err)
	}
	return pathStat(st), nil
}

// aboutPath adds a path to an error and makes both valid UTF-8, which a gRPC status requires.
func aboutPath(path []byte, id string, err error) error {
	return &inUTF8{fmt.Errorf("%s in container %q: %w", path, id, err)}
}

type inUTF8 struct{ error }

func (e *inUTF8) Error() string { return strings.ToValidUTF8(e.error.Error(), "?") }
func (e *inUTF8) Unwrap() error { return e.error }

func pathStat(st container.PathStat) *api.PathStat {
	return &api.PathStat{
		Name: []byte(st.Name), Size: st.Size, Mode: uint32(st.Mode), ModifiedUnixNano: st.Mtime.UnixNano(), LinkTarget: []byte(st.LinkTarget),
	}
}

func (s *Service) ReadArchive(r *api.ReadArchiveRequest, out api.Crishim_ReadArchiveServer) error {
	if err := s.known(out.Context(), r.GetContainerId()); err != nil {
		return err
	}
	content, st, err := s.copyFrom(out.Context(), r.GetContainerId(), string(r.GetPath()))
	if err != nil {
		return aboutPath(r.GetPath(), r.GetContainerId(), err)
	}
	defer content.Close()
	if err := out.Send(&api.ReadArchiveResponse{Stat: pathStat(st)}); err != nil {
		return err
	}
	buf := make([]byte, api.Chunk)
	for {
		n, err := content.Read(buf)
		if n > 0 {
			if err := out.Send(&api.ReadArchiveResponse{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return aboutPath(r.GetPath(), r.GetContainerId(), err)
		}
	}
}

// copyFrom reads a file whose name is not UTF-8 from its directory's archive. The engine's archive of the file would be
// empty.
func (s *Service) copyFrom(ctx context.Context, id, file string) (io.ReadCloser, container.PathStat, error) {
	base := path.Base(file)
	if utf8.ValidString(base) || strings.HasSuffix(file, "/.") {
		return s.Engine.CopyFromContainer(ctx, id, file)
	}
	st, err := s.Engine.ContainerStatPath(ctx, id, file)
	if err != nil {
		return nil, st, err
	}
	all, _, err := s.Engine.CopyFromContainer(ctx, id, strings.TrimSuffix(path.Dir(file), "/")+"/.")
	if err != nil {
		return nil, st, err
	}
	r, w := io.Pipe()
	go func() { // ends with the archive, or when the caller closes the pipe
		w.CloseWithError(onlyFile(w, all, base))
		_ = all.Close()
	}()
	return r, st, nil
}

func onlyFile(w io.Writer, archive io.Reader, name string) error {
	out := tar.NewWriter(w)
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		clean := path.Clean(h.Name)
		if first, _, _ := strings.Cut(clean, "/"); first != name {
			continue
		}
		h.Name = clean
		if h.Typeflag == tar.TypeLink {
			h.Linkname = path.Clean(h.Linkname)
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}

func (s *Service) WriteArchive(in api.Crishim_WriteArchiveServer) error {
	first, err := in.Recv()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the request names no container: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return err
	}
	if err := s.known(in.Context(), first.GetContainerId()); err != nil {
		return err
	}
	content := &messageReader[*api.WriteArchiveRequest]{recv: in.Recv, rest: first.GetData()}
	// Without CopyUIDGID the archive's owners are kept. With it the engine would look up the container's user on the
	// host.
	err = s.Engine.CopyToContainer(in.Context(), first.GetContainerId(), string(first.GetPath()), content, container.CopyToContainerOptions{})
	if err != nil {
		return aboutPath(first.GetPath(), first.GetContainerId(), errors.Join(content.failure(), err))
	}
	return in.SendAndClose(&api.WriteArchiveResponse{})
}

type messageReader[M interface{ GetData() []byte }] struct {
	recv func() (M, error)
	rest []byte

	mu  sync.Mutex // guards err: CopyToContainer may return while the HTTP transport still calls Read
	err error      // reason why receiving ended, except EOF
}

func (r *messageReader[M]) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *messageReader[M]) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		m, err := r.recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
			}
			return 0, err
		}
		r.rest = m.GetData()
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (s *Service) SignalContainer(ctx context.Context, r *api.SignalContainerRequest) (*api.SignalContainerResponse, error) {
	return &api.SignalContainerResponse{}, s.Containers.Signal(ctx, r.GetContainerId(), r.GetSignal())
}

func (s *Service) PauseContainer(ctx context.Context, r *api.PauseContainerRequest) (*api.PauseContainerResponse, error) {
	if r.GetUnpause() {
		return &api.PauseContainerResponse{}, s.Containers.Unpause(ctx, r.GetContainerId())
	}
	return &api.PauseContainerResponse{}, s.Containers.Pause(ctx, r.GetContainerId())
}

func (s *Service) RestartContainer(ctx context.Context, r *api.RestartContainerRequest) (*api.RestartContainerResponse, error) {
	return &api.RestartContainerResponse{}, s.Containers.Restart(ctx, r.GetContainerId(), r.GetTimeout())
}

func (s *Service) CopyContainer(ctx context.Context, r *api.CopyContainerRequest) (*api.CopyContainerResponse, error) {
	id, err := s.Containers.Copy(ctx, r)
	if err != nil {
		return nil, err
	}
	return &api.CopyContainerResponse{ContainerId: id}, nil
}

func (s *Service) SaveImages(r *api.SaveImagesRequest, out api.Crishim_SaveImagesServer) error {
	content, err := s.Images.Save(out.Context(), r.GetImages())
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.CopyBuffer(imageWriter{out}, struct{ io.Reader }{content}, make([]byte, api.Chunk))
	return err
}

type imageWriter struct{ out api.Crishim_SaveImagesServer }

func (w imageWriter) Write(b []byte) (int, error) {
	return len(b), w.out.Send(&api.ImageArchive{Data: b})
}

func (s *Service) LoadImages(in api.Crishim_LoadImagesServer) error {
	content := &messageReader[*api.ImageArchive]{recv: in.Recv}
	if err := s.Images.Load(in.Context(), content); err != nil {
		return errors.Join(content.failure(), err)
	}
	return in.SendAndClose(&api.LoadImagesResponse{})
}

func (s *Service) ImageUsage(ctx context.Context, r *api.ImageUsageRequest) (*api.ImageUsageResponse, error) {
	u, err := s.Images.Usage(ctx, r.GetTimes())
	if err != nil {
		return nil, err
	}
	answer := &api.ImageUsageResponse{LayerSizes: u.Sizes}
	switch {
	case u.Own:
		answer.Layers = api.ImageUsageResponse_OWN
	case u.Merged:
		answer.Layers = api.ImageUsageResponse_MERGED
	}
	for _, i := range u.Images {
		one := &api.ImageUsage{Id: i.ID, Layers: i.Layers, Used: i.Used}
		if r.GetTimes() && i.Came.Unix() > 0 {
			one.CameUnixNano = i.Came.UnixNano()
		}
		answer.Images = append(answer.Images, one)
	}
	return answer, nil
}

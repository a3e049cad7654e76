package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
)

// ErrNotDockershim is returned for a runtime without the private service.
var ErrNotDockershim = errors.New("only crishim's dockershim can do this")

// Process holds settings of an exec that CRI has no field for.
type Process struct {
	Env        []string // NAME=value
	WorkingDir string
	User       string
}

func (p Process) isZero() bool { return len(p.Env) == 0 && p.WorkingDir == "" && p.User == "" }

func (p Process) message(containerID string, cmd []string) *api.Process {
	return &api.Process{ContainerId: containerID, Command: cmd, Env: p.Env, WorkingDir: p.WorkingDir, User: p.User}
}

// Exec returns the streaming URL of an exec. Settings in p need the private service.
func (c *Conn) Exec(ctx context.Context, r *runtimeapi.ExecRequest, p Process) (string, error) {
	if p.isZero() {
		answer, err := c.Runtime.Exec(ctx, r)
		return answer.GetUrl(), err
	}
	answer, err := c.Crishim().Exec(ctx, &api.ExecRequest{
		Process: p.message(r.GetContainerId(), r.GetCmd()),
		Tty:     r.GetTty(), Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	return answer.GetUrl(), err
}

// ExecSync runs a command without streams. A timeout of 0 means no timeout.
func (c *Conn) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, p Process) (*runtimeapi.ExecSyncResponse, error) {
	if p.isZero() {
		return c.Runtime.ExecSync(ctx, r)
	}
	answer, err := c.Crishim().ExecSync(ctx, &api.ExecSyncRequest{
		Process:   p.message(r.GetContainerId(), r.GetCmd()),
		TimeoutMs: (time.Duration(r.GetTimeout()) * time.Second).Milliseconds(),
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ExecSyncResponse{Stdout: answer.GetStdout(), Stderr: answer.GetStderr(), ExitCode: answer.GetExitCode()}, nil
}

// PullProgress is progress of one layer, or of the whole image if Layer is empty.
type PullProgress struct {
	Layer, Status  string
	Current, Total int64 // bytes; Total is 0 if unknown
}

// PullReporting pulls an image, calls report for each progress message and returns the image id.
func (c *Conn) PullReporting(ctx context.Context, image string, auth *runtimeapi.AuthConfig, report func(PullProgress), opts ...grpc.CallOption) (id string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream after an early return
	s, err := api.NewCrishimClient(c.image).PullImage(ctx, &api.PullImageRequest{
		Image:    image,
		Username: auth.GetUsername(), Password: auth.GetPassword(), ServerAddress: auth.GetServerAddress(),
		IdentityToken: auth.GetIdentityToken(), RegistryToken: auth.GetRegistryToken(),
	}, opts...)
	if err != nil {
		return "", err
	}
	err = receive(s.Recv, func(m *api.PullImageResponse) error {
		if m.GetImageId() != "" {
			id = m.GetImageId()
		} else {
			report(PullProgress{Layer: m.GetLayer(), Status: m.GetStatus(), Current: m.GetCurrent(), Total: m.GetTotal()})
		}
		return nil
	})
	return id, err
}

func receive[M any](recv func() (M, error), each func(M) error) error {
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = each(m)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conn) IsDockershim(ctx context.Context) bool {
	_, err := c.StatPath(ctx, "", "") // no container is given, so a runtime that has the call rejects it at once
	return !errors.Is(err, ErrNotDockershim)
}

// Crishim returns the client of the private service. Its calls fail with ErrNotDockershim on other runtimes.
func (c *Conn) Crishim() api.CrishimClient { return api.NewCrishimClient(c.runtime) }

// ReadArchive returns a path of a container as a tar archive. The caller closes it. The container need not run and
// needs no programs.
func (c *Conn) ReadArchive(ctx context.Context, containerID, path string) (io.ReadCloser, *api.PathStat, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.Crishim().ReadArchive(ctx, &api.ReadArchiveRequest{ContainerId: containerID, Path: []byte(path)})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	content, first, err := newArchive(s.Recv, cancel)
	return content, first.GetStat(), err
}

// archive reads the data of a stream of messages.
type archive[M interface{ GetData() []byte }] struct {
	recv   func() (M, error)
	rest   []byte
	cancel context.CancelFunc
}

// newArchive waits for the first message, so that a failed call returns an error instead of an archive. An empty
// archive has no message.
func newArchive[M interface{ GetData() []byte }](recv func() (M, error), cancel context.CancelFunc) (io.ReadCloser, M, error) {
	first, err := recv()
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, first, err
	}
	return &archive[M]{recv: recv, rest: first.GetData(), cancel: cancel}, first, nil
}

func (a *archive[M]) Read(b []byte) (int, error) {
	for len(a.rest) == 0 {
		m, err := a.recv()
		if err != nil {
			return 0, err
		}
		a.rest = m.GetData()
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *archive[M]) Close() error {
	a.cancel()
	return nil
}

func (c *Conn) WriteArchive(ctx context.Context, containerID, dir string, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Crishim().WriteArchive(ctx)
	if err != nil {
		return err
	}
	first := &api.WriteArchiveRequest{ContainerId: containerID, Path: []byte(dir)}
	if err := s.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := sendPieces(content, func(piece []byte) error { return s.Send(&api.WriteArchiveRequest{Data: piece}) }); err != nil {
		return err
	}
	_, err = s.CloseAndRecv()
	return err
}

// sendPieces sends content in messages. If a send fails, the caller reads the reason from the answer.
func sendPieces(content io.Reader, send func(piece []byte) error) error {
	buf := make([]byte, api.Chunk)
	for {
		n, err := io.ReadFull(content, buf)
		if n > 0 && send(buf[:n]) != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ContainerChanges calls each for every path that a container has changed. kind is A, C or D.
func (c *Conn) ContainerChanges(ctx context.Context, containerID string, each func(kind, path string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Crishim().ContainerChanges(ctx, &api.ContainerChangesRequest{ContainerId: containerID})
	if err != nil {
		return err
	}
	return receive(s.Recv, func(m *api.ContainerChangesResponse) error {
		for _, change := range m.GetChanges() {
			if err := each(change.GetKind(), string(change.GetPath())); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *Conn) StatPath(ctx context.Context, containerID, path string) (*api.PathStat, error) {
	return c.Crishim().StatPath(ctx, &api.StatPathRequest{ContainerId: containerID, Path: []byte(path)})
}

// EngineEvent is an event from the engine's own event log.
type EngineEvent struct {
	Time                              time.Time
	Action                            string // in the engine's words: create, start, kill, oom, die, destroy, ...
	ID, SandboxID                     string // ID is the sandbox's if Container is empty
	Namespace, Pod, PodUID, Container string
	Attempt                           uint32
	ExitCode                          int32  // for die; -1 if unknown
	Signal                            string // for kill
}

// EngineEvents returns the engine's own events about pods, oldest first. Engines keep the last few hundred events.
func (c *Conn) EngineEvents(ctx context.Context, since, until time.Time) (out []EngineEvent, err error) {
	request := &api.EngineEventsRequest{SinceUnixNano: since.UnixNano()}
	if !until.IsZero() {
		request.UntilUnixNano = until.UnixNano()
	}
	s, err := c.Crishim().EngineEvents(ctx, request)
	if err != nil {
		return nil, err
	}
	err = receive(s.Recv, func(m *api.EngineEvent) error {
		out = append(out, EngineEvent{
			Time: time.Unix(0, m.GetUnixNano()), Action: m.GetAction(), ID: m.GetId(), SandboxID: m.GetSandboxId(),
			Namespace: m.GetNamespace(), Pod: m.GetPod(), PodUID: m.GetPodUid(), Container: m.GetContainer(), Attempt: m.GetAttempt(),
			ExitCode: m.GetExitCode(), Signal: m.GetSignal(),
		})
		return nil
	})
	return out, err
}

// SaveImages returns images as an archive in the engine's format. The caller closes it.
func (c *Conn) SaveImages(ctx context.Context, images []string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := api.NewCrishimClient(c.image).SaveImages(ctx, &api.SaveImagesRequest{Images: images})
	if err != nil {
		cancel()
		return nil, err
	}
	content, _, err := newArchive(s.Recv, cancel)
	return content, err
}

// LoadImages has the engine load an archive. If reading the archive fails, nothing is loaded.
func (c *Conn) LoadImages(ctx context.Context, archive io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // cancels the load if the archive cannot be read to its end
	s, err := api.NewCrishimClient(c.image).LoadImages(ctx)
	if err != nil {
		return err
	}
	if err := sendPieces(archive, func(piece []byte) error { return s.Send(&api.ImageArchive{Data: piece}) }); err != nil {
		return err
	}
	_, err = s.CloseAndRecv()
	return err
}

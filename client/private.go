package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// ErrNotDockershim is the error of a runtime without the private service, for what CRI
// cannot carry.
var ErrNotDockershim = errors.New("only crishim's dockershim can do this")

// Process is what an exec may have that CRI has no field for.
type Process struct {
	Env        []string // NAME=value
	WorkingDir string
	User       string
}

func (p Process) isZero() bool { return len(p.Env) == 0 && p.WorkingDir == "" && p.User == "" }

func (p Process) message(containerID string, cmd []string) *api.Process {
	return &api.Process{ContainerId: containerID, Command: cmd, Env: p.Env, WorkingDir: p.WorkingDir, User: p.User}
}

// Exec returns the streaming URL of an exec. Only what CRI has no field for needs
// the private service.
func (c *Conn) Exec(ctx context.Context, r *runtimeapi.ExecRequest, p Process) (string, error) {
	if p.isZero() {
		answer, err := c.Runtime.Exec(ctx, r)
		return answer.GetUrl(), err
	}
	answer, err := c.private().Exec(ctx, &api.ExecRequest{
		Process: p.message(r.GetContainerId(), r.GetCmd()),
		Tty:     r.GetTty(), Stdin: r.GetStdin(), Stdout: r.GetStdout(), Stderr: r.GetStderr(),
	})
	return answer.GetUrl(), c.privateError(err)
}

// ExecSync runs a command without streams; a timeout of 0 is none.
func (c *Conn) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, p Process) (*runtimeapi.ExecSyncResponse, error) {
	if p.isZero() {
		return c.Runtime.ExecSync(ctx, r)
	}
	answer, err := c.private().ExecSync(ctx, &api.ExecSyncRequest{
		Process:   p.message(r.GetContainerId(), r.GetCmd()),
		TimeoutMs: (time.Duration(r.GetTimeout()) * time.Second).Milliseconds(),
	})
	if err != nil {
		return nil, c.privateError(err)
	}
	return &runtimeapi.ExecSyncResponse{Stdout: answer.GetStdout(), Stderr: answer.GetStderr(), ExitCode: answer.GetExitCode()}, nil
}

// DetachExec lets the process of the session behind a streaming URL go on when
// the client leaves. ErrNotDockershim means that it will end.
func (c *Conn) DetachExec(ctx context.Context, streamingURL string) error {
	_, err := c.private().DetachExec(ctx, &api.DetachExecRequest{Url: streamingURL})
	return c.privateError(err)
}

// PullProgress is a message about a pull: what is done to a layer, or to the
// image where Layer is empty.
type PullProgress struct {
	Layer, Status  string
	Current, Total int64 // bytes; Total is 0 where it is not known
}

// PullReporting pulls an image, calls report for each message about its progress, and
// returns the image's id. A limit of WithTimeout holds for it as for a pull of CRI.
func (c *Conn) PullReporting(ctx context.Context, image string, auth *runtimeapi.AuthConfig, report func(PullProgress)) (string, error) {
	lim, _ := ctx.Value(limitKey{}).(limit)
	if lim.d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lim.d)
		defer cancel()
	}
	id, err := c.pullReporting(ctx, image, auth, report)
	var e *Error
	if errors.As(err, &e) && e.Code == codes.DeadlineExceeded && e.hint == "" {
		e.hint = lim.hint()
	}
	return id, withSkipped(c.privateError(err), c.image.skipped())
}

func (c *Conn) pullReporting(ctx context.Context, image string, auth *runtimeapi.AuthConfig, report func(PullProgress)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of a stream that is left early
	s, err := api.NewCrishimClient(c.image).PullImage(ctx, &api.PullImageRequest{
		Image:    image,
		Username: auth.GetUsername(), Password: auth.GetPassword(), ServerAddress: auth.GetServerAddress(),
		IdentityToken: auth.GetIdentityToken(), RegistryToken: auth.GetRegistryToken(),
	})
	if err != nil {
		return "", err
	}
	id := ""
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return id, nil
		case err != nil:
			return "", err
		case m.GetImageId() != "":
			id = m.GetImageId()
		default:
			report(PullProgress{Layer: m.GetLayer(), Status: m.GetStatus(), Current: m.GetCurrent(), Total: m.GetTotal()})
		}
	}
}

// IsDockershim reports whether the runtime is crishim's dockershim.
func (c *Conn) IsDockershim(ctx context.Context) bool {
	_, err := c.StatPath(ctx, "", "") // of no container: refused at once where the call is known
	return !errors.Is(err, ErrNotDockershim)
}

func (c *Conn) private() api.CrishimClient { return api.NewCrishimClient(c.ClientConn()) }

// privateError marks the answer of a runtime that has no private service.
func (c *Conn) privateError(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w, and %s is another runtime", ErrNotDockershim, c.RuntimeEndpoint)
	}
	return err
}

// ReadArchive returns a path of a container as a tar archive, which the caller closes,
// and what the path is. The container need not run, and needs no programs.
func (c *Conn) ReadArchive(ctx context.Context, containerID, path string) (io.ReadCloser, *api.PathStat, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.private().ReadArchive(ctx, &api.ReadArchiveRequest{ContainerId: containerID, Path: []byte(path)})
	if err != nil {
		cancel()
		return nil, nil, c.privateError(err)
	}
	first, err := s.Recv()
	if err != nil {
		cancel()
		return nil, nil, c.privateError(err)
	}
	return &archive[*api.ReadArchiveResponse]{recv: s.Recv, rest: first.GetData(), cancel: cancel}, first.GetStat(), nil
}

// archive is the content of the messages of a call.
type archive[M interface{ GetData() []byte }] struct {
	recv   func() (M, error)
	rest   []byte
	cancel context.CancelFunc
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

// Close ends the call.
func (a *archive[M]) Close() error {
	a.cancel()
	return nil
}

// WriteArchive unpacks a tar archive in a directory of a container.
func (c *Conn) WriteArchive(ctx context.Context, containerID, dir string, copyOwner bool, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.private().WriteArchive(ctx)
	if err != nil {
		return c.privateError(err)
	}
	message := &api.WriteArchiveRequest{ContainerId: containerID, Path: []byte(dir), CopyOwner: copyOwner}
	buf := make([]byte, api.Chunk)
	for {
		n, readErr := io.ReadFull(content, buf)
		message.Data = buf[:n]
		if n > 0 || message.ContainerId != "" {
			if err := s.Send(message); err != nil {
				break // the answer has the reason
			}
		}
		message = &api.WriteArchiveRequest{}
		if errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF) {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	_, err = s.CloseAndRecv()
	return c.privateError(err)
}

// ContainerChanges calls each with what a container has changed: A, C or D, and the path.
func (c *Conn) ContainerChanges(ctx context.Context, containerID string, each func(kind, path string) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.private().ContainerChanges(ctx, &api.ContainerChangesRequest{ContainerId: containerID})
	if err != nil {
		return c.privateError(err)
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.privateError(err)
		}
		for _, change := range m.GetChanges() {
			if err := each(change.GetKind(), string(change.GetPath())); err != nil {
				return err
			}
		}
	}
}

// StatPath returns what a path of a container is.
func (c *Conn) StatPath(ctx context.Context, containerID, path string) (*api.PathStat, error) {
	st, err := c.private().StatPath(ctx, &api.StatPathRequest{ContainerId: containerID, Path: []byte(path)})
	return st, c.privateError(err)
}

// SignalContainer sends a signal, by name or number, to a container's first process.
func (c *Conn) SignalContainer(ctx context.Context, id, signal string) error {
	_, err := c.private().SignalContainer(ctx, &api.SignalContainerRequest{ContainerId: id, Signal: signal})
	return c.privateError(err)
}

// PauseContainer freezes a container's processes.
func (c *Conn) PauseContainer(ctx context.Context, id string) error {
	_, err := c.private().PauseContainer(ctx, &api.PauseContainerRequest{ContainerId: id})
	return c.privateError(err)
}

// UnpauseContainer lets a container's processes go on.
func (c *Conn) UnpauseContainer(ctx context.Context, id string) error {
	_, err := c.private().PauseContainer(ctx, &api.PauseContainerRequest{ContainerId: id, Unpause: true})
	return c.privateError(err)
}

// RestartContainer stops a container within grace and starts it again.
func (c *Conn) RestartContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := c.private().RestartContainer(ctx, &api.RestartContainerRequest{ContainerId: id, Timeout: int64(math.Ceil(grace.Seconds()))})
	return c.privateError(err)
}

// CopyContainer creates a container like another one of its pod, and returns its id.
func (c *Conn) CopyContainer(ctx context.Context, r *api.CopyContainerRequest) (string, error) {
	answer, err := c.private().CopyContainer(ctx, r)
	return answer.GetContainerId(), c.privateError(err)
}

// EngineEvent is something that the engine did or saw, from its own journal.
type EngineEvent struct {
	Time time.Time
	// Action is the engine's word: create, start, kill, oom, die, destroy, ...
	Action string
	// ID is of the container, or of the sandbox where Container is empty.
	ID, SandboxID                     string
	Namespace, Pod, PodUID, Container string
	Attempt                           uint32
	ExitCode                          int32  // of die; -1 where it is not known
	Signal                            string // of kill
}

// EngineEvents returns what the engine's own journal has of pods since a time, the oldest first. Engines keep the last few
// hundred events. Only crishim's dockershim has one: else ErrNotDockershim.
func (c *Conn) EngineEvents(ctx context.Context, since, until time.Time) (out []EngineEvent, err error) {
	request := &api.EngineEventsRequest{SinceUnixNano: since.UnixNano()}
	if !until.IsZero() {
		request.UntilUnixNano = until.UnixNano()
	}
	s, err := c.private().EngineEvents(ctx, request)
	if err != nil {
		return nil, c.privateError(err)
	}
	for {
		m, err := s.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, c.privateError(err)
		}
		out = append(out, EngineEvent{
			Time: time.Unix(0, m.GetUnixNano()), Action: m.GetAction(), ID: m.GetId(), SandboxID: m.GetSandboxId(),
			Namespace: m.GetNamespace(), Pod: m.GetPod(), PodUID: m.GetPodUid(), Container: m.GetContainer(), Attempt: m.GetAttempt(),
			ExitCode: m.GetExitCode(), Signal: m.GetSignal(),
		})
	}
}

// SaveImages returns images as the archive of the engine behind our own shim, which the caller closes.
func (c *Conn) SaveImages(ctx context.Context, images []string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	s, err := api.NewCrishimClient(c.image).SaveImages(ctx, &api.SaveImagesRequest{Images: images})
	if err != nil {
		cancel()
		return nil, c.privateError(err)
	}
	first, err := s.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		cancel()
		return nil, c.privateError(err)
	}
	return &archive[*api.ImageArchive]{recv: s.Recv, rest: first.GetData(), cancel: cancel}, nil
}

// LoadImages has the engine behind our own shim load an archive. Where reading the archive fails nothing is
// loaded.
func (c *Conn) LoadImages(ctx context.Context, archive io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // an archive that cannot be read to its end
	s, err := api.NewCrishimClient(c.image).LoadImages(ctx)
	if err != nil {
		return c.privateError(err)
	}
	buf := make([]byte, api.Chunk)
	for {
		n, readErr := archive.Read(buf)
		if n > 0 {
			if err := s.Send(&api.ImageArchive{Data: buf[:n]}); err != nil {
				break // the answer has the reason
			}
		}
		if errors.Is(readErr, io.EOF) {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	_, err = s.CloseAndRecv()
	return c.privateError(err)
}

// ImageUsage reports what the images of the engine behind our own shim take of its disk.
func (c *Conn) ImageUsage(ctx context.Context, times bool) (*api.ImageUsageResponse, error) {
	answer, err := api.NewCrishimClient(c.image).ImageUsage(ctx, &api.ImageUsageRequest{Times: times})
	return answer, c.privateError(err)
}

package commands

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/progress"
)

// pullOnce pulls and shows how far it is. Our own shim tells of each layer; of
// another runtime only the time is known that it takes, and how much the images
// grow meanwhile.
func pullOnce(ctx context.Context, env *Env, conn *client.Conn, o pullOptions, r *runtimeapi.PullImageRequest) (string, error) {
	if !o.progress {
		return pullSilently(ctx, conn, r)
	}
	display := o.display
	if display == nil {
		display = progress.Start(env.progressOptions())
		defer display.Close()
	}
	return pullShowing(ctx, conn, r, display)
}

func pullShowing(ctx context.Context, conn *client.Conn, r *runtimeapi.PullImageRequest, display *progress.Display) (string, error) {
	shown := display.Pull(r.GetImage().GetImage())
	defer shown.Close()
	if r.GetImage().GetRuntimeHandler() == "" { // for which the private service has no field
		id, err := conn.PullReporting(ctx, r.GetImage().GetImage(), r.GetAuth(), shown.Report)
		if !errors.Is(err, client.ErrNotOurShim) {
			return id, err
		}
	}
	display.Stored(func(ctx context.Context) (int64, error) { return imageBytes(ctx, conn) })
	return pullSilently(ctx, conn, r)
}

// imageBytes is what the images take.
func imageBytes(ctx context.Context, conn *client.Conn) (int64, error) {
	res, err := conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	var used int64
	for _, fs := range res.GetImageFilesystems() {
		used += int64(fs.GetUsedBytes().GetValue())
	}
	return used, err
}

func pullSilently(ctx context.Context, conn *client.Conn, r *runtimeapi.PullImageRequest) (string, error) {
	res, err := conn.Image.PullImage(ctx, r)
	return res.GetImageRef(), err
}

func (env *Env) progressOptions() progress.Options {
	return progress.Options{
		Out: env.Err, Terminal: env.ErrTerminal && env.getenv("TERM") != "dumb", Width: env.width(),
	}
}

// pullInLines shows pulls among the steps of pods. Those come from several
// pods at once, so that nothing can be drawn in place.
func (env *Env) pullInLines(conn *client.Conn) func(context.Context, string, *runtimeapi.AuthConfig, *runtimeapi.PodSandboxConfig) (string, error) {
	return func(ctx context.Context, image string, auth *runtimeapi.AuthConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
		r := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}, Auth: auth, SandboxConfig: pod}
		display := progress.Start(progress.Options{Out: lockedErr{env}})
		defer display.Close()
		return pullShowing(ctx, conn, r, display)
	}
}

// lockedErr is stderr for whole lines of parallel work.
type lockedErr struct{ env *Env }

func (w lockedErr) Write(line []byte) (int, error) {
	w.env.mu.Lock()
	defer w.env.mu.Unlock()
	return w.env.Err.Write(line)
}

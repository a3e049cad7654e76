package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// logPath is where the log of a container can be read: where CRI says, or
// where the runtime's own details say that the engine keeps it.
func logPath(ctx context.Context, conn *client.Conn, c *runtimeapi.Container) (string, error) {
	name := sourceOf(c).name()
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId(), Verbose: true})
	if err != nil {
		return "", about(name, err)
	}
	var details struct {
		LogPath string `json:"logPath"`
	}
	// Not every runtime gives details, or gives them as JSON.
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil {
		details.LogPath = ""
	}
	var tried []string
	for _, path := range []string{res.GetStatus().GetLogPath(), details.LogPath} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err == nil || errors.Is(err, fs.ErrPermission) {
			return path, nil
		}
		tried = append(tried, path)
	}
	switch {
	case c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		return "", withHint(fmt.Errorf("container %s has not started, so it has no log", name), "crishim start %s starts it", name)
	case len(tried) == 0:
		return "", withHint(fmt.Errorf("container %s keeps no log", name), "give its pod a log_directory and the container a log_path")
	}
	return "", withHint(fmt.Errorf("the log of container %s is not on this machine: %s", name, tried[0]), "run crishim on the node itself")
}

// untilEnd tells when a container will write no more.
func untilEnd(conn *client.Conn, id string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case isGone(err):
			return true, nil
		case err != nil:
			return false, err
		}
		return res.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, nil
	}
}

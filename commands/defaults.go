package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// ownLogs is where the logs of pods go whose configuration names no
// directory. A runtime without one keeps no logs. rmp takes a pod's away.
// Tests have another.
var ownLogs = "/var/log/crishim"

// completePod fills in what a pod needs and its author left out.
func completePod(pod *runtimeapi.PodSandboxConfig) {
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = "default"
	}
	if pod.Metadata.Uid == "" {
		pod.Metadata.Uid = newUID()
	}
}

// completeLogs names a log directory where the runtime needs one to keep logs
// and this user may make it. The embedded shim reads the engine's logs.
func completeLogs(pod *runtimeapi.PodSandboxConfig, embedded bool) error {
	if pod.LogDirectory != "" || embedded || os.Geteuid() != 0 {
		return nil
	}
	pod.LogDirectory = ownLogDirectory(pod.GetMetadata())
	if err := os.MkdirAll(pod.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	return nil
}

// ownLogDirectory is always a directory in ownLogs, and never that of a pod with
// other metadata by way of a slash: a runtime may list pods with any text as name
// and uid, and rmp removes this directory.
func ownLogDirectory(m *runtimeapi.PodSandboxMetadata) string {
	name := m.GetNamespace() + "_" + m.GetName() + "_" + m.GetUid()
	if len(name) > maxFileName || strings.ContainsAny(name, "/\x00") {
		name = fmt.Sprintf("pod-%x", sha256.Sum256([]byte(name)))
	}
	return filepath.Join(ownLogs, name)
}

// maxFileName is what Linux takes as the name of a file, in bytes.
const maxFileName = 255

// removeOwnLogs takes the log directory away that completeLogs made, if any.
func removeOwnLogs(m *runtimeapi.PodSandboxMetadata) error {
	if err := os.RemoveAll(ownLogDirectory(m)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	os.Remove(ownLogs) // goes only when it is empty
	return nil
}

// completeContainer names a log file where the pod has a place for it, and
// remembers how the user called its image, and those that it mounts.
func completeContainer(container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) {
	if container.LogPath == "" && pod.GetLogDirectory() != "" {
		container.LogPath = fmt.Sprintf("%s.%d.log", container.GetMetadata().GetName(), container.GetMetadata().GetAttempt())
	}
	images := []*runtimeapi.ImageSpec{container.Image}
	for _, mount := range container.Mounts {
		images = append(images, mount.GetImage())
	}
	for _, image := range images {
		if image != nil && image.UserSpecifiedImage == "" {
			image.UserSpecifiedImage = image.Image
		}
	}
}

// completeAttempt gives a container that is to be made in a pod the attempt
// after those of its name that have ended there. One that is yet to end keeps
// its number, so that the runtime refuses a second beside it.
func completeAttempt(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandbox, container *runtimeapi.ContainerConfig) error {
	made, err := conn.AttemptsOf(ctx, pod, container.GetMetadata().GetName())
	if err != nil {
		return err
	}
	for _, earlier := range made {
		attempt := earlier.GetMetadata().GetAttempt()
		if earlier.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			attempt++
		}
		container.Metadata.Attempt = max(container.Metadata.Attempt, attempt)
	}
	return nil
}

// newUID is a random UUID.
func newUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

package kuberuntime

import (
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/logfile"
)

// Limits of termination messages, the kubelet's.
const (
	maxMessage     = 4096
	maxPodMessages = 12 << 10
	maxLogMessage  = 2048
	maxLogLines    = 80
	cannotRunState = "ContainerCannotRun"
)

// terminationMessage is what a container left in its message file, or for one that failed
// the end of its log where its policy wants that. The runtime's own message comes first.
func terminationMessage(c *pod.ContainerStatus, runtimeMessage string) string {
	own := messageFile(c)
	fallback := c.Annotations[pod.MessagePolicyAnnotation] == string(v1.TerminationMessageFallbackToLogsOnError)
	if own == "" && fallback && c.ExitCode != 0 && c.Reason != cannotRunState {
		own = strings.Join(logfile.LastLines(c.LogPath, maxLogLines, maxLogMessage), "\n")
	}
	switch {
	case runtimeMessage == "":
		return own
	case own == "":
		return runtimeMessage
	}
	return runtimeMessage + ": " + own
}

// messageFile reads the file that is mounted at the container's message path.
func messageFile(c *pod.ContainerStatus) string {
	path := c.Annotations[pod.MessagePathAnnotation]
	if path == "" {
		return ""
	}
	for _, mount := range c.Mounts {
		if mount.GetContainerPath() != path || mount.GetHostPath() == "" {
			continue
		}
		f, err := bounded.Open(mount.GetHostPath())
		if err != nil {
			return "" // the pod's folder is gone, or on another host, or it is no file
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return ""
		}
		text, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-maxMessage, 0), maxMessage))
		if err != nil {
			return ""
		}
		return string(text)
	}
	return ""
}

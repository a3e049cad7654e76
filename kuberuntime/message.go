package kuberuntime

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/pod"
	v1 "k8s.io/api/core/v1"
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
		own = strings.Join(tailOf(c.LogPath, maxLogLines, maxLogMessage), "\n")
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
		text, err := readTail(f, maxMessage)
		if err != nil {
			return ""
		}
		return string(text)
	}
	return ""
}

// readTail reads the last n bytes of a file.
func readTail(f *os.File, n int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	start := max(info.Size()-n, 0)
	return io.ReadAll(io.NewSectionReader(f, start, n))
}

// tailOf is the end of a container's log file: whole lines, their text only.
func tailOf(path string, lines int, limit int) []string {
	if path == "" {
		return nil
	}
	f, err := bounded.OpenLog(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	// Each line has a prefix of about forty bytes in the file, a JSON line more.
	raw, err := readTail(f, int64(limit)+int64(lines)*128)
	if err != nil {
		return nil
	}
	var out []string
	size := 0
	all := bytes.Split(bytes.TrimRight(raw, "\n"), []byte("\n"))
	for i := len(all) - 1; i >= 0 && len(out) < lines; i-- {
		text, ok := logText(all[i])
		if !ok {
			continue // the first line may be cut
		}
		size += len(text) + 1
		if size > limit+1 && len(out) > 0 {
			break
		}
		out = append(out, text)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

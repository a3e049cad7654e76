package bundle

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
)

// names are namespace, pod and name of containers by their ids. Not every container has a kubelet's labels.
func (n *Node) names(ctx context.Context, conn *client.Conn) map[string][]string {
	pods, _ := n.podList(ctx, conn) // without it there are shorter names; its own part says why
	byID := map[string]*runtimeapi.PodSandboxMetadata{}
	for _, p := range pods {
		byID[p.GetId()] = p.GetMetadata()
	}
	containers, _ := n.containerList(ctx, conn)
	names := map[string][]string{}
	for _, c := range containers {
		pod := byID[c.GetPodSandboxId()]
		names[c.GetId()] = []string{pod.GetNamespace(), pod.GetName(), c.GetMetadata().GetName()}
	}
	return names
}

// isUnhealthy reports whether a container did not end well, was restarted, or does not start.
func (n *Node) isUnhealthy(s *runtimeapi.ContainerStatus) bool {
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return s.GetMetadata().GetAttempt() > 0
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return n.Now().Sub(time.Unix(0, s.GetCreatedAt())) > time.Minute
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return s.GetExitCode() != 0 || s.GetMetadata().GetAttempt() > 0
	}
	return true
}

func (n *Node) logs(ctx context.Context, conn *client.Conn, f *Files) error {
	statuses, err := n.statusList(ctx, conn)
	names := n.names(ctx, conn)
	for _, s := range statuses {
		c := s.GetStatus()
		if n.Logs != LogsAll && !n.isUnhealthy(c) || c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		name := fileName("logs", ".log", c.GetId(), append(slices.Clone(names[c.GetId()]), fmt.Sprint(c.GetMetadata().GetAttempt()))...)
		if text, failed := n.log(ctx, s); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		} else {
			f.Log(name, text)
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return err
}

// log returns the last lines of a container's log, each with its time.
func (n *Node) log(ctx context.Context, s *runtimeapi.ContainerStatusResponse) ([]byte, error) {
	var details struct {
		LogPath string `json:"logPath"`
	}
	path := s.GetStatus().GetLogPath()
	if json.Unmarshal([]byte(s.GetInfo()["info"]), &details) == nil {
		path = cmp.Or(path, details.LogPath) // of a container that has none in CRI, the engine's own
	}
	if path == "" {
		return nil, errors.New("the runtime names no log file")
	}
	var text bytes.Buffer
	begun := map[string]bool{} // lines that go on
	err := logfile.Read(ctx, path, logfile.Options{Tail: n.Tail}, func(e logfile.Entry) error {
		if !begun[e.Stream] {
			fmt.Fprintf(&text, "%s %s ", e.Time.UTC().Format(time.RFC3339Nano), e.Stream)
		}
		begun[e.Stream] = e.Partial()
		text.Write(e.Text)
		if text.Len() > 2*textBytes {
			text.Next(text.Len() - len(lastLines(text.Bytes(), textBytes)))
		}
		return nil
	})
	return text.Bytes(), err
}

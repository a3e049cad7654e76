package kuberuntime

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// errNoLog is returned for a container without a log file, for example with another log driver.
var errNoLog = errors.New("the container has no log file")

// GetContainerLogs copies a container's log, each stream to its writer. With o.Follow it continues while the container
// runs. GetContainerLogs sets o.Ended itself.
func (m *Manager) GetContainerLogs(ctx context.Context, containerID string, o logfile.Options, stdout, stderr io.Writer) error {
	of := &runtimeapi.ContainerStatusRequest{ContainerId: containerID}
	resp, err := m.runtime.ContainerStatus(ctx, of)
	if err != nil {
		return err
	}
	path := resp.GetStatus().GetLogPath()
	if path == "" {
		return fmt.Errorf("%s: %w", containerID, errNoLog)
	}
	o.Ended = func(ctx context.Context) (bool, error) {
		resp, err := m.runtime.ContainerStatus(ctx, of)
		return resp.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING, ignoreNotFound(err)
	}
	return logfile.Read(ctx, path, o, func(e logfile.Entry) error {
		to := stdout
		if e.Stream == logfile.Stderr {
			to = stderr
		}
		_, err := to.Write(e.Text)
		return err
	})
}

// LogPolicy sets the size at which a log is rotated and the number of its files, including the current file. A size of
// 0 disables rotation.
type LogPolicy struct {
	MaxSize  int64
	MaxFiles int
}

// DefaultLogPolicy is the kubelet's default.
func DefaultLogPolicy() LogPolicy { return LogPolicy{MaxSize: 10 << 20, MaxFiles: 5} }

// RotateLogs rotates the logs of running containers of pods from apply and sync, like the kubelet's
// containerLogManager. It skips symbolic links to the engine's own logs, which the engine rotates.
func (m *Manager) RotateLogs(ctx context.Context, policy LogPolicy) error {
	if policy.MaxSize <= 0 {
		return nil
	}
	list, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.GetContainers() {
		if size, err := logSize(m.o.Dirs, c); err != nil || size < policy.MaxSize {
			continue // most logs are small and need no further call
		}
		if _, err := m.Record(c.GetLabels()[kube.LabelPodUID]); err != nil {
			continue
		}
		if err := m.rotate(ctx, c.GetId(), policy); err != nil {
			errs = append(errs, fmt.Errorf("rotate the log of %s: %w", c.GetMetadata().GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func logSize(d pod.Dirs, c *runtimeapi.Container) (int64, error) {
	labels := c.GetLabels()
	directory := pod.LogDir(labels[kube.LabelPodNamespace], labels[kube.LabelPodName], labels[kube.LabelPodUID])
	info, err := os.Lstat(filepath.Join(d.Logs, directory, criconfig.LogPath(c.GetMetadata().GetName(), c.GetMetadata().GetAttempt())))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// rotationTime is the kubelet's time format in the names of rotated files.
const rotationTime = "20060102-150405"

func (m *Manager) rotate(ctx context.Context, id string, policy LogPolicy) error {
	resp, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ignoreNotFound(err)
	}
	path := resp.GetStatus().GetLogPath()
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (!info.Mode().IsRegular() || info.Size() < policy.MaxSize) {
		return nil
	}
	if err != nil {
		return err
	}
	rotated := path + "." + m.o.Now().UTC().Format(rotationTime)
	if _, err := os.Lstat(rotated); err == nil {
		return nil // already rotated in this second; the next check rotates again
	}
	if err := os.Rename(path, rotated); err != nil {
		return err
	}
	if _, err := m.runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return errors.Join(err, os.Rename(rotated, path)) // the runtime still writes to the renamed file
	}
	files, err := rotations(path)
	errs := []error{err}
	excess := max(len(files)-max(policy.MaxFiles-1, 0), 0)
	for i, file := range files {
		switch {
		case i < excess:
			errs = append(errs, os.Remove(file))
		case i < len(files)-1 && !strings.HasSuffix(file, ".gz"): // the newest is not compressed, as in the kubelet
			errs = append(errs, compress(file))
		}
	}
	return errors.Join(errs...)
}

// compress replaces a rotated log by its compressed form. The uncompressed file stays until compression is complete.
func compress(file string) error {
	from, err := bounded.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	temporary := file + temporarySuffix
	to, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(to)
	_, err = io.Copy(zipped, from)
	if err = errors.Join(err, zipped.Close(), to.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return errors.Join(os.Rename(temporary, file+".gz"), os.Remove(file))
}

// temporarySuffix is the kubelet's suffix of an incomplete compressed log.
const temporarySuffix = ".tmp"

// rotations lists the rotated files of a log, the oldest first: the names sort by time. If the compression of a file
// was interrupted, its incomplete compressed form is removed.
func rotations(path string) ([]string, error) {
	names, err := listDir(filepath.Dir(path))
	var out []string
	for _, name := range names {
		switch {
		case !strings.HasPrefix(name, filepath.Base(path)+"."):
		case strings.HasSuffix(name, temporarySuffix):
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(path), name)))
		default:
			out = append(out, filepath.Join(filepath.Dir(path), name))
		}
	}
	return out, err
}

package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/crifile"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

// SetPodDefaults sets missing metadata of a pod.
func SetPodDefaults(pod *runtimeapi.PodSandboxConfig) {
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = "default"
	}
	if pod.Metadata.Uid == "" {
		pod.Metadata.Uid = NewUID()
	}
}

// NewUID returns a random UUID.
func NewUID() string { return string(uuid.NewUUID()) }

// RunPod creates a pod, with a directory for its logs if the configuration has none.
func RunPod(ctx context.Context, conn *client.Conn, dirs pod.Dirs, pod *runtimeapi.PodSandboxConfig, handler string, opts ...grpc.CallOption) (id string, err error) {
	if ports := kuberuntime.HostPortsOf(pod.GetPortMappings()); len(ports) > 0 {
		o := kuberuntime.ConnOptions(conn)
		o.Dirs = dirs
		m, failed := kuberuntime.New(ctx, o)
		if failed != nil {
			return "", failed
		}
		defer m.Close()
		release, failed := m.TakeHostPorts(ctx, pod.GetMetadata().GetUid(), ports)
		if failed != nil {
			return "", failed
		}
		defer func() { err = Join(err, release()) }()
	}
	if err := completeCgroup(ctx, conn, pod, handler); err != nil {
		return "", err
	}
	given, before := pod.LogDirectory, ExistingOwnLogs(conn, pod.GetMetadata())
	if err := completeLogs(conn, pod); err != nil {
		return "", err
	}
	res, err := conn.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod, RuntimeHandler: handler}, opts...)
	if err != nil && given == "" && before == "" && pod.LogDirectory != "" { // an existing pod of that name keeps its logs
		err = Join(err, RemoveOwnLogs(conn, pod.GetMetadata()))
	}
	return res.GetPodSandboxId(), err
}

// completeCgroup sets the cgroup parent for containerd, which has no default for it.
func completeCgroup(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandboxConfig, handler string) error {
	if pod.GetLinux().GetCgroupParent() != "" || conn.Version.GetRuntimeName() != "containerd" {
		return nil
	}
	r, err := conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return err
	}
	if parent := criconfig.DefaultCgroupParent(r.GetInfo()["config"], handler); parent != "" {
		if pod.Linux == nil {
			pod.Linux = &runtimeapi.LinuxPodSandboxConfig{}
		}
		pod.Linux.CgroupParent = parent
	}
	return nil
}

// OwnLogs is the directory for the logs of pods whose configuration names no log directory. Without a log directory, a
// runtime keeps no logs. rmp removes the logs. Tests change OwnLogs.
var OwnLogs = "/var/log/crishim"

// completeLogs sets a log directory and creates it if the user is root. The embedded shim needs no log directory. For a
// remote runtime the directory would be on the wrong host.
func completeLogs(conn *client.Conn, pod *runtimeapi.PodSandboxConfig) error {
	if pod.LogDirectory != "" || conn.Embedded || conn.Remote() != "" || os.Geteuid() != 0 {
		return nil
	}
	pod.LogDirectory = ownLogDirectory(pod.GetMetadata())
	if err := os.MkdirAll(pod.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	return nil
}

// maxFileName is Linux's limit for the name of a file, in bytes.
const maxFileName = 255

// ownLogDirectory returns a directory in OwnLogs. A runtime may return any text as name and uid: a slash must not lead
// to the directory of another pod, which rmp would remove.
func ownLogDirectory(m *runtimeapi.PodSandboxMetadata) string {
	name := m.GetNamespace() + "_" + m.GetName() + "_" + m.GetUid()
	if len(name) > maxFileName || strings.ContainsAny(name, "/\x00") {
		name = fmt.Sprintf("pod-%x", sha256.Sum256([]byte(name)))
	}
	return filepath.Join(OwnLogs, name)
}

// ExistingOwnLogs returns the log directory that completeLogs created, or "".
func ExistingOwnLogs(conn *client.Conn, m *runtimeapi.PodSandboxMetadata) string {
	if own := ownLogDirectory(m); conn.Remote() == "" && IsDir(own) {
		return own
	}
	return ""
}

// RemoveOwnLogs removes a pod's log directory in OwnLogs, and OwnLogs if it is empty afterwards. A log directory that
// the pod's configuration names stays. For a remote runtime nothing is removed, because completeLogs creates nothing.
func RemoveOwnLogs(conn *client.Conn, m *runtimeapi.PodSandboxMetadata) error {
	if conn.Remote() != "" {
		return nil
	}
	if err := os.RemoveAll(ownLogDirectory(m)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	os.Remove(OwnLogs) // fails unless it is empty
	return nil
}

// CancelFlag returns --cancel-timeout.
func CancelFlag(to *time.Duration) urfave.Flag {
	return DurationFlag(to, "cancel-timeout", "Timeout of each request: 5, 5s, 1m", "T")
}

// CancelTimeout replaces the usual time limit of a request with --cancel-timeout.
func CancelTimeout(d time.Duration) grpc.CallOption { return client.Timeout(d, "--cancel-timeout") }

// DryRunFlag returns --dry-run of the verbs that send one request.
func DryRunFlag(to *bool) urfave.Flag {
	return BoolFlag(to, "dry-run", "Print the request instead of sending it")
}

// PrintRequest prints requests in the form of configuration files.
func PrintRequest(out io.Writer, requests ...proto.Message) error {
	for _, request := range requests {
		if err := output.Value(out, crifile.Encode(request), output.Options{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// readInput reads a file, or standard input for "-", and returns its name.
func readInput(stdin io.Reader, path string) (text []byte, name string, err error) {
	if path == "-" {
		if text, err = bounded.ReadAll(stdin, bounded.Config); err != nil {
			err = inputError{fmt.Errorf("read standard input: %w", err)}
		}
		return text, "standard input", err
	}
	text, err = bounded.ReadFile(path, bounded.Config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = inputError{fmt.Errorf("%s: no such file", path)}
	case err != nil:
		err = inputError{err}
	}
	return text, path, err
}

// ReadPodFile reads a pod's configuration.
func ReadPodFile(stdin io.Reader, path string) (*runtimeapi.PodSandboxConfig, error) {
	pod := &runtimeapi.PodSandboxConfig{}
	name, _, err := readMessage(stdin, path, pod)
	if err != nil {
		return nil, err
	}
	return pod, checkPod(name, pod)
}

// ReadContainerFile reads a container's configuration, and reports whether the file sets the attempt. In the message,
// an attempt of 0 and no attempt are equal.
func ReadContainerFile(stdin io.Reader, path string) (container *runtimeapi.ContainerConfig, attempt bool, err error) {
	container = &runtimeapi.ContainerConfig{}
	name, doc, err := readMessage(stdin, path, container)
	if err != nil {
		return nil, false, err
	}
	return container, doc.Has("metadata", "attempt"), checkContainer(name, container)
}

func readMessage(stdin io.Reader, path string, m proto.Message) (name string, doc crifile.Document, err error) {
	text, name, err := readInput(stdin, path)
	if err != nil {
		return name, doc, err
	}
	if docs, _ := crifile.Parse(name, text); slices.ContainsFunc(docs, func(d crifile.Document) bool { return d.Has("apiVersion") && d.Has("kind") }) {
		return name, doc, inputError{WithHint(fmt.Errorf("%s: is a Kubernetes manifest, not a configuration of the CRI", name), "`crishim apply %s` runs its pods", shellwords.Quote(path))}
	}
	if doc, err = crifile.ParseOne(name, text); err == nil {
		err = doc.Decode(m)
	}
	if err != nil {
		err = inputError{err}
	}
	return name, doc, err
}

// ReadContainerAndPodFile reads a container's and a pod's configuration from one file, in either order.
func ReadContainerAndPodFile(stdin io.Reader, path string) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	text, name, err := readInput(stdin, path)
	if err != nil {
		return nil, nil, err
	}
	docs, err := crifile.Parse(name, text)
	if err != nil {
		return nil, nil, inputError{err}
	}
	if len(docs) != 2 || docs[0].Has("image") == docs[1].Has("image") {
		return nil, nil, inputError{fmt.Errorf("%s: must be two documents, one of a pod and one of a container with its image", name)}
	}
	if docs[0].Has("image") {
		docs[0], docs[1] = docs[1], docs[0]
	}
	pod, container := &runtimeapi.PodSandboxConfig{}, &runtimeapi.ContainerConfig{}
	if err := errors.Join(docs[0].Decode(pod), docs[1].Decode(container)); err != nil {
		return nil, nil, inputError{err}
	}
	return container, pod, errors.Join(checkPod(name, pod), checkContainer(name, container))
}

func checkPod(name string, pod *runtimeapi.PodSandboxConfig) error {
	switch {
	case pod.GetMetadata() == nil:
		return inputError{WithHint(fmt.Errorf("%s: the pod has no metadata", name), `every pod needs metadata with a name: "metadata": {"name": "web"}`)}
	case pod.GetMetadata().GetName() == "":
		return inputError{fmt.Errorf("%s: the pod's metadata has no name", name)}
	}
	return nil
}

func checkContainer(name string, container *runtimeapi.ContainerConfig) error {
	switch {
	case container.GetMetadata().GetName() == "":
		return inputError{WithHint(fmt.Errorf("%s: the container's metadata has no name", name), `every container needs metadata with a name: "metadata": {"name": "web"}`)}
	case container.GetImage().GetImage() == "":
		return inputError{WithHint(fmt.Errorf("%s: the container has no image", name), `name one: "image": {"image": "busybox"}`)}
	}
	return nil
}

package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/crifile"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/output"
)

// readInput reads a file, or standard input for "-", and returns what to call it.
func (env *Env) readInput(path string) (text []byte, name string, err error) {
	if path == "-" {
		if text, err = bounded.ReadAll(env.In, bounded.Config); err != nil {
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

// readPodFile reads a pod's configuration.
func (env *Env) readPodFile(path string) (*runtimeapi.PodSandboxConfig, error) {
	pod := &runtimeapi.PodSandboxConfig{}
	name, _, err := env.readMessage(path, pod)
	if err != nil {
		return nil, err
	}
	return pod, checkPod(name, pod)
}

// readContainerFile reads a container's configuration, and reports whether it
// names the attempt: in the message none and the first are the same.
func (env *Env) readContainerFile(path string) (container *runtimeapi.ContainerConfig, attempt bool, err error) {
	container = &runtimeapi.ContainerConfig{}
	name, doc, err := env.readMessage(path, container)
	if err != nil {
		return nil, false, err
	}
	return container, doc.Has("metadata", "attempt"), checkContainer(name, container)
}

func (env *Env) readMessage(path string, m proto.Message) (name string, doc crifile.Document, err error) {
	text, name, err := env.readInput(path)
	if err != nil {
		return name, doc, err
	}
	if doc, err = crifile.ParseOne(name, text); err == nil {
		err = doc.Decode(m)
	}
	if err != nil {
		err = inputError{err}
	}
	return name, doc, err
}

// readBoth reads a container's and a pod's configuration from one file of two
// documents, in either order.
func (env *Env) readBoth(path string) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	text, name, err := env.readInput(path)
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
		return inputError{withHint(fmt.Errorf("%s: the pod has no metadata", name), `every pod needs metadata with a name: "metadata": {"name": "web"}`)}
	case pod.GetMetadata().GetName() == "":
		return inputError{fmt.Errorf("%s: the pod's metadata has no name", name)}
	}
	return nil
}

func checkContainer(name string, container *runtimeapi.ContainerConfig) error {
	switch {
	case container.GetMetadata().GetName() == "":
		return inputError{withHint(fmt.Errorf("%s: the container's metadata has no name", name), `every container needs metadata with a name: "metadata": {"name": "web"}`)}
	case container.GetImage().GetImage() == "":
		return inputError{withHint(fmt.Errorf("%s: the container has no image", name), `name one: "image": {"image": "busybox"}`)}
	}
	return nil
}

// completePod fills in what a pod needs and its author left out.
func completePod(pod *runtimeapi.PodSandboxConfig) {
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = "default"
	}
	if pod.Metadata.Uid == "" {
		pod.Metadata.Uid = newUID()
	}
}

// newUID returns a random UUID.
func newUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
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

// completeAttempt sets the attempt of a container that is to be made in a pod, the one
// after those of its name that have ended there. One that is yet to end keeps
// its number, so that the runtime refuses a second one.
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

// runPod makes a pod, with a directory for its logs if it has none.
func runPod(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	given := pod.LogDirectory
	if err := completeLogs(pod, conn.Embedded); err != nil {
		return "", err
	}
	res, err := conn.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: pod, RuntimeHandler: handler})
	if err != nil && given == "" && pod.LogDirectory != "" {
		err = join(err, removeOwnLogs(pod.GetMetadata()))
	}
	return res.GetPodSandboxId(), err
}

func createContainer(ctx context.Context, conn *client.Conn, podID string, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	completeContainer(container, pod)
	res, err := conn.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: container, SandboxConfig: pod})
	if isGone(err) {
		return "", withHint(err, "crishim pull %s gets the image, crishim create --with-pull does both", container.GetImage().GetImage())
	}
	return res.GetContainerId(), err
}

// removeByForce stops a container that runs and removes it; one that is gone
// already is as good as removed.
func removeByForce(ctx context.Context, conn *client.Conn, id string, running bool, grace time.Duration) error {
	if running {
		_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())})
		if unlessGone(err) != nil {
			return err
		}
	}
	_, err := conn.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return unlessGone(err)
}

// podConfigOf rebuilds the configuration of a pod that exists. Runtimes need
// it again for each container; containerd and CRI-O keep it in their own details.
func podConfigOf(ctx context.Context, conn *client.Conn, id string) (*runtimeapi.PodSandboxConfig, error) {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	var details struct {
		Config *runtimeapi.PodSandboxConfig `json:"config"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) == nil && details.Config.GetMetadata() != nil {
		return details.Config, nil
	}
	status := res.GetStatus()
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:    status.GetMetadata(),
		Labels:      status.GetLabels(),
		Annotations: status.GetAnnotations(),
	}
	if options := status.GetLinux().GetNamespaces().GetOptions(); options != nil {
		pod.Linux = &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		}
	}
	if own := ownLogDirectory(status.GetMetadata()); isDir(own) {
		pod.LogDirectory = own
	}
	return pod, nil
}

// ownLogs is where the logs of pods go whose configuration names no
// directory. A runtime without one keeps no logs. rmp takes a pod's away.
// Tests have another.
var ownLogs = "/var/log/crishim"

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

// maxFileName is what Linux takes as the name of a file, in bytes.
const maxFileName = 255

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

// removeOwnLogs takes the log directory away that completeLogs made, if any.
func removeOwnLogs(m *runtimeapi.PodSandboxMetadata) error {
	if err := os.RemoveAll(ownLogDirectory(m)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	os.Remove(ownLogs) // goes only when it is empty
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// cancelFlag is --cancel-timeout of the verbs that make things.
func cancelFlag(to *time.Duration) cli.Flag {
	return durationFlag(to, "cancel-timeout", "timeout of each request: 5, 5s, 1m", "T")
}

// limited puts --cancel-timeout in the place of the usual limit.
func limited(ctx context.Context, d time.Duration) context.Context {
	if d <= 0 {
		return ctx
	}
	return client.WithTimeout(ctx, d, "--cancel-timeout")
}

func dryRunFlag(to *bool) cli.Flag {
	return boolFlag(to, "dry-run", "print the request instead of sending it")
}

// printRequest shows what would be sent, in a form that can be fed back.
func printRequest(env *Env, requests ...proto.Message) error {
	for _, request := range requests {
		if err := output.Value(env.Out, crifile.Encode(request), output.Options{}, nil); err != nil {
			return err
		}
	}
	return nil
}

// newSchema prints the JSON schema of a configuration file. One kind has no
// flags to choose between; "container" offers both, as crictl does.
func newSchema(env *Env, verb, kind string) *cli.Command {
	var pod, container bool
	c := &cli.Command{
		Name:        "jsonschema",
		Aliases:     []string{"js"},
		Usage:       "print the JSON schema of the configuration",
		Description: describe("The schema that editors check such a file with.", "crishim "+verb+" jsonschema"),
		Action: env.offline(func(_ *Env, c *cli.Context) error {
			if pod && container {
				return usagef("--pod-config and --container-config: choose one")
			}
			return argCount(c, 0, 0)
		}, func(_ context.Context, env *Env) error {
			var m protoreflect.ProtoMessage = &runtimeapi.ContainerConfig{}
			if kind == "pod" || pod {
				m = &runtimeapi.PodSandboxConfig{}
			}
			return output.Value(env.Out, crifile.Schema(m.ProtoReflect().Descriptor()), output.Options{}, nil)
		}),
	}
	if kind == "container" {
		c.Flags = []cli.Flag{
			boolFlag(&pod, "pod-config", "the pod's configuration", "p"),
			boolFlag(&container, "container-config", "the container's configuration (default)", "c"),
		}
	}
	return c
}

package commands

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
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
	"github.com/crishim/crishim/output"
)

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

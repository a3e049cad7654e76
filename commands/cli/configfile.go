package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli/crifile"
	"github.com/crishim/crishim/internal/bounded"
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

// ReadPodFile reads a pod's configuration.
func (env *Env) ReadPodFile(path string) (*runtimeapi.PodSandboxConfig, error) {
	pod := &runtimeapi.PodSandboxConfig{}
	name, _, err := env.readMessage(path, pod)
	if err != nil {
		return nil, err
	}
	return pod, checkPod(name, pod)
}

// ReadContainerFile reads a container's configuration, and reports whether it
// names the attempt: in the message none and the first are the same.
func (env *Env) ReadContainerFile(path string) (container *runtimeapi.ContainerConfig, attempt bool, err error) {
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

// ReadBoth reads a container's and a pod's configuration from one file of two
// documents, in either order.
func (env *Env) ReadBoth(path string) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
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

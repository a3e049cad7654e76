// Package state keeps what the shim must remember about pods and containers
// in engine labels, and reads it back.
//
// Labels are the only durable state of the shim, and what dockershim's checkpoint manager
// kept in files. The keys are those of
// dockershim and cri-dockerd, so each of the three sees the pods of the others.
// What those two keep in the container's name (metadata) crishim keeps in
// labels of its own as well, because a name cannot carry every character;
// the name is read only where these labels are missing.
package state

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/internal/kube"
)

// Keys that dockershim and cri-dockerd write too.
const (
	LabelType      = "io.kubernetes.docker.type"
	LabelLogPath   = "io.kubernetes.container.logpath"
	LabelSandboxID = "io.kubernetes.sandbox.id"
)

// Values of LabelType.
const (
	TypeSandbox   = "podsandbox"
	TypeContainer = "container"
)

// Keys that only crishim writes; all start with ownPrefix.
const (
	LabelOwnName      = ownPrefix + "name"
	LabelOwnPod       = ownPrefix + "pod"
	LabelOwnNamespace = ownPrefix + "namespace"
	LabelOwnUID       = ownPrefix + "uid"
	LabelOwnAttempt   = ownPrefix + "attempt"
	LabelOwnCreated   = ownPrefix + "created"
	LabelOwnPorts     = ownPrefix + "ports"
	LabelOwnHandler   = ownPrefix + "runtime-handler"
	LabelOwnImage     = ownPrefix + "image"
	LabelOwnNetwork   = ownPrefix + "network"
	LabelOwnMounts    = ownPrefix + "image-mounts"    // mounts that the engine does not report as such
	LabelOwnLimits    = ownPrefix + "resource-limits" // limits that the engine has no field for
	LabelOwnPID       = ownPrefix + "pid"
	LabelOwnLogDir    = ownPrefix + "log-directory"
	LabelOwner        = ownPrefix + "owner" // the process that a helper or a temporary container must not outlive

	// LabelOwnSandbox has the sandbox's id a second time, on what crishim made: no image can
	// have foreseen it.
	LabelOwnSandbox = ownPrefix + "sandbox-id"
	// LabelOwnImageLabels has the keys of the labels that came with the image.
	LabelOwnImageLabels = ownPrefix + "image-labels"
)

const (
	ownPrefix        = "io.crishim."
	escapedPrefix    = ownPrefix + "label."
	annotationPrefix = "annotation."
	sandboxMarker    = "POD"
)

// EncodeLabels joins CRI labels and annotations into one set of engine labels.
// A CRI label whose key would be read back as something else is escaped.
func EncodeLabels(labels, annotations map[string]string) map[string]string {
	out := make(map[string]string, len(labels)+len(annotations))
	for k, v := range labels {
		out[EncodeLabelKey(k)] = v
	}
	for k, v := range annotations {
		out[annotationPrefix+k] = v
	}
	return out
}

// EncodeLabelKey returns the engine's key for a CRI label key.
func EncodeLabelKey(key string) string {
	if reserved(key) {
		return escapedPrefix + key
	}
	return key
}

// DecodeLabels splits engine labels into CRI labels and annotations and drops
// what is the shim's own.
func DecodeLabels(engine map[string]string) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	for k, v := range engine {
		switch {
		case strings.HasPrefix(k, escapedPrefix):
			labels[strings.TrimPrefix(k, escapedPrefix)] = v
		case strings.HasPrefix(k, annotationPrefix):
			annotations[strings.TrimPrefix(k, annotationPrefix)] = v
		case k == kube.LabelContainerName && engine[LabelType] == TypeSandbox:
		case reserved(k):
		default:
			labels[k] = v
		}
	}
	return labels, annotations
}

// encodeImageLabels returns the keys that the engine will copy from an image to a container
// with these labels. An image is made by anybody: none of its labels is for the shim, nor the
// CRI's.
func encodeImageLabels(labels, image map[string]string) string {
	var keys []string
	for key := range image {
		if _, ours := labels[key]; !ours {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	slices.Sort(keys)
	b, _ := json.Marshal(keys) // strings always can be
	return string(b)
}

// withoutImageLabels returns the labels that were asked for.
func withoutImageLabels(engine map[string]string) map[string]string {
	var keys []string
	if text := engine[LabelOwnImageLabels]; text == "" || json.Unmarshal([]byte(text), &keys) != nil {
		return engine
	}
	labels := maps.Clone(engine)
	for _, key := range keys {
		delete(labels, key)
	}
	return labels
}

// WithoutImageAnnotations returns the annotations of a container of another shim without those that its image has
// as labels: kubelets run the hooks that they find there.
func WithoutImageAnnotations(annotations, image map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, value string) bool {
		theirs, ok := image[annotationPrefix+key]
		return ok && theirs == value
	})
	return kept
}

// ImageLabels returns the labels of an image, which the engine adds to each container's.
func ImageLabels(i image.InspectResponse) map[string]string {
	if i.Config == nil {
		return nil
	}
	return i.Config.Labels
}

// MatchLabels reports whether labels hold every pair of the selector.
func MatchLabels(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func reserved(key string) bool {
	switch key {
	case LabelType, LabelLogPath, LabelSandboxID:
		return true
	}
	return strings.HasPrefix(key, ownPrefix) || strings.HasPrefix(key, annotationPrefix)
}

// ImageMount is an image that is mounted into a container. It is kept in a label,
// because the engine reports it as a volume, or in a form that has lost what was
// asked for.
type ImageMount struct {
	Path    string `json:"path"`
	Image   string `json:"image"`
	ID      string `json:"id"`
	SubPath string `json:"sub_path,omitempty"`
}

// EncodeImageMounts returns the value of LabelOwnMounts.
func EncodeImageMounts(mounts []ImageMount) string {
	if len(mounts) == 0 {
		return ""
	}
	b, _ := json.Marshal(mounts) // strings always can be
	return string(b)
}

// decodeImageMounts reads a container's image mounts. A damaged label hides the mounts,
// not the container.
func decodeImageMounts(label string) []ImageMount {
	var noted []ImageMount
	if label == "" || json.Unmarshal([]byte(label), &noted) != nil {
		return nil
	}
	return noted
}

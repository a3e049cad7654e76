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

	// LabelOwnSandbox repeats the sandbox's id: no image can have foreseen it.
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

// EncodeLabels joins CRI labels, escaped if they would be read back as something else, and annotations.
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

func EncodeLabelKey(key string) string {
	if reserved(key) {
		return escapedPrefix + key
	}
	return key
}

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

// encodeImageLabels returns the keys that the engine will copy from the image: none is for the shim, nor the CRI's.
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

// WithoutImageAnnotations is for other shims' containers: kubelets run the hooks that they find in annotations.
func WithoutImageAnnotations(annotations, image map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, value string) bool {
		theirs, ok := image[annotationPrefix+key]
		return ok && theirs == value
	})
	return kept
}

func ImageLabels(i image.InspectResponse) map[string]string {
	if i.Config == nil {
		return nil
	}
	return i.Config.Labels
}

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

// ImageMount is kept in a label, because the engine reports it as a volume, or has lost what was asked for.
type ImageMount struct {
	Path    string `json:"path"`
	Image   string `json:"image"`
	ID      string `json:"id"`
	SubPath string `json:"sub_path,omitempty"`
}

func EncodeImageMounts(mounts []ImageMount) string {
	if len(mounts) == 0 {
		return ""
	}
	b, _ := json.Marshal(mounts) // strings always can be
	return string(b)
}

// decodeImageMounts: a damaged label hides the mounts, not the container.
func decodeImageMounts(label string) []ImageMount {
	var noted []ImageMount
	if label == "" || json.Unmarshal([]byte(label), &noted) != nil {
		return nil
	}
	return noted
}

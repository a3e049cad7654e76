// Package state stores data about pods and containers in engine labels and reads it back.
//
// Labels are the only durable state of pods and containers; package cni keeps the state of their network. dockershim kept
// part of it in files. The keys are those of dockershim and cri-dockerd, so each of the three sees the pods of the others.
// The others encode the metadata in the container's name, which cannot contain all characters. crishim also stores it in
// labels and parses the name only if these are missing.
package state

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/internal/kube"
)

// Keys that dockershim and cri-dockerd also use.
const (
	LabelType      = "io.kubernetes.docker.type"
	LabelLogPath   = "io.kubernetes.container.logpath"
	LabelSandboxID = "io.kubernetes.sandbox.id"
)

const (
	TypeSandbox   = "podsandbox"
	TypeContainer = "container"
)

// Keys that only crishim uses. All start with ownPrefix.
const (
	LabelOwnName      = ownPrefix + "name"
	labelOwnPod       = ownPrefix + "pod"
	labelOwnNamespace = ownPrefix + "namespace"
	labelOwnUID       = ownPrefix + "uid"
	labelOwnAttempt   = ownPrefix + "attempt"
	labelOwnCreated   = ownPrefix + "created"
	labelOwnPorts     = ownPrefix + "ports"
	labelOwnHandler   = ownPrefix + "runtime-handler"
	labelOwnImage     = ownPrefix + "image"
	labelOwnNetwork   = ownPrefix + "network"
	LabelOwnMounts    = ownPrefix + "image-mounts"    // mounts that the engine does not report as image mounts
	LabelOwnLimits    = ownPrefix + "resource-limits" // limits that the engine has no field for
	labelOwnPID       = ownPrefix + "pid"
	labelOwnLogDir    = ownPrefix + "log-directory"
	// LabelOwner identifies the process that a temporary container must not outlive. Helper containers, which exist
	// while files of an image are read, have it too.
	LabelOwner = ownPrefix + "owner"

	// labelOwnSandbox repeats the sandbox's id. An image cannot contain it, because it is not known in advance.
	labelOwnSandbox = ownPrefix + "sandbox-id"
	// labelOwnImageLabels lists the keys of labels that came from the image.
	labelOwnImageLabels = ownPrefix + "image-labels"
)

const (
	ownPrefix        = "io.crishim."
	escapedPrefix    = ownPrefix + "label."
	annotationPrefix = "annotation."
	sandboxMarker    = "POD"
)

// encodeLabels merges CRI labels and annotations. Label keys are escaped if they could be decoded as something else.
func encodeLabels(labels, annotations map[string]string) map[string]string {
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

func decodeLabels(engine map[string]string) (labels, annotations map[string]string) {
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

// encodeImageLabels lists the label keys that the engine will copy from the image. They belong neither to the shim nor
// to CRI.
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
	b, _ := json.Marshal(keys) // cannot fail for strings
	return string(b)
}

func withoutImageLabels(engine map[string]string) map[string]string {
	var keys []string
	if text := engine[labelOwnImageLabels]; text == "" || json.Unmarshal([]byte(text), &keys) != nil {
		return engine
	}
	labels := maps.Clone(engine)
	for _, key := range keys {
		delete(labels, key)
	}
	return labels
}

// WithoutImageAnnotations removes annotations that another shim's container has from its image, because kubelets run
// the lifecycle hooks in annotations.
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

// ImageMount is stored in a label, because the engine reports the mount as a volume or without the requested reference.
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
	b, _ := json.Marshal(mounts) // cannot fail for strings
	return string(b)
}

// decodeImageMounts ignores a damaged label. The container is then shown without image mounts.
func decodeImageMounts(label string) []ImageMount {
	var noted []ImageMount
	if label == "" || json.Unmarshal([]byte(label), &noted) != nil {
		return nil
	}
	return noted
}

package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ContainerHash is what a running container is compared by: name and image, nothing else,
// so that only a new image restarts it.
func ContainerHash(c *v1.Container) uint64 {
	data, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil { // two strings always marshal
		panic(err)
	}
	h := fnv.New32a()
	h.Write(data)
	return uint64(h.Sum32())
}

// FormatHash is the form of the annotation.
func FormatHash(h uint64) string { return strconv.FormatUint(h, 16) }

// ParseHash reads the annotation.
func ParseHash(s string) (uint64, error) { return strconv.ParseUint(s, 16, 64) }

// UID derives a pod's uid from its manifest without the images: a new image restarts a
// container in the same pod, any other change is another pod, as an API server has it.
// The uid in the manifest, if there is one, tells pods of one name apart too.
func UID(p *v1.Pod) (types.UID, error) {
	stripped := p.DeepCopy()
	for i := range stripped.Spec.InitContainers {
		stripped.Spec.InitContainers[i].Image = ""
		stripped.Spec.InitContainers[i].ImagePullPolicy = ""
	}
	for i := range stripped.Spec.Containers {
		stripped.Spec.Containers[i].Image = ""
		stripped.Spec.Containers[i].ImagePullPolicy = ""
	}
	stripped.Spec.EphemeralContainers = nil // they join a running pod
	for key := range stripped.Annotations {
		switch key { // the pod runtime sets them by itself
		case ConfigHashAnnotation, ConfigSeenAnnotation, ConfigSourceAnnotation, ConfigMirrorAnnotation, FolderAnnotation:
			delete(stripped.Annotations, key)
		}
	}
	data, err := json.Marshal(struct {
		Namespace, Name, UID string
		Labels, Annotations  map[string]string
		Spec                 v1.PodSpec
	}{p.Namespace, p.Name, string(p.UID), stripped.Labels, stripped.Annotations, stripped.Spec})
	if err != nil {
		return "", fmt.Errorf("hash pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	sum := sha256.Sum256(data)
	h := hex.EncodeToString(sum[:16])
	return types.UID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), nil
}

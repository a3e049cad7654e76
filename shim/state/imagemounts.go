package state

import "encoding/json"

// ImageMount is an image that is mounted into a container. It is kept in a label,
// because the engine reports it as a volume, or in a form that has lost what was
// asked for.
type ImageMount struct {
	Path    string `json:"path"`
	Image   string `json:"image"`
	ID      string `json:"id"`
	SubPath string `json:"sub_path,omitempty"`
}

// ImageMounts reads a container's image mounts. A damaged label hides the mounts,
// not the container.
func ImageMounts(labels map[string]string) []ImageMount {
	var noted []ImageMount
	if json.Unmarshal([]byte(labels[LabelOwnMounts]), &noted) != nil {
		return nil
	}
	return noted
}

// MountedImages are the ids of the images that a container has mounted.
func MountedImages(labels map[string]string) []string {
	var ids []string
	for _, m := range ImageMounts(labels) {
		ids = append(ids, m.ID)
	}
	return ids
}

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// file is one file of a volume.
type file struct {
	data []byte
	mode fs.FileMode // 0 means the volume's default
}

type files map[string]file

// payload collects the files of a volume that carries data.
func (m *Maker) payload(p *v1.Pod, v *v1.Volume, set *manifest.Set) (out files, mode fs.FileMode, err error) {
	// A volume of one kind is a projected one with one source.
	var sources []v1.VolumeProjection
	var defaultMode *int32
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		sources, defaultMode = []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}}}, s.DefaultMode
	case v.Secret != nil:
		s := v.Secret
		sources, defaultMode = []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: s.SecretName}, Items: s.Items, Optional: s.Optional}}}, s.DefaultMode
	case v.DownwardAPI != nil:
		sources, defaultMode = []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}, v.DownwardAPI.DefaultMode
	case v.Projected != nil:
		sources, defaultMode = v.Projected.Sources, v.Projected.DefaultMode
	default:
		return nil, 0, errors.New("its source is not supported")
	}
	out = files{}
	for _, s := range sources {
		switch {
		case s.ConfigMap != nil:
			err = out.configMap(p.Namespace, s.ConfigMap, set)
		case s.Secret != nil:
			err = out.secret(p.Namespace, s.Secret, set)
		case s.DownwardAPI != nil:
			err = m.downward(out, p, s.DownwardAPI.Items)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return out, perm(defaultMode), nil
}

func (f files) configMap(namespace string, s *v1.ConfigMapProjection, set *manifest.Set) error {
	optional := ptr.Deref(s.Optional, false)
	cm, err := set.ConfigMap(namespace, s.Name, optional)
	if cm == nil {
		return err
	}
	data := maps.Clone(cm.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	return f.add(data, s.Items, optional)
}

func (f files) secret(namespace string, s *v1.SecretProjection, set *manifest.Set) error {
	optional := ptr.Deref(s.Optional, false)
	secret, err := set.Secret(namespace, s.Name, optional)
	if secret == nil {
		return err
	}
	return f.add(secret.Data, s.Items, optional)
}

// add takes all keys, or those of items under the paths they say.
func (f files) add(data map[string][]byte, items []v1.KeyToPath, optional bool) error {
	if len(items) == 0 {
		for key, content := range data {
			f[key] = file{data: content}
		}
		return nil
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("no key %s", item.Key)
		}
		f[path.Clean(item.Path)] = file{data: content, mode: perm(item.Mode)}
	}
	return nil
}

func (m *Maker) downward(out files, p *v1.Pod, items []v1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		text, err := m.downwardValue(p, item)
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		out[path.Clean(item.Path)] = file{data: []byte(text), mode: perm(item.Mode)}
	}
	return nil
}

func (m *Maker) downwardValue(p *v1.Pod, item v1.DownwardAPIVolumeFile) (string, error) {
	if item.FieldRef != nil {
		return criconfig.Field(p, m.Host, nil, item.FieldRef.FieldPath)
	}
	c := manifest.Container(p, item.ResourceFieldRef.ContainerName)
	if c == nil {
		return "", fmt.Errorf("no container %s", item.ResourceFieldRef.ContainerName)
	}
	return criconfig.Resource(c, m.Host, item.ResourceFieldRef)
}

func perm(mode *int32) fs.FileMode { return fs.FileMode(ptr.Deref(mode, 0)).Perm() }

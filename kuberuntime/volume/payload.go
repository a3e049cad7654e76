package volume

import (
	"fmt"
	"io/fs"
	"path"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	v1 "k8s.io/api/core/v1"
)

// file is one file of a volume.
type file struct {
	data []byte
	mode fs.FileMode // 0 means the volume's default
}

type files map[string]file

// payload collects the files of a volume that carries data.
func (m *Maker) payload(p *v1.Pod, v *v1.Volume, set *manifest.Set) (kind string, out files, mode fs.FileMode, err error) {
	out = files{}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return "configmap", out, perm(s.DefaultMode), out.configMap(p, s.Name, s.Items, isTrue(s.Optional), set)
	case v.Secret != nil:
		s := v.Secret
		return "secret", out, perm(s.DefaultMode), out.secret(p, s.SecretName, s.Items, isTrue(s.Optional), set)
	case v.DownwardAPI != nil:
		return "downward-api", out, perm(v.DownwardAPI.DefaultMode), m.downward(out, p, v.DownwardAPI.Items)
	case v.Projected != nil:
		return "projected", out, perm(v.Projected.DefaultMode), m.projected(out, p, v.Projected, set)
	}
	return "", nil, 0, fmt.Errorf("its source is not supported")
}

func (m *Maker) projected(out files, p *v1.Pod, v *v1.ProjectedVolumeSource, set *manifest.Set) error {
	for _, s := range v.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = out.configMap(p, s.ConfigMap.Name, s.ConfigMap.Items, isTrue(s.ConfigMap.Optional), set)
		case s.Secret != nil:
			err = out.secret(p, s.Secret.Name, s.Secret.Items, isTrue(s.Secret.Optional), set)
		case s.DownwardAPI != nil:
			err = m.downward(out, p, s.DownwardAPI.Items)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f files) configMap(p *v1.Pod, name string, items []v1.KeyToPath, optional bool, set *manifest.Set) error {
	cm := set.ConfigMaps[p.Namespace+"/"+name]
	if cm == nil {
		return missing("ConfigMap", p.Namespace, name, optional)
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return f.add(data, items, optional)
}

func (f files) secret(p *v1.Pod, name string, items []v1.KeyToPath, optional bool, set *manifest.Set) error {
	secret := set.Secrets[p.Namespace+"/"+name]
	if secret == nil {
		return missing("Secret", p.Namespace, name, optional)
	}
	return f.add(secret.Data, items, optional)
}

func missing(kind, namespace, name string, optional bool) error {
	if optional {
		return nil
	}
	return fmt.Errorf("%s %s/%s not found", kind, namespace, name)
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
	for _, c := range manifest.Containers(p) {
		if c.Name == item.ResourceFieldRef.ContainerName {
			return criconfig.Resource(c, m.Host, item.ResourceFieldRef)
		}
	}
	return "", fmt.Errorf("no container %s", item.ResourceFieldRef.ContainerName)
}

func perm(mode *int32) fs.FileMode {
	if mode == nil {
		return 0
	}
	return fs.FileMode(*mode).Perm()
}

func isTrue(b *bool) bool { return b != nil && *b }

package manifest

import (
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func (v *validator) volumes(list *field.Path) {
	seen := map[string]bool{}
	for i := range v.pod.Spec.Volumes {
		volume, at := &v.pod.Spec.Volumes[i], list.Index(i)
		if v.required(at.Child("name"), volume.Name) {
			v.text(at.Child("name"), volume.Name, validation.IsDNS1123Label)
			v.unique(at.Child("name"), seen, volume.Name)
		}
		for source, value := range reflect.ValueOf(volume.VolumeSource).Fields() {
			name, _, _ := strings.Cut(source.Tag.Get("json"), ",")
			v.refuse(!localVolumes[name] && !value.IsNil(), at.Child(name), "needs a volume plugin")
		}
		if n := pointers(volume.VolumeSource); n > 1 {
			v.invalid(at, volume.Name, "must have one source, has %d", n)
			continue
		}
		v.volumeSource(volume, at)
	}
}

// localVolumes are the volume sources that this host can provide.
var localVolumes = map[string]bool{
	"hostPath": true, "emptyDir": true, "configMap": true, "secret": true,
	"projected": true, "downwardAPI": true, "image": true, "persistentVolumeClaim": true,
}

func (v *validator) volumeSource(volume *v1.Volume, at *field.Path) {
	switch {
	case volume.HostPath != nil:
		h, at := volume.HostPath, at.Child("hostPath")
		if v.required(at.Child("path"), h.Path) && !filepath.IsAbs(h.Path) {
			v.invalid(at.Child("path"), h.Path, "must be absolute")
		}
		if slices.Contains(strings.Split(h.Path, "/"), "..") {
			v.invalid(at.Child("path"), h.Path, "must not contain '..'")
		}
		oneOf(v, at.Child("type"), *h.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate, v1.HostPathDirectory, v1.HostPathFileOrCreate,
			v1.HostPathFile, v1.HostPathSocket, v1.HostPathCharDev, v1.HostPathBlockDev)
	case volume.EmptyDir != nil:
		e, at := volume.EmptyDir, at.Child("emptyDir")
		oneOf(v, at.Child("medium"), e.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory)
		if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
			v.invalid(at.Child("sizeLimit"), e.SizeLimit.String(), "must not be negative")
		}
		v.refuse(e.Mode != nil, at.Child("mode"), "is not supported")
	case volume.ConfigMap != nil:
		s := volume.ConfigMap
		v.files(at.Child("configMap"), s.DefaultMode, s.DefaultUser)
		v.items(s.Items, at.Child("configMap", "items"), s.Optional, v.keys(at.Child("configMap", "name"), "ConfigMap", s.Name, s.Optional))
	case volume.Secret != nil:
		s := volume.Secret
		v.files(at.Child("secret"), s.DefaultMode, s.DefaultUser)
		v.items(s.Items, at.Child("secret", "items"), s.Optional, v.keys(at.Child("secret", "secretName"), "Secret", s.SecretName, s.Optional))
	case volume.DownwardAPI != nil:
		v.files(at.Child("downwardAPI"), volume.DownwardAPI.DefaultMode, volume.DownwardAPI.DefaultUser)
		v.downward(volume.DownwardAPI.Items, at.Child("downwardAPI", "items"))
	case volume.Projected != nil:
		v.files(at.Child("projected"), volume.Projected.DefaultMode, volume.Projected.DefaultUser)
		mounted := slices.ContainsFunc(Containers(v.pod), func(c *v1.Container) bool {
			return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume.Name })
		})
		v.projected(volume.Projected, at.Child("projected", "sources"), mounted)
	case volume.PersistentVolumeClaim != nil:
		name, at := volume.PersistentVolumeClaim.ClaimName, at.Child("persistentVolumeClaim", "claimName")
		if v.required(at, name) {
			v.text(at, name, validation.IsDNS1123Subdomain) // the name becomes a directory
			if id := key(v.pod.Namespace, name); !v.set.claims[id] && !v.set.options.AnyClaim {
				v.invalid(at, name, "PersistentVolumeClaim %s is not in the input, and there is no --volume-dir", id)
			}
		}
	case volume.Image != nil:
		v.image(at.Child("image", "reference"), volume.Image.Reference)
		oneOf(v, at.Child("image", "pullPolicy"), volume.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
}

func (v *validator) files(at *field.Path, mode *int32, user *int64) {
	v.mode(at.Child("defaultMode"), mode)
	v.refuse(user != nil, at.Child("defaultUser"), "is not supported")
}

func (v *validator) projected(p *v1.ProjectedVolumeSource, list *field.Path, mounted bool) {
	seen := map[string]bool{}
	unique := func(at *field.Path, name string) {
		if name != "" {
			v.unique(at.Child("path"), seen, path.Clean(name))
		}
	}
	keys := func(at *field.Path, kind, name string, items []v1.KeyToPath, optional *bool) {
		for i := range items {
			unique(at.Child("items").Index(i), items[i].Path)
		}
		v.items(items, at.Child("items"), optional, v.keys(at.Child("name"), kind, name, optional))
	}
	for i, s := range p.Sources {
		at := list.Index(i)
		v.refuse(mounted && s.ServiceAccountToken != nil, at.Child("serviceAccountToken"), "needs an API server")
		v.refuse(s.ClusterTrustBundle != nil, at.Child("clusterTrustBundle"), "needs an API server")
		v.refuse(s.PodCertificate != nil, at.Child("podCertificate"), "needs an API server")
		if n := pointers(s); n != 1 {
			v.invalid(at, "", "must have one source, has %d", n)
			continue
		}
		switch {
		case s.ConfigMap != nil:
			keys(at.Child("configMap"), "ConfigMap", s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
		case s.Secret != nil:
			keys(at.Child("secret"), "Secret", s.Secret.Name, s.Secret.Items, s.Secret.Optional)
		case s.DownwardAPI != nil:
			items := at.Child("downwardAPI", "items")
			for j := range s.DownwardAPI.Items {
				unique(items.Index(j), s.DownwardAPI.Items[j].Path)
			}
			v.downward(s.DownwardAPI.Items, items)
		}
	}
}

// keys returns the keys of a ConfigMap or Secret, or nil if the object is missing. A key's value reports whether
// variables can use the key: keys of binaryData are for volumes only.
func (v *validator) keys(at *field.Path, kind, name string, optional *bool) map[string]bool {
	if !v.required(at, name) {
		return nil
	}
	keys := map[string]bool{}
	id := key(v.pod.Namespace, name)
	if cm := v.set.ConfigMaps[id]; kind == "ConfigMap" && cm != nil {
		for k := range cm.BinaryData {
			keys[k] = false
		}
		for k := range cm.Data {
			keys[k] = true
		}
		return keys
	}
	if secret := v.set.Secrets[id]; kind == "Secret" && secret != nil {
		for k := range secret.Data {
			keys[k] = true
		}
		return keys
	}
	if !ptr.Deref(optional, false) {
		v.invalid(at, name, "%s %s is not in the input", kind, id)
	}
	return nil
}

func (v *validator) items(items []v1.KeyToPath, list *field.Path, optional *bool, keys map[string]bool) {
	if keys == nil {
		return
	}
	for i, item := range items {
		at := list.Index(i)
		if _, found := keys[item.Key]; v.required(at.Child("key"), item.Key) && !found && !ptr.Deref(optional, false) {
			v.invalid(at.Child("key"), item.Key, "there is no such key")
		}
		v.localPath(at.Child("path"), item.Path)
		v.mode(at.Child("mode"), item.Mode)
		v.refuse(item.User != nil, at.Child("user"), "is not supported")
	}
}

func (v *validator) downward(items []v1.DownwardAPIVolumeFile, list *field.Path) {
	for i, item := range items {
		at := list.Index(i)
		v.localPath(at.Child("path"), item.Path)
		v.mode(at.Child("mode"), item.Mode)
		v.refuse(item.User != nil, at.Child("user"), "is not supported")
		switch {
		case (item.FieldRef == nil) == (item.ResourceFieldRef == nil):
			v.invalid(at, item.Path, "must have one of fieldRef and resourceFieldRef")
		case item.FieldRef != nil:
			if !isMetadataField(item.FieldRef.FieldPath, true) {
				v.invalid(at.Child("fieldRef", "fieldPath"), item.FieldRef.FieldPath, "must be a field that a volume can have")
			}
		default:
			v.resourceField(at.Child("resourceFieldRef"), item.ResourceFieldRef, true)
		}
	}
}

// localPath checks that a path stays inside its volume.
func (v *validator) localPath(at *field.Path, value string) {
	if !v.required(at, value) {
		return
	}
	if path.IsAbs(value) || value == ".." || strings.HasPrefix(value, "../") || strings.Contains(value, "/../") || strings.HasSuffix(value, "/..") {
		v.invalid(at, value, "must be relative and stay inside the volume")
	}
	if strings.HasPrefix(value, "..") {
		v.invalid(at, value, "must not start with '..'")
	}
}

func (v *validator) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		v.invalid(at, *mode, "must be between 0 and 0777")
	}
}

func (v *validator) mounts(c *v1.Container, list *field.Path) {
	volumes := map[string]bool{}
	for _, volume := range v.pod.Spec.Volumes {
		volumes[volume.Name] = true
	}
	paths := map[string]bool{}
	privileged := c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	for i, m := range c.VolumeMounts {
		at := list.Index(i)
		if v.required(at.Child("name"), m.Name) && !volumes[m.Name] {
			v.errs = append(v.errs, field.NotFound(at.Child("name"), m.Name))
		}
		if v.required(at.Child("mountPath"), m.MountPath) {
			v.unique(at.Child("mountPath"), paths, m.MountPath)
			if strings.Contains(m.MountPath, ":") {
				v.invalid(at.Child("mountPath"), m.MountPath, "must not contain ':'")
			}
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.invalid(at.Child("subPathExpr"), m.SubPathExpr, "cannot be combined with subPath")
		}
		if m.SubPath != "" {
			v.localPath(at.Child("subPath"), m.SubPath)
		}
		if m.SubPathExpr != "" {
			v.localPath(at.Child("subPathExpr"), m.SubPathExpr)
		}
		v.refuse(m.BindMountOptions != nil, at.Child("bindMountOptions"), "is not supported")
		propagation, recursive := ptr.Deref(m.MountPropagation, v1.MountPropagationNone), ptr.Deref(m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled)
		oneOf(v, at.Child("recursiveReadOnly"), recursive, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
		if recursive != v1.RecursiveReadOnlyDisabled {
			v.refuse(!m.ReadOnly, at.Child("recursiveReadOnly"), "is for a mount that is readOnly")
			v.refuse(propagation != v1.MountPropagationNone, at.Child("recursiveReadOnly"), "cannot be combined with mountPropagation")
		}
		at = at.Child("mountPropagation")
		oneOf(v, at, propagation, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
		v.refuse(propagation == v1.MountPropagationBidirectional && !privileged, at, "Bidirectional is for privileged containers")
	}
}

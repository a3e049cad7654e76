package imagefile

import (
	"encoding/json"
	"fmt"
	"path"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// dockerImage is an image in manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archive) dockerImages(text []byte) ([]Image, error) {
	var list []dockerImage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(list) > maxImages {
		return nil, fmt.Errorf("manifest.json: more than %d images", maxImages)
	}
	var images []Image
	for _, entry := range list {
		if len(entry.Layers) > maxLayers {
			return nil, fmt.Errorf("manifest.json: more than %d layers", maxLayers)
		}
		f, ok := a.lookup(entry.Config)
		if _, document := a.documents[f.digest]; !ok || !document {
			return nil, fmt.Errorf("manifest.json: the configuration %q is missing", entry.Config)
		}
		config := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: f.digest, Size: f.size}
		var layers []ocispec.Descriptor
		for _, name := range entry.Layers {
			f, ok := a.lookup(name)
			if !ok {
				return nil, fmt.Errorf("manifest.json: the layer %q is missing", name)
			}
			d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: f.digest, Size: f.size}
			if l, ok := a.layers[f.digest]; ok {
				d = l.Descriptor
			}
			layers = append(layers, d)
		}
		target, err := manifestFor(a.documents, config, layers)
		if err != nil {
			return nil, err
		}
		manifests, err := Complete(target, a.options.Platform, a.find, a.has)
		if err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		if err := a.checkLayers(manifests[0]); err != nil {
			return nil, err
		}
		image := Image{Target: target, Manifests: manifests}
		for _, tag := range entry.RepoTags {
			name, err := Name(tag)
			if err != nil {
				return nil, fmt.Errorf("manifest.json: image name %q: %w", tag, err)
			}
			image.Names = append(image.Names, name)
		}
		images = Add(images, image)
	}
	return images, nil
}

// lookup follows the links among an archive's entries.
func (a *archive) lookup(name string) (file, bool) {
	name = path.Clean(name)
	for range 8 {
		if f, ok := a.files[name]; ok {
			return f, true
		}
		next, ok := a.links[name]
		if !ok {
			break
		}
		name = next
	}
	return file{}, false
}

// manifestFor makes the manifest that a docker-archive does not have.
func manifestFor(documents Documents, config ocispec.Descriptor, layers []ocispec.Descriptor) (ocispec.Descriptor, error) {
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: config, Layers: layers}
	m.SchemaVersion = 2
	if layers == nil {
		m.Layers = []ocispec.Descriptor{}
	}
	text, err := json.Marshal(m)
	return documents.Add(ocispec.MediaTypeImageManifest, text), err
}

package containerd

import (
	"bytes"
	"fmt"
	"io"

	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/distribution/reference"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/crishim/crishim/internal/imagefile"
)

// gcRef is the prefix of labels that refer to content. containerd keeps the content as long as the label's owner.
const gcRef = "containerd.io/gc.ref.content."

// managed is the label that the CRI plugin sets on its images.
const managed, managedValue = "io.cri-containerd.image", "managed"

// finish stores each image's configs, manifests and index, and then the names of all images. A CRI pull has the same
// order.
func (w *writer) finish(list []imagefile.Image) error {
	document := func(d imagefile.Document, labels map[string]string) error {
		return w.write(d.Descriptor, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(d.Text)), nil }, labels)
	}
	for _, image := range list {
		index := map[string]string{}
		for i, m := range image.Manifests {
			labels := map[string]string{gcRef + "config": m.Config.Digest.String()}
			for n, layer := range m.Layers {
				labels[fmt.Sprintf("%sl.%d", gcRef, n)] = layer.Digest.String()
			}
			if err := document(m.Config, nil); err != nil {
				return err
			}
			if err := document(m.Document, labels); err != nil {
				return err
			}
			index[fmt.Sprintf("%sm.%d", gcRef, i)] = m.Digest.String()
		}
		if image.Target.MediaType.IsIndex() {
			if err := document(image.Target, index); err != nil {
				return err
			}
		}
	}
	for _, image := range list {
		names := []string{image.ID()} // CRI also needs a name that is the image's id
		for _, name := range image.Names {
			if ref, err := reference.ParseNamed(name); err == nil {
				names = append(names, reference.TrimNamed(ref).Name()+"@"+image.Target.Digest.String())
			}
			names = append(names, name)
		}
		for _, name := range names {
			if err := w.name(name, image.Target.Descriptor); err != nil {
				return fmt.Errorf("image %s: %w", name, err)
			}
		}
	}
	return nil
}

func (w *writer) name(name string, target v1.Descriptor) error {
	image := &images.Image{
		Name: name, Labels: map[string]string{managed: managedValue},
		Target: &types.Descriptor{MediaType: string(target.MediaType), Digest: target.Digest.String(), Size: target.Size},
	}
	_, err := w.store.images.Create(w.ctx, &images.CreateImageRequest{Image: image})
	if status.Code(err) != codes.AlreadyExists {
		return err
	}
	_, err = w.store.images.Update(w.ctx, &images.UpdateImageRequest{
		Image: image, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"target", "labels." + managed}},
	})
	return err
}

func (w *writer) update(d string, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	mask := &fieldmaskpb.FieldMask{}
	for key := range labels {
		mask.Paths = append(mask.Paths, "labels."+key)
	}
	_, err := w.store.content.Update(w.ctx, &content.UpdateRequest{Info: &content.Info{Digest: d, Labels: labels}, UpdateMask: mask})
	return err
}

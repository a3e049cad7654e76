package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// manyImages loads images that share one small layer.
func (b *bench) manyImages(ctx context.Context) error {
	archive, err := imageArchive(b.listed)
	if err != nil {
		return err
	}
	b.undo = append(b.undo, func() error {
		return each(b.listed, 8, func(i int) error {
			return b.call(context.WithoutCancel(ctx), http.MethodDelete, "/images/"+imageName(i), nil, nil)
		})
	})
	return b.call(ctx, http.MethodPost, "/images/load?quiet=1", bytes.NewReader(archive), nil)
}

func imageName(i int) string {
	return fmt.Sprintf("crishim-bench.example/team-%d/app-%d:1.%d", i%10, i, i)
}

// imageArchive packs n images in the form that the engine's load call reads.
func imageArchive(n int) ([]byte, error) {
	var layer, archive bytes.Buffer
	l := tar.NewWriter(&layer)
	if err := errors.Join(addFile(l, "file", []byte("crishim bench\n")), l.Close()); err != nil {
		return nil, err
	}
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	manifest := make([]entry, n)
	w := tar.NewWriter(&archive)
	if err := addFile(w, "layer.tar", layer.Bytes()); err != nil {
		return nil, err
	}
	for i := range manifest {
		config, err := json.Marshal(map[string]any{
			"architecture": "amd64", "os": "linux", "config": map[string]any{"Labels": map[string]string{"number": fmt.Sprint(i)}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
		})
		if err != nil {
			return nil, err
		}
		manifest[i] = entry{fmt.Sprintf("%x.json", sha256.Sum256(config)), []string{imageName(i)}, []string{"layer.tar"}}
		if err := addFile(w, manifest[i].Config, config); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(addFile(w, "manifest.json", raw), w.Close()); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

func addFile(w *tar.Writer, name string, body []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644}); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

package pause

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

// archive packs a program as an image of one layer in the form that the
// engine's load call reads. Equal input gives equal bytes.
func archive(program []byte, arch string) ([]byte, error) {
	layer, err := pack([]file{{"pause", program, 0o755}})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": arch,
		"os":           "linux",
		"created":      time.Unix(0, 0).UTC(),
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		"history":      []map[string]any{{"created": time.Unix(0, 0).UTC(), "created_by": "crishim"}},
	})
	if err != nil {
		return nil, fmt.Errorf("pause image configuration: %w", err)
	}
	configName := digest(config) + ".json"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": []string{Ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, fmt.Errorf("pause image manifest: %w", err)
	}
	return pack([]file{{configName, config, 0o644}, {"layer.tar", layer, 0o644}, {"manifest.json", manifest, 0o644}})
}

type file struct {
	name string
	body []byte
	mode int64
}

func pack(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.body)), Mode: f.mode, ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return b.Bytes(), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

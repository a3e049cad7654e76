package test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
)

// ImageArchive returns a docker archive of an image. A file contains the name, so that each name has a different image.
// program, which may be nil, becomes /pause.
func ImageArchive(name string, program []byte) []byte {
	layer := pack(file{"name", 0o644, []byte(name)}, file{"pause", 0o755, program})
	config := text(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	list := text([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	return pack(file{"layer.tar", 0o644, layer}, file{"config.json", 0o644, config}, file{"manifest.json", 0o644, list})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// pack writes to memory, so it cannot fail.
func pack(files ...file) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.content)), Mode: f.mode}))
		_, err := w.Write(f.content)
		must(err)
	}
	must(w.Close())
	return b.Bytes()
}

func text(v any) []byte {
	b, err := json.Marshal(v)
	must(err)
	return b
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

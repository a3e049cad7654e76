package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/crishim/crishim/output"
)

// Write writes the bundle as a gzipped tar archive, whose files are in one directory and their owner's alone.
func (b *Bundle) Write(w io.Writer) error {
	page, err := b.page()
	if err != nil {
		return err
	}
	results, err := encode(map[string]any{"parts": b.Results}, "  ")
	if err != nil {
		return err
	}
	removals, err := encode(map[string]any{"removed": b.Removals}, "  ")
	if err != nil {
		return err
	}
	zipped, at := gzip.NewWriter(w), b.at.Truncate(time.Second) // tar would round it up, into the future
	archive := tar.NewWriter(zipped)
	add := func(name string, text []byte) error {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: b.o.Title + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: at}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(text)
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: b.o.Title + "/", Mode: 0o700, ModTime: at}); err != nil {
		return err
	}
	err = cmp.Or(add("index.html", page), add("parts.json", newline(results)), add("removed.json", newline(removals)))
	for _, f := range b.files {
		text, failed := f.bytes()
		if failed != nil {
			return fmt.Errorf("%s: %w", f.name, failed)
		}
		if err != nil {
			return err
		}
		err = add(f.name, text)
	}
	return cmp.Or(err, archive.Close(), zipped.Close()) // the same error, where the disk is full
}

// bytes is a file's content.
func (f *file) bytes() ([]byte, error) {
	if f.document == nil {
		return []byte(f.text), nil
	}
	text, err := encode(f.document, "  ")
	return newline(output.EscapeJSON(text)), err
}

func newline(text []byte) []byte { return append(text, '\n') }

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more than one document")
	}
	return v, nil
}

func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

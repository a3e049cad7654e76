package logfile

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crishim/crishim/internal/bounded"
)

// rotated lists what rotation made of a log file, oldest first: PATH.1 and up,
// as Docker counts, and PATH.20060102-150405, as a kubelet dates, with or
// without .gz. Behind a link they lie beside the link's target.
func rotated(path string) ([]string, error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		suffix, isRotated := strings.CutPrefix(entry.Name(), base+".")
		if !isRotated || !entry.Type().IsRegular() || !isRotation(suffix) {
			continue
		}
		// A kubelet keeps the plain file until the compressed one is whole.
		if whole, zipped := strings.CutSuffix(entry.Name(), ".gz"); zipped && slices.Contains(found, dir+whole) {
			continue
		}
		found = append(found, dir+entry.Name())
	}
	slices.SortFunc(found, func(a, b string) int { return compareAge(a, b, len(dir+base)+1) })
	return found, nil
}

func isRotation(suffix string) bool {
	suffix = strings.TrimSuffix(suffix, ".gz")
	if _, err := strconv.Atoi(suffix); err == nil {
		return true
	}
	return len(suffix) == len("20060102-150405") && strings.Trim(suffix, "0123456789-") == ""
}

// compareAge sorts numbers downwards and dates upwards, which is older first.
func compareAge(a, b string, skip int) int {
	x, y := strings.TrimSuffix(a[skip:], ".gz"), strings.TrimSuffix(b[skip:], ".gz")
	m, errX := strconv.Atoi(x)
	n, errY := strconv.Atoi(y)
	if errX == nil && errY == nil {
		return cmp.Compare(n, m)
	}
	return cmp.Compare(x, y)
}

// readWhole hands each entry of a file that does not grow any more to emit.
func readWhole(ctx context.Context, path string, emit func(Entry) error) (err error) {
	file, err := bounded.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // rotated away meanwhile
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var from io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		zipped, err := gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		from = zipped
	}
	return new(lines).read(ctx, from, make([]byte, 64<<10), emit)
}

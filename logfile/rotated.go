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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/crishim/crishim/internal/bounded"
)

// Open opens a container's log. The container may have replaced it where the
// pod's log directory is mounted into it. Only one link is followed, that of a
// dockershim to the file of the engine, which is ID/ID-json.log wherever the engine
// keeps it; a container can have its like only among its own files.
func Open(path string) (*os.File, error) {
	f, err := bounded.Open(path)
	if !errors.Is(err, syscall.ELOOP) {
		return f, err
	}
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	id := filepath.Base(filepath.Dir(target))
	if !filepath.IsAbs(target) || !containerID.MatchString(id) || filepath.Base(target) != id+"-json.log" {
		return nil, fmt.Errorf("log %s is a link to %s, which is no log of a container engine", path, strings.ToValidUTF8(target, "?"))
	}
	return bounded.Open(target)
}

var containerID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// history hands on what is in the rotated files of a log, the oldest first, and then in the current one.
func (f *followed) history(ctx context.Context, since time.Time, emit func(Entry) error) error {
	older, err := rotated(f.file.Name())
	if err != nil {
		return err
	}
	current, err := f.file.Stat()
	if err != nil {
		return err
	}
	for _, path := range older {
		if info, err := os.Stat(path); err == nil && (info.ModTime().Before(since) || os.SameFile(info, current)) {
			continue // all of it is older, or is read below: it was rotated just now
		}
		if err := readWhole(ctx, path, emit); err != nil {
			return err
		}
	}
	return f.drain(ctx, emit)
}

// rotated lists what rotation made of a log file, oldest first: PATH.1 and up,
// as Docker counts, and PATH.20060102-150405, as a kubelet dates, with or
// without .gz.
func rotated(path string) ([]string, error) {
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
	// Numbers downwards and dates upwards, which is older first.
	slices.SortFunc(found, func(a, b string) int {
		x, y := strings.TrimSuffix(a[len(path)+1:], ".gz"), strings.TrimSuffix(b[len(path)+1:], ".gz")
		m, errX := strconv.Atoi(x)
		n, errY := strconv.Atoi(y)
		if errX == nil && errY == nil {
			return cmp.Compare(n, m)
		}
		return cmp.Compare(x, y)
	})
	return found, nil
}

func isRotation(suffix string) bool {
	suffix = strings.TrimSuffix(suffix, ".gz")
	if _, err := strconv.Atoi(suffix); err == nil {
		return true
	}
	return len(suffix) == len("20060102-150405") && strings.Trim(suffix, "0123456789-") == ""
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

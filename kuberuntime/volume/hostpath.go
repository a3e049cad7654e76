package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// checkHostPath makes what the type says to make, and refuses what is something else.
func checkHostPath(h *v1.HostPathVolumeSource) error {
	kind := v1.HostPathUnset
	if h.Type != nil {
		kind = *h.Type
	}
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(h.Path, 0o755)
		case v1.HostPathFileOrCreate:
			return createFile(h.Path)
		case v1.HostPathUnset:
			return nil // the runtime decides
		}
	}
	if err != nil {
		if kind == v1.HostPathUnset {
			return nil
		}
		return err
	}
	mode := info.Mode()
	ok := true
	switch kind {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = mode.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = mode.IsRegular()
	case v1.HostPathSocket:
		ok = mode&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = mode&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0
	}
	if !ok {
		return fmt.Errorf("%s is no %s", h.Path, kind)
	}
	return nil
}

// createFile does not make the folders above, as the kubelet does not.
func createFile(path string) error {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

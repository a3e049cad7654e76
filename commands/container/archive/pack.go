package archive

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pack writes the file or directory at from, a path in root, as a tar stream. name is the name of the first entry; "."
// packs the contents of a directory. Symbolic links are packed as links. Nothing outside of root is read, even if files
// are replaced at the same time.
func Pack(w io.Writer, root *os.Root, from, name string, o Options) error {
	o.Where = cmp.Or(o.Where, root.Name())
	if o.Owner == nil {
		o.Owner = func(int, int) (int, int) { return 0, 0 }
	}
	p := &packer{root: root, tar: tar.NewWriter(w), o: o}
	return errors.Join(o.inWhere(p.pack(from, name)), p.tar.Close())
}

type packer struct {
	root *os.Root
	tar  *tar.Writer
	o    Options
}

func (p *packer) pack(file, name string) error {
	info, err := p.root.Lstat(file)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return p.dir(file, name)
	case info.Mode().IsRegular():
		return p.regular(file, name)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := p.root.Readlink(file)
		if err != nil {
			return err
		}
		return p.header(info, name, link)
	}
	if p.o.Skipped != nil {
		p.o.Skipped(p.o.path(file), kindOf(info.Mode()))
	}
	return nil
}

func (p *packer) dir(file, name string) error {
	d, info, err := p.open(file, fs.FileMode.IsDir)
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return err
	}
	if err := p.header(info, name+"/", ""); err != nil {
		return err
	}
	for _, entry := range entries {
		err := p.pack(path.Join(file, entry.Name()), path.Join(name, entry.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone since the directory was read
			return err
		}
	}
	return nil
}

// regular copies as many bytes as the header announces. It ignores bytes that are appended meanwhile, and fails if the
// file shrinks.
func (p *packer) regular(file, name string) error {
	f, info, err := p.open(file, fs.FileMode.IsRegular)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.header(info, name, ""); err != nil {
		return err
	}
	n, err := io.CopyN(p.tar, f, info.Size())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s shrank from %d to %d bytes while it was read", p.o.path(file), info.Size(), n)
	}
	return err
}

// open checks the kind of a file first: opening a pipe may block forever, and opening a device may have effects on the
// machine.
func (p *packer) open(file string, kind func(fs.FileMode) bool) (*os.File, fs.FileInfo, error) {
	handle, err := p.root.OpenFile(file, unix.O_PATH, 0)
	if err != nil {
		return nil, nil, err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !kind(info.Mode()) {
		return nil, nil, fmt.Errorf("%s was replaced while it was read", p.o.path(file))
	}
	f, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(handle.Fd())))
	return f, info, err
}

func (p *packer) header(info fs.FileInfo, name, link string) error {
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = name
	h.Uname, h.Gname = "", "" // a name may have another id in the container
	h.Uid, h.Gid = p.o.Owner(h.Uid, h.Gid)
	return p.tar.WriteHeader(h)
}

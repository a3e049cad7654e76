package diagnose

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"path"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/containerd"
)

// program describes why the command of a container cannot run.
type program struct {
	Path        string
	Machine     string // of the program, if not the host's
	Interpreter string // missing in the container: the loader of an ELF file, or a script's interpreter
	NoProgram   bool   // neither an ELF file nor a script with #!
}

// hostMachines are the ELF machines whose programs a processor runs, by GOARCH.
var hostMachines = map[string][]elf.Machine{"amd64": {elf.EM_X86_64, elf.EM_386}, "arm64": {elf.EM_AARCH64, elf.EM_ARM}}

// maxPaths bounds the calls that the PATH of an image can cause.
const maxPaths = 64

// program inspects the file of a container's command. CRI has no call for that. Only crishim's dockershim and containerd
// give access to the files.
func (c *Collector) program(ctx context.Context, id string, info map[string]string, args, env []string, cwd string) *program {
	if len(args) == 0 {
		return nil
	}
	head := func(at string) ([]byte, error) { return c.head(ctx, id, at) }
	if !c.conn.IsDockershim(ctx) {
		if head = c.layers(ctx, info); head == nil {
			return nil
		}
	}
	for _, at := range programPaths(args[0], env, cwd) {
		text, err := head(at)
		if errors.Is(err, fs.ErrNotExist) || text == nil && err == nil {
			continue
		}
		if err != nil {
			return nil // for example, an engine reads no files of a container with an invalid mount
		}
		found := parseProgram(text)
		found.Path = at
		if found.Interpreter != "" {
			if _, err := head(found.Interpreter); !errors.Is(err, fs.ErrNotExist) {
				found.Interpreter = ""
			}
		}
		return &found
	}
	return nil
}

// programPaths returns the possible paths of a command.
func programPaths(command string, env []string, cwd string) (paths []string) {
	switch {
	case path.IsAbs(command):
		return []string{command}
	case strings.Contains(command, "/"):
		return []string{path.Join("/", cwd, command)}
	}
	for _, variable := range env {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			if at := path.Join(dir, command); len(paths) < maxPaths && !slices.Contains(paths, at) {
				paths = append(paths, at)
			}
		}
	}
	return paths
}

// headBytes is enough for the program headers and the name of the loader, which linkers put first.
const headBytes = 4 << 10

// layers returns a function that reads the first bytes of a file in the layers of a containerd container, or nil for
// other runtimes.
func (c *Collector) layers(ctx context.Context, info map[string]string) func(at string) ([]byte, error) {
	store, ok := containerd.Open(ctx, c.conn.ClientConn())
	if !ok || c.o.Host.Hidden {
		return nil
	}
	overlay, err := store.Overlay(ctx, info)
	if err != nil {
		return nil
	}
	return func(at string) ([]byte, error) {
		f, err := overlay.Open(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		if err != nil {
			return nil, nil //nolint:nilerr // a volume, a directory, or not to be read by this user
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, headBytes))
	}
}

// head returns the first bytes of a file of a container, or nil if the path is not a regular file.
func (c *Collector) head(ctx context.Context, id, at string) ([]byte, error) {
	stat, err := c.conn.StatPath(ctx, id, at)
	if err != nil {
		return nil, notExist(err)
	}
	if target := string(stat.GetLinkTarget()); target != "" {
		at = path.Join(path.Dir(at), target)
		if path.IsAbs(target) {
			at = target
		}
	}
	content, _, err := c.conn.ReadArchive(ctx, id, at)
	if err != nil {
		return nil, notExist(err)
	}
	defer content.Close()
	archive := tar.NewReader(content)
	if header, err := archive.Next(); err != nil || header.Typeflag != tar.TypeReg {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(archive, headBytes))
}

// notExist turns the runtime's error for a missing file into fs.ErrNotExist.
func notExist(err error) error {
	if status.Code(err) == codes.NotFound {
		return fs.ErrNotExist
	}
	return err
}

// parseProgram returns the machine of an ELF file if it differs from the host's, and the interpreter of an ELF file or a
// script. Any other file sets NoProgram. For the kernel a script's interpreter ends at a blank, but not at a carriage
// return.
func parseProgram(head []byte) (p program) {
	if line, script := bytes.CutPrefix(head, []byte("#!")); script {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		word, _, _ := strings.Cut(strings.Trim(strings.ReplaceAll(string(line), "\t", " "), " "), " ")
		if path.IsAbs(word) {
			p.Interpreter = word
		}
		return p
	}
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		p.NoProgram = true
		return p
	}
	head = bytes.Clone(head)
	switch { // clear the location of the section table, which is at the end of the file, outside head
	case len(head) > 0x40 && head[elf.EI_CLASS] == byte(elf.ELFCLASS64):
		clear(head[0x28:0x30])
		clear(head[0x3c:0x40])
	case len(head) > 0x34 && head[elf.EI_CLASS] == byte(elf.ELFCLASS32):
		clear(head[0x20:0x24])
		clear(head[0x30:0x34])
	}
	file, err := elf.NewFile(bytes.NewReader(head))
	if err != nil {
		return p
	}
	own := hostMachines[runtime.GOARCH]
	if len(own) > 0 && file.Machine != own[0] && file.Machine != own[1] {
		p.Machine = strings.ToLower(strings.TrimPrefix(file.Machine.String(), "EM_"))
	}
	for _, header := range file.Progs {
		if header.Type == elf.PT_INTERP {
			text, _ := io.ReadAll(header.Open())
			if name, _, whole := strings.Cut(string(text), "\x00"); whole { // head may end before the end of the name
				p.Interpreter = name
			}
		}
	}
	return p
}

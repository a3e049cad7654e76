package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/container/archive"
	"github.com/crishim/crishim/internal/shellwords"
)

type cpOptions struct {
	container string // the container of the remote path
	in        cli.Scope
	from, to  string // paths without CONTAINER:
	upload    bool
	source    localSource // local side of an upload
	owner     bool
	quiet     bool
	session   cli.SessionOptions
	stdin     io.Reader
}

// NewCp returns the verb that copies files between a container and this machine. CRI has no call for it; see
// openFiles.
func NewCp(in *cli.Invocation) *cli.Verb {
	o := &cpOptions{stdin: in.In}
	return &cli.Verb{
		Usage:     "Copy files between a container and the local filesystem",
		ArgsUsage: "CONTAINER:PATH|PATH|- CONTAINER:PATH|PATH|-",
		Args:      cli.AnyOf(cli.CompleteContainers(), cli.CompleteFiles),
		Description: cli.WithExamples("Copies files from or to a container. As with docker cp, the copy goes into the destination if it is a directory, else it gets that\n"+
			"name; PATH/. stands for the contents of a directory, and - for a tar stream on stdin or stdout. On Docker, the container may be stopped.\n"+
			"On other runtimes it must be running, and must contain tar unless crishim runs as root on its node.\n\n"+
			"Local copies keep the holes of sparse files, but no setuid, setgid and sticky bits. Devices, FIFOs and sockets are skipped with a\n"+
			"warning. A copy stops before the local disk is full, and replaces a local file only when the new one is complete.",
			"crishim cp web:/etc/hosts .", "crishim cp page.html web:/www/index.html", "crishim cp web:/var/log - | tar -tv",
			"tar -c . | crishim cp - web:/data"),
		Flags: append(o.session.TransportFlags(),
			o.in.ContainerFlag(), o.in.NamespaceFlag(),
			cli.BoolFlag(&o.owner, "archive", "Keep owner and group", "a"),
			cli.BoolFlag(&o.quiet, "quiet", "Do not print which files are skipped", "q"),
		),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *cpOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 2, 2); err != nil {
		return err
	}
	if err = o.session.Check(in); err != nil {
		return err
	}
	fromContainer, from, fromRemote := splitPath(c.Args().Get(0))
	toContainer, to, toRemote := splitPath(c.Args().Get(1))
	o.container, o.from, o.to, o.upload = fromContainer+toContainer, from, to, toRemote
	switch {
	case fromRemote == toRemote:
		return cli.Usagef("cp copies between a container and here: exactly one side must be CONTAINER:PATH")
	case from == "" || to == "":
		return cli.Usagef("cp needs a path on both sides")
	}
	if o.upload {
		o.source, err = findSource(o.from)
	}
	return err
}

// splitPath splits CONTAINER:PATH. A path that begins with / or . is local, even with a colon in it.
func splitPath(arg string) (container, path string, remote bool) {
	if strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, ".") {
		return "", arg, false
	}
	container, path, remote = strings.Cut(arg, ":")
	if !remote || container == "" {
		return "", arg, false
	}
	return container, path, true
}

func (o *cpOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	want, own := client.RunningAttempt, conn.IsDockershim(ctx)
	if own {
		want = client.PreferRunning
	}
	c, err := conn.FindContainer(ctx, o.in.Query(o.container, want))
	if err != nil {
		return err
	}
	p := &copier{cpOptions: o, printer: printer, conn: conn, id: c.GetId(), name: cli.ContainerName(c)}
	if p.files, err = p.openFiles(ctx, own); err != nil {
		return err
	}
	defer p.files.close()
	if o.upload {
		return p.uploadFrom(ctx, o.source)
	}
	return p.download(ctx)
}

type copier struct {
	*cpOptions
	printer  *cli.Printer
	conn     *client.Conn
	id, name string // id and name of the container
	files    containerFiles
}

func (p *copier) archiveOptions() archive.Options {
	var o archive.Options
	if p.owner {
		o.Owner = archive.KeepOwner
	}
	if !p.quiet {
		o.Skipped = func(name, why string) { p.printer.Warn("%s is skipped: %s", name, why) }
	}
	return o
}

// download reads a tar stream from the container, which is not trusted: archive.Unpack keeps everything below the
// destination.
func (p *copier) download(ctx context.Context) error {
	if file := path.Clean("/" + p.from); isKernels(file) {
		return cli.WithHint(fmt.Errorf("%s is the kernel's: its files have no size, and cannot be copied", file), "`crishim exec %s cat %s` prints one", shellwords.Quote(p.container), shellwords.Quote(file))
	}
	dir, name := splitRemote(p.from)
	if p.to == "-" {
		return p.files.read(ctx, dir, name, p.printer.Out)
	}
	into, as, err := destination(p.to, path.Base(name))
	if err != nil {
		return err
	}
	o := p.archiveOptions()
	o.Strip, o.Name = name != ".", as
	o.Directory = strings.HasSuffix(p.to, "/") && as != "" && !cli.IsDir(p.to)
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := archive.Unpack(r, root, o)
		_, _ = io.Copy(io.Discard, r) // tar blocks if the padding at its end is not read
		unpacked <- err
		r.CloseWithError(err)
	}()
	err = p.files.read(ctx, dir, name, w)
	w.CloseWithError(err) // without an error the reader gets EOF
	return cmp.Or(err, <-unpacked)
}

// isKernels reports whether a path is a file of the kernel in /proc or /sys. Files below a process's root or cwd link are
// not.
func isKernels(file string) bool {
	below := strings.HasPrefix(file+"/", "/proc/") || strings.HasPrefix(file+"/", "/sys/")
	return below && !strings.Contains(file+"/", "/root/") && !strings.Contains(file+"/", "/cwd/")
}

// splitRemote returns the directory for tar to change to and the name to archive, which never begins with a dash.
func splitRemote(from string) (dir, name string) {
	clean := path.Clean("/" + from)
	if clean == "/" || strings.HasSuffix(from, "/.") || from == "." {
		return clean, "."
	}
	return path.Dir(clean), "./" + path.Base(clean)
}

// destination returns the directory to unpack in and the new name; an empty name stands for the contents of a
// directory. As with docker cp, a symbolic link that is the destination itself is followed, and its target need not
// exist.
func destination(to, base string) (dir, name string, err error) {
	file := to
	info, err := os.Stat(to)
	switch {
	case err == nil && info.IsDir():
		if base == "." {
			return to, "", nil
		}
		return to, base, nil
	case err == nil && strings.HasSuffix(to, "/"):
		return "", "", fmt.Errorf("%s is not a directory", to)
	case err == nil && !info.Mode().IsRegular():
		return "", "", fmt.Errorf("%s is a device, a pipe or a socket and is not replaced", to)
	case err == nil:
		file, err = filepath.EvalSymlinks(to)
	case errors.Is(err, fs.ErrNotExist):
		file, err = followDangling(filepath.Clean(to))
	}
	if err != nil {
		return "", "", err
	}
	parent := filepath.Dir(file)
	if !cli.IsDir(parent) {
		return "", "", fmt.Errorf("there is no directory %s here", parent)
	}
	return parent, filepath.Base(file), nil
}

// followDangling returns the last target of a link to a file that does not exist.
func followDangling(file string) (string, error) {
	for range 40 { // the kernel's limit
		target, err := os.Readlink(file)
		if err != nil {
			return file, nil
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(file), target)
		}
		file = target
	}
	return "", fmt.Errorf("%s: %w", file, syscall.ELOOP)
}

// localSource is the source of an upload.
type localSource struct {
	path     string // empty for a tar stream on stdin
	dir      bool
	contents bool // copy the contents of the directory, not the directory
}

func findSource(from string) (localSource, error) {
	if from == "-" {
		return localSource{}, nil
	}
	info, err := os.Stat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return localSource{}, fmt.Errorf("there is no %s here", from)
	}
	if err != nil {
		return localSource{}, err
	}
	s := localSource{path: from, dir: info.IsDir()}
	s.contents = s.dir && (filepath.Base(from) == "." || strings.HasSuffix(from, "/."))
	if !s.dir && strings.HasSuffix(from, "/") {
		return s, fmt.Errorf("%s is not a directory", from)
	}
	s.path, err = filepath.EvalSymlinks(from)
	return s, err
}

func (p *copier) uploadFrom(ctx context.Context, s localSource) error {
	isDir, known, err := p.files.isDir(ctx, p.to)
	if err != nil {
		return err
	}
	if !known {
		isDir = strings.HasSuffix(p.to, "/") || s.path == ""
	}
	if s.path == "" {
		if !isDir {
			return fmt.Errorf("%s in %s is not a directory", p.to, p.name)
		}
		return p.files.write(ctx, p.to, p.stdin)
	}
	dir, name, err := place(s, filepath.Base(p.from), p.to, isDir)
	if err != nil {
		return cli.About(p.name, err)
	}
	from, base := s.path, "." // root directory for Pack, and the path below it to pack
	if !s.dir {
		from, base = filepath.Dir(s.path), filepath.Base(s.path)
	}
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := archive.Pack(w, root, base, name, p.archiveOptions())
		packed <- err
		w.CloseWithError(err)
	}()
	err = p.files.write(ctx, dir, r)
	_ = r.Close() // ends Pack if the receiver has given up
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return packErr
	}
	return err
}

// place returns the directory to unpack in and the name to unpack as.
func place(s localSource, base, to string, isDir bool) (dir, name string, err error) {
	switch {
	case isDir && s.contents:
		return to, ".", nil
	case isDir:
		return to, base, nil
	case strings.HasSuffix(to, "/") && !s.dir:
		return "", "", fmt.Errorf("there is no directory %s", to)
	}
	clean := path.Clean(to)
	return path.Dir(clean), path.Base(clean), nil
}

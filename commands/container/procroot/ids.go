package procroot

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
)

// nobody is how the kernel shows an owner that has no id in a user namespace.
const nobody = 65534

// keep is what chown leaves an id alone for.
const keep = -1

// idMap is how the ids of a user namespace are those of this machine.
type idMap []idRange

type idRange struct{ inside, outside, count int64 }

// host is an id of the container on this machine.
func (m idMap) host(id int) int {
	for _, r := range m {
		if n := int64(id) - r.inside; n >= 0 && n < r.count {
			return int(r.outside + n)
		}
	}
	return keep
}

// container is an id of this machine in the container.
func (m idMap) container(id int) int {
	for _, r := range m {
		if n := int64(id) - r.outside; n >= 0 && n < r.count {
			return int(r.inside + n)
		}
	}
	return nobody
}

func parseIDMap(text []byte) (idMap, error) {
	var m idMap
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var r idRange
		if _, err := fmt.Sscan(lines.Text(), &r.inside, &r.outside, &r.count); err != nil {
			return nil, fmt.Errorf("line %q of an id map: %w", lines.Text(), err)
		}
		m = append(m, r)
	}
	return m, lines.Err()
}

// identity reads who the process is and how its ids are counted.
func (r *Root) identity(process *os.Root) error {
	for file, m := range map[string]*idMap{"uid_map": &r.uids, "gid_map": &r.gids} {
		text, err := process.ReadFile(file)
		if err == nil {
			*m, err = parseIDMap(text)
		}
		if err != nil {
			return err
		}
	}
	text, err := process.ReadFile("status")
	if err != nil {
		return err
	}
	for field, id := range map[string]*int{"Uid:": &r.uid, "Gid:": &r.gid} {
		_, rest, _ := strings.Cut(string(text), "\n"+field)
		var real, effective int
		if _, err := fmt.Sscan(rest, &real, &effective); err != nil {
			return fmt.Errorf("%s of the container's process: %w", field, err)
		}
		*id = effective
	}
	return nil
}

// Host turns an owner in the container into the one that this machine knows.
func (r *Root) Host(uid, gid int) (int, int) { return r.uids.host(uid), r.gids.host(gid) }

// Container turns an owner on this machine into the one that the container sees.
func (r *Root) Container(uid, gid int) (int, int) {
	return r.uids.container(uid), r.gids.container(gid)
}

// Process gives everything to the user of the container's process.
func (r *Root) Process(int, int) (int, int) { return r.uid, r.gid }

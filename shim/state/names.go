package state

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	namePrefix = "k8s"
	nameSep    = "_"
)

var nameForbidden = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// nameParts is what the name of a container of the shim family carries.
type nameParts struct {
	container, pod, namespace, uid string
	attempt                        uint32
}

// encodeName makes the engine name that dockershim and cri-dockerd would make.
// Characters that the engine refuses become dashes: labels hold the truth.
func encodeName(p nameParts) string {
	parts := []string{namePrefix, p.container, p.pod, p.namespace, p.uid, strconv.FormatUint(uint64(p.attempt), 10)}
	return nameForbidden.ReplaceAllString(strings.Join(parts, nameSep), "-")
}

// AlternativeName gives the name to use where the plain one is taken. The
// suffix is a seventh part, which dockershim and cri-dockerd understand.
func AlternativeName(name string, suffix uint32) string {
	return fmt.Sprintf("%s%s%08x", name, nameSep, suffix)
}

// decodeName reads a name made by encodeName, dockershim or cri-dockerd.
func decodeName(name string) (nameParts, bool) {
	parts := strings.Split(strings.TrimPrefix(name, "/"), nameSep)
	if len(parts) != 6 && len(parts) != 7 || parts[0] != namePrefix {
		return nameParts{}, false
	}
	attempt, err := strconv.ParseUint(parts[5], 10, 32)
	if err != nil {
		return nameParts{}, false
	}
	return nameParts{container: parts[1], pod: parts[2], namespace: parts[3], uid: parts[4], attempt: uint32(attempt)}, true
}

package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxID is the engine's maximum uid and gid.
const maxID = 1<<31 - 1

type user struct {
	UID, GID int64
	Groups   []int64 // supplemental groups from the image's group file
}

type UserRequest struct {
	Name   string // "": the image's user
	Group  string // "": the user's primary group
	Groups []int64
	Strict bool
}

func RequestedUser(sc *runtimeapi.LinuxContainerSecurityContext, imageUser string) (UserRequest, error) {
	w := UserRequest{Groups: sc.GetSupplementalGroups()}
	switch sc.GetSupplementalGroupsPolicy() {
	case runtimeapi.SupplementalGroupsPolicy_Merge:
	case runtimeapi.SupplementalGroupsPolicy_Strict:
		w.Strict = true
	default:
		return w, fmt.Errorf("supplemental groups policy %d: %w", sc.GetSupplementalGroupsPolicy(), errdefs.ErrInvalidArgument)
	}
	for _, g := range w.Groups {
		if g < 0 || g > maxID {
			return w, fmt.Errorf("invalid supplemental group %d: must be from 0 to 2147483647: %w", g, errdefs.ErrInvalidArgument)
		}
	}
	uid, gid := sc.GetRunAsUser(), sc.GetRunAsGroup()
	switch {
	case uid != nil && sc.GetRunAsUsername() != "":
		return w, fmt.Errorf("run_as_user and run_as_username exclude each other: %w", errdefs.ErrInvalidArgument)
	case gid != nil && uid == nil && sc.GetRunAsUsername() == "":
		return w, fmt.Errorf("run_as_group is specified without a run_as_user: %w", errdefs.ErrInvalidArgument)
	case uid.GetValue() < 0 || uid.GetValue() > maxID || gid.GetValue() < 0 || gid.GetValue() > maxID:
		return w, fmt.Errorf("invalid user %d or group %d: must be from 0 to 2147483647: %w", uid.GetValue(), gid.GetValue(), errdefs.ErrInvalidArgument)
	}
	switch {
	case uid != nil:
		w.Name = strconv.FormatInt(uid.GetValue(), 10)
	case sc.GetRunAsUsername() != "":
		w.Name = sc.GetRunAsUsername()
	default:
		w.Name, w.Group, _ = strings.Cut(imageUser, ":")
	}
	if gid != nil {
		w.Group = strconv.FormatInt(gid.GetValue(), 10)
	}
	return w, nil
}

// NeedsFiles reports whether the groups must be resolved with the image's user files. If no group is given, the engine adds
// the image's supplemental groups, which Strict forbids. If a group is given, the engine omits them, but the merge policy
// requires them.
func (w UserRequest) NeedsFiles() bool { return w.Strict == (w.Group == "") }

func (w UserRequest) Engine(passwd, group []byte) (user string, groupAdd []string, err error) {
	user, groups := w.Name, w.Groups
	switch {
	case !w.NeedsFiles() && w.Group != "":
		user = cmp.Or(user, "0") + ":" + w.Group
	case w.NeedsFiles():
		u, err := resolveUser(w.Name, passwd, group)
		if err != nil {
			return "", nil, err
		}
		user = strconv.FormatInt(u.UID, 10) + ":" + strconv.FormatInt(u.GID, 10)
		if !w.Strict {
			user = strconv.FormatInt(u.UID, 10) + ":" + w.Group
			groups = append(slices.Clone(u.Groups), groups...)
		}
	}
	for _, g := range groups {
		if text := strconv.FormatInt(g, 10); !slices.Contains(groupAdd, text) {
			groupAdd = append(groupAdd, text)
		}
	}
	return user, groupAdd, nil
}

func ContainerUser(spec string, groupAdd []string, passwd, group []byte) (*runtimeapi.ContainerUser, error) {
	u, err := resolveUser(spec, passwd, group)
	if err != nil {
		return nil, err
	}
	ids := append([]int64{u.GID}, u.Groups...)
	for _, name := range groupAdd {
		gid, ok := groupID(name, group)
		if !ok {
			return nil, fmt.Errorf("group %q: %w", name, errdefs.ErrNotFound)
		}
		ids = append(ids, gid)
	}
	slices.Sort(ids)
	return &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
		Uid: u.UID, Gid: u.GID, SupplementalGroups: slices.Compact(ids),
	}}, nil
}

func resolveUser(spec string, passwd, group []byte) (user, error) {
	name, groupName, _ := strings.Cut(spec, ":")
	u, matched, err := lookUpUser(cmp.Or(name, "0"), passwd)
	if err != nil {
		return u, err
	}
	if groupName != "" {
		gid, ok := groupID(groupName, group)
		if !ok {
			return u, fmt.Errorf("group %q is not in the image: %w", groupName, errdefs.ErrInvalidArgument)
		}
		u.GID = gid
		return u, nil
	}
	for _, f := range records(group, 4) {
		if gid, err := strconv.ParseInt(f[2], 10, 64); err == nil && matched != "" && slices.Contains(strings.Split(f[3], ","), matched) {
			u.Groups = append(u.Groups, gid)
		}
	}
	return u, nil
}

func lookUpUser(name string, passwd []byte) (u user, matched string, err error) {
	uid, numErr := strconv.ParseInt(name, 10, 32)
	numeric := numErr == nil
	for _, f := range records(passwd, 4) {
		if f[0] != name && (!numeric || f[2] != name) {
			continue
		}
		entryUID, err1 := strconv.ParseInt(f[2], 10, 64)
		entryGID, err2 := strconv.ParseInt(f[3], 10, 64)
		if err1 == nil && err2 == nil {
			return user{UID: entryUID, GID: entryGID}, f[0], nil
		}
	}
	if !numeric {
		return user{}, "", fmt.Errorf("user %q is not in the image: %w", name, errdefs.ErrInvalidArgument)
	}
	return user{UID: uid}, "", nil
}

func groupID(name string, group []byte) (int64, bool) {
	for _, f := range records(group, 3) {
		if f[0] == name {
			if gid, err := strconv.ParseInt(f[2], 10, 64); err == nil {
				return gid, true
			}
		}
	}
	gid, err := strconv.ParseInt(name, 10, 32)
	return gid, err == nil
}

// records parses lines with at least n fields. Like the engine, it skips invalid lines.
func records(file []byte, n int) [][]string {
	var out [][]string
	for line := range bytes.Lines(file) {
		f := strings.Split(string(bytes.TrimSpace(line)), ":")
		if len(f) >= n && f[0] != "" {
			out = append(out, f)
		}
	}
	return out
}

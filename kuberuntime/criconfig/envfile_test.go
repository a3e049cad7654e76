package criconfig

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEnvFileValue(t *testing.T) {
	t.Parallel()
	const found, absent = "found ", "absent"
	for text, want := range map[string]string{
		"":                                   absent,
		"KEY='value'":                        found + "value",
		"KEY='value'\n":                      found + "value",
		"KEY=''":                             found,
		"# KEY='no'\n\n \t\n  KEY='yes' # x": found + "yes",
		"KEY='a # b $c \\n'":                 found + `a # b $c \n`,
		"KEY='first\n second\n'\nOTHER='x'":  found + "first\n second\n",
		"OTHER='a\nKEY=no'\nKEY='yes'":       found + "yes",
		"KEY='1'\nKEY='2'":                   found + "1",
		"KEY='1'\r\nB='2'\r\n":               found + "1",
		"KEY= 'value'":                       found,
		"OTHER= 'value'":                     absent,
		"KEYS='value'":                       absent,
		"KEY='1'\nwhat follows is not read":  found + "1",
		"A B='1'\nKEY='2'":                   found + "2",
		"word":                               "line 1 is not NAME='value'",
		"='x'":                               "line 1 is not NAME='value'",
		"\nKEY = 'x'":                        "line 2 is not NAME='value'",
		"KEY=":                               "line 1 has a value without single quotes",
		"OTHER=plain":                        "line 1 has a value without single quotes",
		"KEY=\"x\"":                          "line 1 has a value without single quotes",
		"A='1'\nKEY='open\nto the end":       "line 2 has a quote without an end",
		"KEY='a\nb' c":                       "line 2 goes on behind its value",
		"KEY='it''s'":                        "line 1 goes on behind its value",
		"KEY='a\x00b'":                       "the value of KEY has a NUL byte",
		"A='1" + strings.Repeat("\n", 5) + "'\nsecret": "line 7 is not NAME='value'",
	} {
		value, ok, err := envFileValue(text, "KEY")
		got := absent
		switch {
		case err != nil:
			got = err.Error()
		case ok:
			got = found + value
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzEnvFileValue(f *testing.F) {
	f.Add("A='1'\nKEY='2' # x\n", "KEY")
	f.Add("KEY='", "KEY")
	f.Fuzz(func(t *testing.T, text, key string) {
		value, found, err := envFileValue(text, key)
		if err == nil && found && value != "" && !strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), "'"+value+"'") {
			t.Errorf("got %q from %q", value, text)
		}
	})
}

// TestFileKeys covers an existing file, a missing file, and a pod without volumes.
func TestFileKeys(t *testing.T) {
	t.Parallel()
	files := Files(func(volume, path string) ([]byte, error) {
		switch volume + "/" + path {
		case "v/env":
			return []byte("A='1'\n"), nil
		case "v/link":
			return nil, errors.New("path escapes from parent")
		}
		return nil, fs.ErrNotExist
	})
	for _, c := range []struct {
		path, key string
		optional  bool
		want      string
	}{
		{"env", "A", false, "1"},
		{"env", "B", false, "file env of volume v: no key B"},
		{"env", "B", true, "-"},
		{"gone", "A", false, "file gone of volume v: file does not exist"},
		{"gone", "A", true, "-"},
		{"link", "A", true, "file link of volume v: path escapes from parent"},
	} {
		ref := &v1.FileKeySelector{VolumeName: "v", Path: c.path, Key: c.key, Optional: &c.optional}
		value, found, err := files.value(ref)
		got := value
		switch {
		case err != nil:
			got = err.Error()
		case !found:
			got = "-"
		}
		if got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.path, c.key, got, c.want)
		}
	}
	if _, found, err := Files(nil).value(&v1.FileKeySelector{}); found || err != nil {
		t.Errorf("without files: got %v, %v", found, err)
	}
}

package diagnose

import (
	"os"
	"strings"
	"testing"
)

// TestParseProgram: the first bytes of a file tell its machine and its interpreter.
func TestParseProgram(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	foreign := strings.Clone(string(self[:4096]))
	foreign = foreign[:18] + "\x16\x00" + foreign[20:] // EM_S390
	for name, c := range map[string]struct{ head, machine, interpreter string }{
		"this test":                  {string(self[:4096]), "", ""},
		"a program of a mainframe":   {foreign, "s390", ""},
		"a script":                   {"#!/bin/bash -e\necho\n", "", "/bin/bash"},
		"a script with a space":      {"#! /usr/bin/env python3\n", "", "/usr/bin/env"},
		"a script of nothing":        {"#!\n", "", ""},
		"no path":                    {"#!bash\n", "", ""},
		"text":                       {"hello", "", ""},
		"nothing":                    {"", "", ""},
		"the beginning of a program": {string(self[:20]), "", ""},
	} {
		if machine, interpreter := parseProgram([]byte(c.head)); machine != c.machine || interpreter != c.interpreter && strings.HasPrefix(c.head, "#!") {
			t.Errorf("%s: got %q, %q", name, machine, interpreter)
		}
	}
}

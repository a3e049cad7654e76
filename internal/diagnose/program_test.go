package diagnose

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPathsOfAProgram: the PATH of an image causes a bounded number of calls.
func TestPathsOfAProgram(t *testing.T) {
	t.Parallel()
	long := "PATH=/bin:/bin"
	for n := range 10_000 {
		long += fmt.Sprintf(":/%d", n)
	}
	if got := programPaths("app", []string{"HOME=/", long}, "/srv"); len(got) != maxPaths || got[0] != "/bin/app" || got[1] != "/0/app" {
		t.Errorf("%d paths: %v", len(got), got[:2])
	}
	for command, want := range map[string]string{"/app": "/app", "./app": "/srv/app", "../bin/app": "/bin/app"} {
		if got := programPaths(command, []string{long}, "/srv"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %v", command, got)
		}
	}
}

// TestParseProgram: the first bytes of a file tell its machine and its interpreter.
func TestParseProgram(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	foreign := strings.Clone(string(self[:4096]))
	foreign = foreign[:18] + "\x16\x00" + foreign[20:] // EM_S390
	for name, c := range map[string]struct {
		head string
		want program
	}{
		"this test":                  {string(self[:4096]), program{}},
		"a program of a mainframe":   {foreign, program{Machine: "s390"}},
		"a script":                   {"#!/bin/bash -e\necho\n", program{Interpreter: "/bin/bash"}},
		"a script with a space":      {"#! /usr/bin/env\tpython3\n", program{Interpreter: "/usr/bin/env"}},
		"a script from Windows":      {"#!/bin/sh\r\necho\r\n", program{Interpreter: "/bin/sh\r"}},
		"a script of nothing":        {"#!\n", program{}},
		"no path":                    {"#!bash\n", program{}},
		"text":                       {"hello", program{NoProgram: true}},
		"nothing":                    {"", program{NoProgram: true}},
		"the beginning of a program": {string(self[:20]), program{}},
	} {
		got := parseProgram([]byte(c.head))
		if !strings.HasPrefix(c.head, "#!") {
			got.Interpreter = "" // of this test
		}
		if got != c.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestParseLoader: the name of a loader is known only if the first bytes of the file have it whole.
func TestParseLoader(t *testing.T) {
	t.Parallel()
	const loader = "/lib64/ld-linux-x86-64.so.2"
	var file bytes.Buffer
	header := elf.Header64{Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1}
	copy(header.Ident[:], elf.ELFMAG+"\x02\x01\x01") // 64 bits, little-endian
	name := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(loader)) + 1}
	if err := errors.Join(binary.Write(&file, binary.LittleEndian, header), binary.Write(&file, binary.LittleEndian, name)); err != nil {
		t.Fatal(err)
	}
	file.WriteString(loader + "\x00")
	for cut, want := range []string{loader, "", ""} {
		if got := parseProgram(file.Bytes()[:file.Len()-cut]); got.Interpreter != want {
			t.Errorf("without the last %d bytes: got %q", cut, got.Interpreter)
		}
	}
}

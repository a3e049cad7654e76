package output

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

type animal struct{ name, sound string }

var animalColumns = []column[animal]{
	{name: "NAME", value: func(a animal, _ Options) string { return a.name }},
	{name: "FAVOURITE SOUND", value: func(a animal, _ Options) string { return a.sound }, shrink: true},
	{name: "LENGTH", wide: true, value: func(a animal, _ Options) string { return strings.Repeat("I", len(a.name)) }},
}

func TestTable(t *testing.T) {
	rows := []animal{{"dog", "woof"}, {"日本犬", "ワンワン and a long tail of text"}, {"bad\x1b[31m", ""}, {"", "alone"}}
	cases := map[string]struct {
		o    Options
		rows []animal
		want string
	}{
		"no rows":          {want: "NAME   FAVOURITE SOUND\n"},
		"no rows, no head": {o: Options{NoHeaders: true}, want: ""},
		"rows": {rows: rows, want: "" +
			"NAME          FAVOURITE SOUND\n" +
			"dog           woof\n" +
			"日本犬        ワンワン and a long tail of text\n" +
			"bad\\x1b[31m\n" +
			"              alone\n"},
		"narrow": {o: Options{Width: 30}, rows: rows[:2], want: "" +
			"NAME    FAVOURITE SOUND\n" +
			"dog     woof\n" +
			"日本犬  ワンワン and a long t…\n"},
		"narrow but whole": {o: Options{Width: 30, NoTrunc: true, NoHeaders: true}, rows: rows[1:2], want: "日本犬   ワンワン and a long tail of text\n"},
		"wide":             {o: Options{Format: Format{Kind: Wide}}, rows: rows[:1], want: "NAME   FAVOURITE SOUND   LENGTH\ndog    woof              III\n"},
		"columns":          {o: Options{Columns: []string{"length", "name"}}, rows: rows[:1], want: "LENGTH   NAME\nIII      dog\n"},
		"sorted down":      {o: Options{Sort: "-favourite-sound", NoHeaders: true, Columns: []string{"favourite-sound"}}, rows: []animal{{"a", "a"}, {"b", "c"}, {"c", "b"}}, want: "c\nb\na\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := writeTable(&b, c.rows, animalColumns, c.o); err != nil {
				t.Fatal(err)
			}
			if b.String() != c.want {
				t.Errorf("got\n%q\nwant\n%q", b.String(), c.want)
			}
		})
	}
}

// TestNarrowTables checks that the name and state remain on a narrow terminal.
func TestNarrowTables(t *testing.T) {
	running := &runtimeapi.Container{
		Id: "b4b3d861fbaac0", PodSandboxId: "4c496d55f8e750", Metadata: &runtimeapi.ContainerMetadata{Name: "side"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Image:  &runtimeapi.ImageSpec{Image: "busybox:crishim"},
		Labels: map[string]string{kube.LabelPodName: "crash", kube.LabelPodNamespace: "default"},
	}
	other := proto.CloneOf(running)
	other.Image.Image = "registry.k8s.io/coredns/coredns:v1.11.1"
	for _, tt := range []struct {
		width int
		of    *runtimeapi.Container
		want  string
	}{
		{80, running, "CONTAINER       IMAGE             CREATED   STATE     NAME   RESTARTS   POD"},
		{80, running, "b4b3d861fbaac   busybox:crishim   -         Running   side   0          crash"},
		{80, other, "b4b3d861fbaac  …coredns/coredns:v1.11.1  -        Running  side  0         crash"},
		{50, running, "b4b3d861fbaac   Running   side   0          crash"},
	} {
		var b strings.Builder
		if err := Containers(&b, &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{tt.of}}, Options{Width: tt.width}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), tt.want+"\n") {
			t.Errorf("got\n%s\nwant\n%s", b.String(), tt.want)
		}
	}
	for text, want := range map[string]string{
		"busybox:1.36":                       "busybox:1.36",
		"docker.io/library/busybox:1.36":     "…y/busybox:1.36",
		"busybox@sha256:0123456789abcdef":    "busybox@…",
		"registry.k8s.io/pause@sha256:01234": "…k8s.io/pause@…",
	} {
		if got := truncateStart(text, 15); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestCompareText checks that the order is total for any text.
func TestCompareText(t *testing.T) {
	texts := []string{"9", "10", "010", "-1", "1a", "9a", "a", "B", "", "-", "99999999999999999999999", "1.5", "１"}
	for _, a := range texts {
		for _, b := range texts {
			if x, y := compareText(a, b), compareText(b, a); x != -y || (x == 0) != (a == b) {
				t.Errorf("%q and %q: got %d, the other way round %d", a, b, x, y)
			}
			for _, c := range texts {
				if compareText(a, b) < 0 && compareText(b, c) < 0 && compareText(a, c) >= 0 {
					t.Errorf("%q < %q < %q < %[1]q", a, b, c)
				}
			}
		}
	}
	if compareText("9", "10") > 0 || compareText("a", "b") > 0 {
		t.Error("want numbers by their size, and texts by the alphabet")
	}
}

func TestUnknownColumn(t *testing.T) {
	for _, o := range []Options{{Columns: []string{"nosuch"}}, {Sort: "nosuch"}} {
		err := writeTable(&strings.Builder{}, []animal{{"a", "b"}}, animalColumns, o)
		if err == nil || !strings.Contains(err.Error(), "favourite-sound") {
			t.Errorf("got %v, want an error that lists the columns", err)
		}
	}
}

func TestSanitize(t *testing.T) {
	cases := map[string]string{
		"":                             "",
		"plain 日本":                     "plain 日本",
		"a\x1b[2Jb":                    `a\x1b[2Jb`,
		"nul\x00":                      `nul\x00`,
		"tab\tnewline\n":               `tab\x09newline\x0a`,
		"bidi\u202eabc":                `bidi\u{202e}abc`,
		"broken\xff":                   `broken\xff`,
		"c1\u009b31m":                  `c1\u{9b}31m`,
		strings.Repeat("x", 5e3):       strings.Repeat("x", 4096) + "…",
		strings.Repeat("é", 5e3):       strings.Repeat("é", 2048) + "…",
		"x" + strings.Repeat("é", 5e3): "x" + strings.Repeat("é", 2047) + "…",
	}
	for in, want := range cases {
		if got := Sanitize(in); got != want {
			t.Errorf("Sanitize(%q): got %q, want %q", in, got, want)
		}
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add("a\x1b[0m\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		if got := Sanitize(s); !clean(strings.TrimSuffix(got, "…")) {
			t.Errorf("Sanitize(%q) = %q is not clean", s, got)
		}
	})
}

func TestWholeDocumentByJSONPath(t *testing.T) {
	for _, path := range []string{"{.}", "{@}", "."} {
		f, err := ParseFormat("jsonpath=" + path)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Version(&out, &runtimeapi.VersionResponse{RuntimeName: "r"}, Options{Format: f}); err != nil || !strings.Contains(out.String(), `"runtimeName":"r"`) {
			t.Errorf("%s: got %q, %v", path, out.String(), err)
		}
	}
}

// The least important part of a cell is cut first.
func TestTruncate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Exited (137, OOMKilled) 3m ago":   "Exited (137, OOMKilled) 3m",
		"Exited (137, OOMKilled) 19s ago":  "Exited (137, OOMKilled) 19s",
		"CrashLoopBackOff, next in 2m30s":  "CrashLoopBackOff",
		"Running":                          "Running",
		"a-pod-with-a-name-that-is-longer": "a-pod-with-a-name-that-is-…",
	} {
		if got := truncate(text, 27); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
